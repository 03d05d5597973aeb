export default function MachinesPage() {
	return (
		<div className="p-4">
			<h1 className="text-base font-semibold">Machines</h1>
		</div>
	);
}
