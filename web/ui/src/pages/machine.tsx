export default function MachinePage({ id, tab }: { id: string; tab: string }) {
	return (
		<div className="p-4">
			<h1 className="text-base font-semibold">
				Machine {id}
				{tab}
			</h1>
		</div>
	);
}
