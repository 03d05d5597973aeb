export default function UsagePage() {
	return (
		<div className="p-4">
			<h1 className="text-base font-semibold">Usage</h1>
		</div>
	);
}
