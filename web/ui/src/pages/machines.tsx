// The table of machines, all that are there in whatever state.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link } from "wouter";
import { get, query } from "../api/http";
import { type Page as ListPage, useInfo } from "../api/queries";
import type { Sandbox } from "../api/types";
import { ago, bytes, duration } from "../ui/format";
import { Isolation, State } from "../ui/state";
import { type Column, Facets, Page, Table } from "../ui/table";
import { Refused, useLacking } from "../ui/table-scope";
import { Safe } from "../ui/text";
import { useParam } from "../ui/url";
import { counted, found, left, nameOf, states, why } from "./machines-actions";
import { Create } from "./machines-create";
import { ActionMenu, Bulk, Doing, MachineLink, Machinery, Trouble, useMoving } from "./machines-do";

const pageSize = 500;
const pagesMax = 4;

interface All {
	items: Sandbox[];
	/** cut: there are more than were asked for. */
	cut: boolean;
}

async function list(state: string): Promise<All> {
	const items: Sandbox[] = [];
	let token: string | undefined;
	for (let i = 0; i < pagesMax; i++) {
		const page = await get<ListPage<Sandbox>>(`/v1/sandboxes${query({ page_size: pageSize, page_token: token, state })}`);
		items.push(...(page.items ?? []));
		token = page.next_page_token;
		if (!token) return { items, cut: false };
	}
	return { items, cut: true };
}

/** useMachines are all machines; state destroyed shows those that are gone, without it all others. */
export const useMachines = (state = "") =>
	useQuery({ queryKey: ["sandboxes", "all", state], queryFn: () => list(state), placeholderData: keepPreviousData });

export default function MachinesPage() {
	const [state, setState] = useParam("state");
	const [text, setText] = useParam("q");
	const gone = state === "destroyed";
	const all = useMachines();
	const past = useQuery({ queryKey: ["sandboxes", "all", "destroyed"], queryFn: () => list("destroyed"), enabled: gone });
	const shown = gone ? past : all;
	const [chosen, setChosen] = useState<Set<string>>(new Set());
	const [creating, setCreating] = useState(false);
	const lacks = useLacking("write");
	const counts = counted(all.data?.items ?? []);
	const items = (shown.data?.items ?? []).filter((s) => (!state || s.state === state) && found(s, text));
	const picked = items.filter((s) => chosen.has(s.id));
	return (
		<Machinery>
			<Page
				title="Machines"
				actions={
					<button type="button" className="button main" disabled={!!lacks} title={lacks || undefined} onClick={() => setCreating(true)}>
						New machine
					</button>
				}
			>
				<Totals />
				<div className="flex min-w-0 flex-wrap items-center gap-2">
					<Facets
						label="Show machines that are"
						on={state}
						onPick={(v) => {
							setChosen(new Set());
							setState(v);
						}}
						of={[
							["", "all", all.data?.items.length],
							...states.map((s): [string, React.ReactNode, number] => [s, <State key={s} of={s} />, counts[s] ?? 0]),
							["destroyed", <State key="destroyed" of="destroyed" />],
						]}
					/>
					<input
						type="search"
						className="field min-w-0 flex-1"
						aria-label="Find machines"
						placeholder="name, id, template, provider, run"
						value={text}
						onChange={(e) => setText(e.target.value)}
					/>
				</div>
				<Bulk list={picked} onNone={() => setChosen(new Set())} />
				{shown.error && <Refused of={shown.error} want="read" what="Machines" again={() => void shown.refetch()} />}
				{shown.data?.cut && <p className="text-quiet">The newest {pageSize * pagesMax} are shown; there are older ones.</p>}
				{shown.data && (
					<MachineTable
						items={items}
						chosen={new Set(picked.map((s) => s.id))}
						onChoose={gone ? undefined : setChosen}
						empty={<Empty all={all.data?.items.length ?? 0} />}
					/>
				)}
			</Page>
			{creating && <Create onClose={() => setCreating(false)} />}
		</Machinery>
	);
}

