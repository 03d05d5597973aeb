// What runs and machines used.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { get, query } from "../api/http";
import type { Sandbox } from "../api/types";
import { clock, count, money, plural } from "../ui/format";
import { type Column, Facets, Page, Table } from "../ui/table";
import { csv, save } from "../ui/table-csv";
import { Refused } from "../ui/table-scope";
import { clip, Safe } from "../ui/text";
import { useParam } from "../ui/url";
import { useMachines } from "./machines";
import { nameOf } from "./machines-actions";
import { MachineLink } from "./machines-do";
import { hours, type Report, type Row, since, spans, tokensIn, type Way, ways, wholeDays } from "./usage-fold";

export default function UsagePage() {
	const [param, setBy] = useParam("by");
	const [span, setSpan] = useParam("days");
	const by: Way = ways.find((w) => w === param) ?? "day";
	const days = Object.hasOwn(spans, span) ? Number(span) : 30;
	const report = useQuery({
		queryKey: ["used", by, days],
		queryFn: () => get<Report>(`/v1/usage${query({ by, from: since(days, Date.now()) })}`),
		placeholderData: keepPreviousData,
	});
	const r = report.data;
	const rows = r?.items ?? [];
	return (
		<Page
			title="Usage"
			actions={
				<>
					<button type="button" className="button" disabled={report.isFetching} onClick={() => void report.refetch()}>
						{report.isFetching ? "Counting…" : "Count again"}
					</button>
					<button type="button" className="button" disabled={!rows.length} onClick={() => save(`usage-by-${by}.csv`, rowsCSV(by, rows))}>
						CSV
					</button>
				</>
			}
		>
			<div className="flex min-w-0 flex-wrap items-center gap-2">
				<Facets
					label="Runs by"
					on={by}
					onPick={(v) => setBy(v === "day" ? "" : v)}
					of={ways.map((w): [string, string] => [w, `by ${w}`])}
				/>
				<label className="flex items-center gap-2">
					In the last
					<select className="field" value={String(days)} onChange={(e) => setSpan(e.target.value === "30" ? "" : e.target.value)}>
						{Object.entries(spans).map(([value, text]) => (
							<option key={value} value={value}>
								{text}
							</option>
						))}
					</select>
				</label>
			</div>
			{report.error && <Refused of={report.error} want="read" what="What runs used" again={() => void report.refetch()} />}
			{r && !rows.length && <p>No run began in this time, so nothing was used.</p>}
			{r && rows.length > 0 && (
				<>
					<Total of={r.total} />
					<p className="text-quiet">
						Runs that began from {clock(r.from)} to {clock(r.to)}; days are those of UTC. What sub-agents used is in the runs that they
						worked for.
						{!!r.left_out && ` ${plural(r.left_out, "row")} not listed: the oldest, or the least expensive. The sum has them.`}
					</p>
					<Chart by={r.by} rows={r.by === "day" ? wholeDays(rows) : rows} />
					<Table
						label={`usage by ${r.by}`}
						rows={r.by === "day" ? wholeDays(rows).reverse() : rows}
						id={(x) => x.key ?? ""}
						columns={columns(r.by)}
					/>
				</>
			)}
			<Machines />
		</Page>
	);
}

function Total({ of: r }: { of: Row }) {
	return (
		<p className="flex flex-wrap gap-x-6 tabular-nums">
			<strong>{money(r.cost_usd)}</strong>
			<span>{plural(r.runs, "run")}</span>
			<span>{count(r.steps)} steps</span>
			<span>{count(tokensIn(r))} tokens in</span>
			<span>{count(r.usage.cache_read ?? 0)} from caches</span>
			<span>{count(r.usage.output)} out</span>
			{r.usage.estimated && <span className="text-warn">some tokens are estimated</span>}
		</p>
	);
}

const keyNames: Record<Way, string> = { day: "Day (UTC)", agent: "Agent", model: "Model", run: "Run" };

function Key({ of: r, by }: { of: Row; by: Way }) {
	if (by !== "run") return <Safe>{r.key || "not known"}</Safe>;
	return (
		<Link href={`/runs/${r.key}`} className="text-accent underline-offset-2 hover:underline">
			<Safe>{clip(r.title || r.key || "", 120)}</Safe>
		</Link>
	);
}

const columns = (by: Way): Column<Row>[] => [
	{ name: keyNames[by], wide: true, cell: (r) => <Key of={r} by={by} /> },
	{ name: "Runs", number: true, cell: (r) => r.runs },
	{ name: "Steps", number: true, cell: (r) => r.steps },
	{ name: "Tokens in", number: true, cell: tokensIn },
	{ name: "From caches", number: true, cell: (r) => r.usage.cache_read ?? 0 },
	{ name: "Tokens out", number: true, cell: (r) => r.usage.output },
	{ name: "Cost", number: true, cell: (r) => money(r.cost_usd) },
	{ name: "Counted", cell: (r) => (r.usage.estimated ? <span className="text-warn">estimated</span> : r.runs ? "by the model" : "") },
];

/** rowsCSV is what the table shows, with whole numbers. */
export function rowsCSV(by: Way, rows: Row[]): string {
	return csv(
		[by, "title", "runs", "steps", "tokens_in", "tokens_cached", "tokens_out", "cost_usd", "estimated"],
		rows.map((r) => [
			r.key,
			r.title,
			r.runs,
			r.steps,
			tokensIn(r),
			r.usage.cache_read ?? 0,
			r.usage.output,
			Number(r.cost_usd.toFixed(6)),
			r.usage.estimated ? "yes" : "no",
		]),
	);
}

const barsMax = 40;

/** Chart draws the costs, or the tokens where nothing costs; the table beneath says the same to all. */
function Chart({ by, rows }: { by: Way; rows: Row[] }) {
	const shown = by === "day" ? rows.slice(-barsMax) : rows.slice(0, barsMax);
	const costs = shown.some((s) => s.cost_usd > 0);
	const value = (s: Row) => (costs ? s.cost_usd : s.tokens);
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
				{shown.length < rows.length && `; ${rows.length - shown.length} are in the table alone`}
			</figcaption>
			<svg viewBox={`0 0 ${width} ${high}`} preserveAspectRatio="none" className="h-32 w-full border-line border-b" aria-hidden="true">
				{shown.map((s, i) => {
					const h = (value(s) / most) * (high - 4);
					return (
						<rect key={s.key} x={i * step + step * 0.1} y={high - h} width={step * 0.8} height={h} fill="var(--accent)">
							<title>{`${s.title ?? s.key}: ${words(value(s))}`}</title>
						</rect>
					);
				})}
			</svg>
			<div className="flex justify-between text-quiet" aria-hidden="true">
				<span>{shown[0]?.title ?? shown[0]?.key}</span>
				{by === "day" && shown.length > 1 && <span>{shown.at(-1)?.key}</span>}
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
