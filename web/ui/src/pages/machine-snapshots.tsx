// The snapshots of a machine, and machines that go on from one.

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { useLocation } from "wouter";
import { call, get, key } from "../api/http";
import type { Sandbox, Schemas } from "../api/types";
import { Dialog } from "../ui/dialog";
import { bytes, clock } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Isolation } from "../ui/state";
import { Field, Table } from "../ui/table";
import { useLacking } from "../ui/table-scope";
import { Safe } from "../ui/text";
import { nameOf } from "./machines-actions";
import { Actions, MachineLink } from "./machines-do";

type Snapshot = Schemas["Snapshot"];

const useSnapshots = () => useQuery({ queryKey: ["snapshots"], queryFn: () => get<Schemas["SnapshotList"]>("/v1/snapshots") });

export function Snapshots({ machine: m, all }: { machine: Sandbox; all: Sandbox[] }) {
	const list = useSnapshots();
	const lacks = useLacking("write");
	const [asked, setAsked] = useState<{ verb: "delete" | "make"; of: Snapshot } | null>(null);
	const mine = (list.data?.items ?? []).filter((s) => s.sandbox === m.id || s.id === m.from);
	const made = (id: string) => all.filter((x) => x.from === id);
	return (
		<section aria-label="Snapshots" className="flex min-w-0 flex-col gap-3">
			<Actions of={m} only={["snapshot", "fork"]} />
			{list.error && <ProblemBox of={list.error} again={() => void list.refetch()} />}
			{list.data && (
				<Table
					label="snapshots"
					rows={mine}
					id={(s) => s.id}
					empty={
						<p>
							No snapshot of it is kept; also <code>skete vm snapshot {m.id}</code>.
						</p>
					}
					columns={[
						{
							name: "Name",
							wide: true,
							cell: (s) => (
								<span className="flex flex-col">
									<Safe>{s.name || s.id}</Safe>
									{s.name && <code className="text-quiet">{s.id}</code>}
									{s.id === m.from && <span className="text-quiet">this machine was made from it</span>}
								</span>
							),
						},
						{ name: "Taken", cell: (s) => <time dateTime={s.created_at}>{clock(s.created_at)}</time> },
						{ name: "Holds", cell: (s) => (s.memory ? "memory and files" : "files") },
						{ name: "Size", number: true, cell: (s) => bytes(s.bytes) },
						{ name: "Isolation", cell: (s) => <Isolation of={s.isolation} /> },
						{
							name: "Made from it",
							cell: (s) => (
								<ul>
									{made(s.id).map((x) => (
										<li key={x.id}>
											<MachineLink id={x.id} name={x.name} />
										</li>
									))}
								</ul>
							),
						},
						{
							name: "Actions",
							cell: (s) => (
								<span className="flex flex-wrap gap-1">
									<button
										type="button"
										className="button"
										disabled={!!lacks}
										title={lacks || undefined}
										onClick={() => setAsked({ verb: "make", of: s })}
									>
										New machine from it…
									</button>
									<button
										type="button"
										className="button danger"
										disabled={!!lacks}
										title={lacks || undefined}
										onClick={() => setAsked({ verb: "delete", of: s })}
									>
										Delete…
									</button>
								</span>
							),
						},
					]}
				/>
			)}
			{asked?.verb === "delete" && <Delete of={asked.of} machine={nameOf(m)} onClose={() => setAsked(null)} />}
			{asked?.verb === "make" && <Make of={asked.of} onClose={() => setAsked(null)} />}
		</section>
	);
}

function Delete({ of: s, machine, onClose }: { of: Snapshot; machine: string; onClose(): void }) {
	const client = useQueryClient();
	const del = useMutation({
		mutationFn: () => call(`/v1/snapshots/${encodeURIComponent(s.id)}`, { method: "DELETE" }),
		onSuccess: async () => {
			await client.invalidateQueries({ queryKey: ["snapshots"] });
			onClose();
		},
	});
	return (
		<Dialog
			title={`Delete the snapshot ${s.name || s.id}`}
			open
			onClose={onClose}
			text="Machines that were made from it go on; no more can be made."
		>
			<p>
				Of <Safe>{machine}</Safe>, taken {clock(s.created_at)}, {bytes(s.bytes)}.
			</p>
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

function Make({ of: s, onClose }: { of: Snapshot; onClose(): void }) {
	const [name, setName] = useState("");
	const once = useRef(key());
	const client = useQueryClient();
	const [, go] = useLocation();
	const make = useMutation({
		mutationFn: () =>
			call<Sandbox>("/v1/sandboxes", {
				method: "POST",
				headers: { "Idempotency-Key": once.current },
				body: { from: s.id, name: name.trim() || undefined },
			}),
		onSuccess: async (made) => {
			await client.invalidateQueries({ queryKey: ["sandboxes"] });
			go(`/vms/${made.id}`);
		},
	});
	return (
		<Dialog
			title={`New machine from ${s.name || s.id}`}
			open
			onClose={onClose}
			text={s.memory ? "It goes on with what ran then." : "It boots with the files that were there then."}
		>
			<form
				className="flex flex-col gap-3"
				onSubmit={(e) => {
					e.preventDefault();
					make.mutate();
				}}
			>
				<Field label="Name (may be left out)">
					<input
						className="field"
						maxLength={64}
						value={name}
						onChange={(e) => {
							once.current = key();
							setName(e.target.value);
						}}
					/>
				</Field>
				{make.error && <ProblemBox of={make.error} />}
				<div className="flex justify-end gap-2">
					<button type="button" className="button" onClick={onClose}>
						Cancel
					</button>
					<button type="submit" className="button main" disabled={make.isPending}>
						{make.isPending ? "Making…" : "Make it"}
					</button>
				</div>
			</form>
		</Dialog>
	);
}
