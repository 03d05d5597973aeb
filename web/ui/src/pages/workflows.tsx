export default function WorkflowsPage({ name, run }: { name?: string; run?: string }) {
	return (
		<div className="p-4">
			<h1 className="text-base font-semibold">
				Workflows {name}
				{run}
			</h1>
		</div>
	);
}