function Empty({ all }: { all: number }) {
	return all ? (
		<p>No machine is like that. {all} are hidden by the filter.</p>
	) : (
		<p>
			No machines here. Runs make their own; make one above, or <code>skete vm create --name web</code>.
		</p>
	);
}

/** Totals say what there is of what the tenant may have. */
function Totals() {
	const info = useInfo().data;
	if (!info) return null;
	const { limits: l, used: u } = info;
	const part = (n: number, max: number, unit: string) => `${n}${max ? ` of ${max}` : ""} ${unit}`;
	return (
		<p className="text-quiet tabular-nums">
			{[
				part(u.sandboxes, l.sandboxes, "machines"),
				part(u.cpus, l.tenant_cpus, "CPUs run"),
				part(u.memory_mb, l.tenant_memory_mb, "MB of memory run"),
				`${bytes(u.disk_held_mb * 1e6)} of disk held${l.tenant_disk_mb ? ` of ${bytes(l.tenant_disk_mb * 1e6)}` : ""}`,
			].join(" · ")}
		</p>
	);
}

/** useNow is the time, a few times a minute. */
function useNow(everyMS: number): number {
	const [now, setNow] = useState(() => Date.now());
	useEffect(() => {
		const t = setInterval(() => setNow(Date.now()), everyMS);
		return () => clearInterval(t);
	}, [everyMS]);
	return now;
}

const columns = (now: number): Column<Sandbox>[] => [
	{
		name: "State",
		cell: (s) => (
			<span className="flex flex-col">
				<State of={s.state} />
				<Doing id={s.id} />
				{why(s) && (
					<span className="max-w-48 break-words text-quiet">
						<Safe>{why(s)}</Safe>
					</span>
				)}
			</span>
		),
	},
	{
		name: "Name",
		wide: true,
		cell: (s) => (
			<span className="flex flex-col">
				<MachineLink id={s.id} name={s.name} />
				{s.name && <code className="text-quiet">{s.id}</code>}
			</span>
		),
	},
	{
		name: "Isolation",
		cell: (s) => (
			<span className="whitespace-nowrap">
				<Isolation of={s.isolation} /> <span className="text-quiet">{s.provider}</span>
			</span>
		),
	},
	{ name: "Template", cell: (s) => <Safe>{s.template}</Safe> },
	{ name: "CPUs", number: true, cell: (s) => s.cpus },
	{ name: "Memory", number: true, cell: (s) => `${s.memory_mb} MB` },
	{ name: "Disk", number: true, cell: (s) => `${s.disk_mb} MB` },
	{ name: "Network", cell: (s) => s.network },
	{ name: "Time left", number: true, cell: (s) => (s.state === "destroyed" ? "" : left(s, now, duration)) },
	{
		name: "Made",
		cell: (s) => (
			<span className="whitespace-nowrap">
				<time dateTime={s.created_at} title={s.created_at} className="text-quiet">
					{ago(s.created_at, now)}
				</time>
				{s.run && (
					<>
						{" for "}
						<Link href={`/runs/${s.run}`} className="text-accent underline underline-offset-2">
							{s.run.slice(0, 12)}
						</Link>
					</>
				)}
			</span>
		),
	},
	{ name: "Actions", cell: (s) => <ActionMenu of={s} /> },
];

interface TableProps {
	items: Sandbox[];
	chosen: Set<string>;
	onChoose?(c: Set<string>): void;
	empty: React.ReactNode;
}

function MachineTable({ items, chosen, onChoose, empty }: TableProps) {
	const now = useNow(5000);
	const failed = useMoving().failed;
	return (
		<Table
			label="machines"
			columns={columns(now)}
			rows={items}
			id={(s) => s.id}
			name={nameOf}
			chosen={chosen}
			onChoose={onChoose}
			below={(s) => (failed.has(s.id) ? <Trouble id={s.id} /> : null)}
			empty={empty}
		/>
	);
}
