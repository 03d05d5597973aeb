export default function SkillsPage({ name }: { name?: string }) {
	return (
		<div className="p-4">
			<h1 className="text-base font-semibold">Skills {name}</h1>
		</div>
	);
}
