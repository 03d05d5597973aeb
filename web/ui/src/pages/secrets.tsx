// Secrets by name, never by value.

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { call, get } from "../api/http";
import type { Schemas } from "../api/types";
import { Dialog } from "../ui/dialog";
import { ago, clock, plural } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Page, Table } from "../ui/table";
import { Refused, useLacking } from "../ui/table-scope";
import { Safe } from "../ui/text";
import { useMachines } from "./machines";
import { useLogs } from "./network-log";
import { sentAt } from "./network-rules";
import { HostsForm, howText, path, placeholder, type Secret, SecretForm } from "./secrets-form";

type Asked = { what: "make" } | { what: "rotate" | "hosts" | "delete" | "version"; of: Secret };

export default function SecretsPage() {
	const list = useQuery({ queryKey: ["secrets"], queryFn: () => get<Schemas["SecretList"]>("/v1/secrets") });
	const lacks = useLacking("write");
	const [asked, setAsked] = useState<Asked | null>(null);
	const sent = useSent();
	const close = () => setAsked(null);
	const off = { disabled: !!lacks, title: lacks || undefined };
	return (
		<Page
			title="Secrets"
			actions={
				<button type="button" className="button main" {...off} onClick={() => setAsked({ what: "make" })}>
					New secret
				</button>
			}
		>
			<p className="text-quiet">Machines use them and never see them. A value cannot be read again, by anyone.</p>
			{list.error && <Refused of={list.error} want="read" what="Secrets" again={() => void list.refetch()} />}
			{list.data && (
				<Table
					label="secrets"
					rows={list.data.items ?? []}
					id={(s) => s.name}
					empty={
						<p>
							No secrets. Make one above, or <code>skete secret set NAME --host api.example.com &lt; token.txt</code>.
						</p>
					}
					columns={[
						{
							name: "Name",
							cell: (s) => (
								<span className="flex flex-col">
									<strong className="break-all">
										<Safe>{s.name}</Safe>
									</strong>
									<code className="break-all text-quiet">
										<Safe>{placeholder(s.name)}</Safe>
									</code>
									{s.problem && (
										<span className="text-bad">
											✕ <Safe>{s.problem}</Safe>
										</span>
									)}
								</span>
							),
						},
						{ name: "Sent to", wide: true, cell: (s) => <Where of={s} /> },
						{
							name: "Version",
							cell: (s) => (
								<span className="whitespace-nowrap">
									{s.version} <span className="text-quiet">of {(s.versions ?? []).join(", ")}</span>
								</span>
							),
						},
						{ name: "Rotated", cell: (s) => <time dateTime={s.updated_at}>{ago(s.updated_at)}</time> },
						{ name: "Last used", cell: (s) => (sent.has(s.name) ? ago(sent.get(s.name)!) : <span className="text-quiet">not seen</span>) },
						{ name: "Ends", cell: (s) => (s.expires_at ? clock(s.expires_at) : "never") },
						{
							name: "Actions",
							cell: (s) => (
								<span className="flex flex-wrap gap-1">
									<button
										type="button"
										className="button"
										{...off}
										aria-label={`Rotate ${s.name}`}
										onClick={() => setAsked({ what: "rotate", of: s })}
									>
										Rotate
									</button>
									<button
										type="button"
										className="button"
										{...off}
										aria-label={`Hosts of ${s.name}`}
										onClick={() => setAsked({ what: "hosts", of: s })}
									>
										Hosts
									</button>
									{(s.versions?.length ?? 0) > 1 && (
										<button
											type="button"
											className="button"
											{...off}
											aria-label={`Version of ${s.name}`}
											onClick={() => setAsked({ what: "version", of: s })}
										>
											Version
										</button>
									)}
									<button
										type="button"
										className="button danger"
										{...off}
										aria-label={`Delete ${s.name}`}
										onClick={() => setAsked({ what: "delete", of: s })}
									>
										Delete
									</button>
								</span>
							),
						},
					]}
				/>
			)}
			<p className="text-quiet">
				Last used is of the decisions about networks that the server still keeps, of the machines that were used last.
			</p>
			{asked?.what === "make" && <SecretForm of={null} onClose={close} />}
			{asked?.what === "rotate" && <SecretForm of={asked.of} onClose={close} />}
			{asked?.what === "hosts" && <HostsForm of={asked.of} onClose={close} />}
			{asked?.what === "version" && <Version of={asked.of} onClose={close} />}
			{asked?.what === "delete" && <Delete of={asked.of} onClose={close} />}
		</Page>
	);
}

function useSent(): Map<string, number> {
	const machines = useMachines().data?.items ?? [];
	return sentAt(useLogs(machines.map((m) => m.id)).seen);
}

function Where({ of: s }: { of: Secret }) {
	if (!s.grants?.length) return <span className="text-quiet">nowhere</span>;
	return (
		<ul>
			{s.grants.map((g, i) => (
				<li key={i} className="break-words">
					<Safe>{g.host}</Safe>{" "}
					<span className="text-quiet">
						<Safe>{howText(g)}</Safe>
					</span>
				</li>
			))}
		</ul>
	);
}

function useChange(onClose: () => void, how: () => Promise<unknown>) {
	const client = useQueryClient();
	return useMutation({
		mutationFn: how,
		onSuccess: async () => {
			await client.invalidateQueries({ queryKey: ["secrets"] });
			onClose();
		},
	});
}

function Version({ of: s, onClose }: { of: Secret; onClose(): void }) {
	const [version, setVersion] = useState(s.version);
	const use = useChange(onClose, () => call(path(s.name), { method: "PATCH", body: { version } }));
	return (
		<Dialog title={`Which version of ${s.name} is sent`} open onClose={onClose} text="From the next request on. The last five are kept.">
			<form
				className="flex flex-col gap-3"
				onSubmit={(e) => {
					e.preventDefault();
					use.mutate();
				}}
			>
				<select className="field" aria-label="Version" value={version} onChange={(e) => setVersion(Number(e.target.value))}>
					{(s.versions ?? []).map((v) => (
						<option key={v} value={v}>
							{v}
							{v === s.version ? " (sent now)" : ""}
						</option>
					))}
				</select>
				{use.error && <ProblemBox of={use.error} />}
				<div className="flex justify-end gap-2">
					<button type="button" className="button" onClick={onClose}>
						Cancel
					</button>
					<button type="submit" className="button main" disabled={use.isPending || version === s.version}>
						Send version {version}
					</button>
				</div>
			</form>
		</Dialog>
	);
}

function Delete({ of: s, onClose }: { of: Secret; onClose(): void }) {
	const del = useChange(onClose, () => call(path(s.name), { method: "DELETE" }));
	return (
		<Dialog
			title={`Delete the secret ${s.name}`}
			open
			onClose={onClose}
			text={`All ${plural(s.versions?.length ?? 1, "version")} of it, for ever. Requests that need it are sent without it from then on.`}
		>
			{del.error && <ProblemBox of={del.error} />}
			<div className="flex justify-end gap-2">
				<button type="button" className="button" data-first onClick={onClose}>
					Keep
				</button>
				<button type="button" className="button danger" disabled={del.isPending} onClick={() => del.mutate()}>
					Delete
				</button>
			</div>
		</Dialog>
	);
}
