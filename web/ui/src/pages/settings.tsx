export default function SettingsPage({ part }: { part: string }) {
	return (
		<div className="p-4">
			<h1 className="text-base font-semibold">Settings {part}</h1>
		</div>
	);
}
