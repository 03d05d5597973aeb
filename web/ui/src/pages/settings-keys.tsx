// Keys of the API: shown once when they are made, and never again.

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { call, get, post } from "../api/http";
import type { Schemas } from "../api/types";
import { Dialog } from "../ui/dialog";
import { ago, clock } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Field, Table } from "../ui/table";
import { Refused } from "../ui/table-scope";
import { Safe } from "../ui/text";

type Key = Schemas["Key"];

const scopes: [string, string][] = [
	["read", "look at machines, files and runs"],
	["write", "change them, and all of read"],
	["runs:read", "look at runs alone"],
	["runs:write", "start runs and answer them, and nothing else"],
	["admin", "all, of all tenants: keys, templates, plug-ins, audit"],
];

export function Keys() {
	const list = useQuery({ queryKey: ["keys"], queryFn: () => get<Schemas["KeyList"]>("/v1/keys") });
	const [making, setMaking] = useState(false);
	const [revoking, setRevoking] = useState<Key | null>(null);
	if (list.error) return <Refused of={list.error} want="admin" what="Keys" again={() => void list.refetch()} />;
	if (!list.data) return null;
	return (
		<div className="flex min-w-0 flex-col gap-3">
			<button type="button" className="button main self-start" onClick={() => setMaking(true)}>
				New key
			</button>
			<Table
				label="keys"
				rows={list.data.items ?? []}
				id={(k) => k.id}
				columns={[
					{
						name: "Name",
						wide: true,
						cell: (k) => (
							<span className="flex flex-col">
								<strong>
									<Safe>{k.name}</Safe>
								</strong>
								<code className="text-quiet">{k.id}</code>
							</span>
						),
					},
					{ name: "Tenant", cell: (k) => <Safe>{k.tenant}</Safe> },
					{ name: "Scopes", cell: (k) => (k.scopes ?? []).join(", ") },
					{ name: "Made", cell: (k) => <time dateTime={k.created_at}>{ago(k.created_at)}</time> },
					{
						name: "State",
						cell: (k) =>
							k.revoked_at ? <span className="text-bad">✕ revoked {clock(k.revoked_at)}</span> : <span className="text-good">✓ valid</span>,
					},
					{
						name: "Actions",
						cell: (k) =>
							!k.revoked_at && (
								<button type="button" className="button danger" aria-label={`Revoke ${k.name}`} onClick={() => setRevoking(k)}>
									Revoke…
								</button>
							),
					},
				]}
			/>
			{making && <Make onClose={() => setMaking(false)} />}
			{revoking && <Revoke of={revoking} onClose={() => setRevoking(null)} />}
		</div>
	);
}

/** Make shows a new key once. It is in this dialog alone, and gone when that closes. */
function Make({ onClose }: { onClose(): void }) {
	const client = useQueryClient();
	const [name, setName] = useState("");
	const [chosen, setChosen] = useState<string[]>(["read", "write"]);
	const [made, setMade] = useState<Schemas["CreatedKey"] | null>(null);
	const [problem, setProblem] = useState<unknown>(null);
	const [busy, setBusy] = useState(false);
	const make = async () => {
		setBusy(true);
		setProblem(null);
		try {
			setMade(await post<Schemas["CreatedKey"]>("/v1/keys", { name: name.trim(), scopes: chosen }));
			await client.invalidateQueries({ queryKey: ["keys"] });
		} catch (err) {
			setProblem(err);
		}
		setBusy(false);
	};
	if (made) return <Made of={made} onClose={onClose} />;
	return (
		<Dialog title="New key" open onClose={onClose} text="For your tenant. It is shown once.">
			<form
				className="flex flex-col gap-3"
				onSubmit={(e) => {
					e.preventDefault();
					void make();
				}}
			>
				<Field label="Name">
					<input className="field" required maxLength={64} value={name} onChange={(e) => setName(e.target.value)} data-first />
				</Field>
				<fieldset className="flex flex-col gap-1">
					<legend className="font-medium">It may</legend>
					{scopes.map(([s, what]) => (
						<label key={s} className="flex items-start gap-2">
							<input
								type="checkbox"
								className="mt-1"
								checked={chosen.includes(s)}
								onChange={(e) => setChosen(e.target.checked ? [...chosen, s] : chosen.filter((x) => x !== s))}
							/>
							<span>
								{s} <span className="text-quiet">{what}</span>
							</span>
						</label>
					))}
				</fieldset>
				{problem !== null && <ProblemBox of={problem} />}
				<div className="flex justify-end gap-2">
					<button type="button" className="button" onClick={onClose}>
						Cancel
					</button>
					<button type="submit" className="button main" disabled={busy || !chosen.length || !name.trim()}>
						Make the key
					</button>
				</div>
			</form>
		</Dialog>
	);
}

function Made({ of, onClose }: { of: Schemas["CreatedKey"]; onClose(): void }) {
	const [copied, setCopied] = useState("");
	const copy = () =>
		navigator.clipboard.writeText(of.secret).then(
			() => setCopied("Copied."),
			() => setCopied("The browser did not let it be copied: select it and copy it yourself."),
		);
	return (
		<Dialog
			title={`The key ${of.name}`}
			open
			onClose={onClose}
			text="Keep it now: it is not shown again, and the server has a hash of it alone."
		>
			<code className="break-all rounded-md border border-line bg-sunken p-2 select-all">{of.secret}</code>
			<span role="status">{copied}</span>
			<div className="flex justify-end gap-2">
				<button type="button" className="button" data-first onClick={() => void copy()}>
					Copy
				</button>
				<button type="button" className="button main" onClick={onClose}>
					I have it
				</button>
			</div>
		</Dialog>
	);
}

function Revoke({ of: k, onClose }: { of: Key; onClose(): void }) {
	const client = useQueryClient();
	const revoke = useMutation({
		mutationFn: () => call(`/v1/keys/${encodeURIComponent(k.id)}`, { method: "DELETE" }),
		onSuccess: async () => {
			await client.invalidateQueries({ queryKey: ["keys"] });
			onClose();
		},
	});
	return (
		<Dialog
			title={`Revoke the key ${k.name}`}
			open
			onClose={onClose}
			text="At once, for ever: what uses it is refused, and its connections end. Your own login too, if it came by this key."
		>
			<code>{k.id}</code>
			{revoke.error && <ProblemBox of={revoke.error} />}
			<div className="flex justify-end gap-2">
				<button type="button" className="button" data-first onClick={onClose}>
					Keep
				</button>
				<button type="button" className="button danger" disabled={revoke.isPending} onClick={() => revoke.mutate()}>
					Revoke
				</button>
			</div>
		</Dialog>
	);
}
