export default function NetworkPage() {
	return (
		<div className="p-4">
			<h1 className="text-base font-semibold">Network</h1>
		</div>
	);
}
