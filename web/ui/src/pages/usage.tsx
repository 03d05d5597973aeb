// What runs and machines used.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { get, query } from "../api/http";
import type { Page as ListPage } from "../api/queries";
import type { Run, Sandbox } from "../api/types";
import { clock, count, money, plural } from "../ui/format";
import { type Column, Facets, Page, Table } from "../ui/table";
import { csv, save } from "../ui/table-csv";
import { Refused } from "../ui/table-scope";
import { Safe } from "../ui/text";
import { useParam } from "../ui/url";
import { useMachines } from "./machines";
import { nameOf } from "./machines-actions";
import { MachineLink } from "./machines-do";
import { fold, hours, type Sum, total, type Way, ways, wholeDays } from "./usage-fold";

const pageSize = 500;
const pagesMax = 4;

interface Runs {
	items: Run[];
	cut: boolean;
}

async function newest(): Promise<Runs> {
	const items: Run[] = [];
	let token: string | undefined;
	for (let i = 0; i < pagesMax; i++) {
		const page = await get<ListPage<Run>>(`/v1/runs${query({ page_size: pageSize, page_token: token })}`);
		items.push(...(page.items ?? []));
		token = page.next_page_token;
		if (!token) return { items, cut: false };
	}
	return { items, cut: true };
}

export default function UsagePage() {
	const runs = useQuery({ queryKey: ["used", "runs"], queryFn: newest, placeholderData: keepPreviousData, staleTime: 60_000 });
	const [param, setBy] = useParam("by");
	const by: Way = ways.find((w) => w === param) ?? "day";
	const items = runs.data?.items ?? [];
	const sums = fold(items, by);
	const oldest = items.at(-1);
	return (
		<Page
			title="Usage"
			actions={
				<>
					<button type="button" className="button" disabled={runs.isFetching} onClick={() => void runs.refetch()}>
						{runs.isFetching ? "Counting…" : "Count again"}
					</button>
					<button type="button" className="button" disabled={!items.length} onClick={() => save(`usage-by-${by}.csv`, sumsCSV(by, sums))}>
						CSV
					</button>
				</>
			}
		>
			<Facets label="Runs by" on={by} onPick={(v) => setBy(v === "day" ? "" : v)} of={ways.map((w): [string, string] => [w, `by ${w}`])} />
			{runs.error && <Refused of={runs.error} want="read" what="Runs and what they used" again={() => void runs.refetch()} />}
			{runs.data && !items.length && <p>No runs yet, so nothing was used.</p>}
			{items.length > 0 && (
				<>
					<Total of={total(items)} />
					<p className="text-quiet">
						{runs.data?.cut
							? `Of the newest ${count(items.length)} runs, begun since ${clock(oldest!.created_at)}: older ones are left out.`
							: `All runs that are kept: ${items.length}.`}{" "}
						What sub-agents used is in the runs that they worked for. A run counts on the day it began.
					</p>
					<Chart by={by} sums={by === "day" ? wholeDays(sums) : sums} />
					<Table label={`usage by ${by}`} rows={by === "day" ? [...sums].reverse() : sums} id={(s) => s.name} columns={columns(by)} />
				</>
			)}
			<Machines />
		</Page>
	);
}

function Total({ of: s }: { of: Sum }) {
	return (
		<p className="flex flex-wrap gap-x-6 tabular-nums">
			<strong>{money(s.usd)}</strong>
			<span>{plural(s.runs, "run")}</span>
			<span>{count(s.steps)} steps</span>
			<span>{count(s.input)} tokens in</span>
			<span>{count(s.cached)} from caches</span>
			<span>{count(s.output)} out</span>
			{s.estimated && <span className="text-warn">some tokens are estimated</span>}
		</p>
	);
}

const columns = (by: Way): Column<Sum>[] => [
	{ name: by === "day" ? "Day" : by === "agent" ? "Agent" : "Model", wide: true, cell: (s) => <Safe>{s.name}</Safe> },
	{ name: "Runs", number: true, cell: (s) => s.runs },
	{ name: "Steps", number: true, cell: (s) => s.steps },
	{ name: "Tokens in", number: true, cell: (s) => s.input },
	{ name: "From caches", number: true, cell: (s) => s.cached },
	{ name: "Tokens out", number: true, cell: (s) => s.output },
	{ name: "Cost", number: true, cell: (s) => money(s.usd) },
	{ name: "", cell: (s) => (s.estimated ? <span className="text-warn">estimated</span> : "") },
];

