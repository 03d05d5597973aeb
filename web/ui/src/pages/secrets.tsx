export default function SecretsPage() {
	return (
		<div className="p-4">
			<h1 className="text-base font-semibold">Secrets</h1>
		</div>
	);
}
