export default function ApprovalsPage() {
	return (
		<div className="p-4">
			<h1 className="text-base font-semibold">Approvals</h1>
		</div>
	);
}