/** sumsCSV is what the table shows, with whole numbers. */
export function sumsCSV(by: Way, sums: Sum[]): string {
	return csv(
		[by, "runs", "steps", "tokens_in", "tokens_cached", "tokens_out", "cost_usd", "estimated"],
		sums.map((s) => [s.name, s.runs, s.steps, s.input, s.cached, s.output, Number(s.usd.toFixed(6)), s.estimated ? "yes" : "no"]),
	);
}

const barsMax = 40;

/** Chart draws the costs, or the tokens where nothing costs; the table beneath says the same to all. */
function Chart({ by, sums }: { by: Way; sums: Sum[] }) {
	const shown = by === "day" ? sums.slice(-barsMax) : sums.slice(0, barsMax);
	const costs = shown.some((s) => s.usd > 0);
	const value = (s: Sum) => (costs ? s.usd : s.input + s.output + s.cached);
	const words = (n: number) => (costs ? money(n) : count(n));
	const most = Math.max(...shown.map(value));
	if (!(most > 0)) return <p className="text-quiet">Nothing to draw: no tokens and no costs were told.</p>;
	const width = 800;
	const high = 120;
	const step = width / Math.max(shown.length, 10);
	return (
		<figure className="min-w-0">
			<figcaption className="text-quiet">
				{costs ? "Cost" : "Tokens"} by {by}, the most {words(most)}
				{shown.length < sums.length && `; ${sums.length - shown.length} are in the table alone`}
			</figcaption>
			<svg viewBox={`0 0 ${width} ${high}`} preserveAspectRatio="none" className="h-32 w-full border-line border-b" aria-hidden="true">
				{shown.map((s, i) => {
					const h = (value(s) / most) * (high - 4);
					return (
						<rect key={s.name} x={i * step + step * 0.1} y={high - h} width={step * 0.8} height={h} fill="var(--accent)">
							<title>{`${s.name}: ${words(value(s))}`}</title>
						</rect>
					);
				})}
			</svg>
			<div className="flex justify-between text-quiet" aria-hidden="true">
				<span>{shown[0]?.name}</span>
				{by === "day" && shown.length > 1 && <span>{shown.at(-1)?.name}</span>}
			</div>
		</figure>
	);
}

function Machines() {
	const machines = useMachines();
	const now = Date.now();
	const items = (machines.data?.items ?? []).filter((m) => m.state !== "destroyed");
	if (!items.length) return null;
	const held = items.map((m) => ({ m, h: hours(m, now) })).sort((a, b) => b.h * b.m.cpus - a.h * a.m.cpus);
	const rows = held.slice(0, 100);
	return (
		<section aria-label="Machines" className="flex min-w-0 flex-col gap-2">
			<div className="flex flex-wrap items-center gap-2">
				<h2 className="flex-1 font-semibold">Machines that are there now</h2>
				<button type="button" className="button" onClick={() => save("machines.csv", machinesCSV(items, now))}>
					CSV
				</button>
			</div>
			<p className="text-quiet">
				Hours since each was last started; those before, and those of machines that are gone, are not kept.
				{held.length > rows.length && ` The CSV has ${held.length - rows.length} more.`}
			</p>
			<Table
				label="what machines hold"
				rows={rows}
				id={({ m }) => m.id}
				columns={[
					{ name: "Machine", wide: true, cell: ({ m }) => <MachineLink id={m.id} name={nameOf(m)} /> },
					{ name: "State", cell: ({ m }) => m.state },
					{ name: "Hours", number: true, cell: ({ h }) => h.toFixed(2) },
					{ name: "CPU hours", number: true, cell: ({ m, h }) => (h * m.cpus).toFixed(2) },
					{ name: "GB hours", number: true, cell: ({ m, h }) => ((h * m.memory_mb) / 1024).toFixed(2) },
				]}
			/>
		</section>
	);
}

export function machinesCSV(list: Sandbox[], now: number): string {
	return csv(
		["id", "name", "state", "provider", "isolation", "template", "run", "cpus", "memory_mb", "disk_mb", "hours", "created_at"],
		list.map((m) => [
			m.id,
			m.name,
			m.state,
			m.provider,
			m.isolation,
			m.template,
			m.run,
			m.cpus,
			m.memory_mb,
			m.disk_mb,
			Number(hours(m, now).toFixed(4)),
			m.created_at,
		]),
	);
}
