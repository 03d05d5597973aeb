// Two revisions of a run's files, or two runs that share a beginning, side by side: what they
// changed, what they used.

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { get } from "../api/http";
import type { Run, Schemas } from "../api/types";
import { clock, duration, money, plural } from "../ui/format";
import { NoPage, ProblemBox } from "../ui/problem";
import { Skeleton } from "../ui/skeleton";
import { State } from "../ui/state";
import { Page, Scroll } from "../ui/table";
import { clip, Safe } from "../ui/text";
import { useParam } from "../ui/url";
import { actions, type Change, keyOf } from "../undo/paths";
import { count } from "../undo/rows";
import { onlyLooks } from "../undo/store";
import { historyOf, type Revision, useDiff } from "../workspace/changes-data";
import { DiffView } from "../workspace/changes-diff";
import { whoOf } from "../workspace/changes-revisions";
import { commonOf, pair, type Side, sideOf, spentAt, sumOf, tipOf } from "./compare-data";
import { useRun } from "./store";

const revisionsMax = 1000;

const useOneRun = (id: string) =>
	useQuery({ queryKey: ["runs", id], queryFn: () => get<Run>(`/v1/runs/${encodeURIComponent(id)}`), enabled: !!id });

const useHistory = (sandbox: string) =>
	useQuery({
		queryKey: ["history", sandbox, "compare"],
		queryFn: ({ signal }) => get<Schemas["RevisionPage"]>(`${historyOf(sandbox)}?page_size=${revisionsMax}`, signal),
		enabled: !!sandbox,
	});

export default function ComparePage({ id }: { id: string }) {
	const [a] = useParam("a");
	const [b] = useParam("b");
	const run = useOneRun(id);
	const sides = [sideOf(a, id), sideOf(b, id)] as const;
	if (run.error) return <NoPage of={run.error} what="run" again={() => void run.refetch()} />;
	if (!run.data) return <Skeleton label="Loading the comparison" />;
	return (
		<Page
			title={
				<>
					Compare in{" "}
					<Link href={`/runs/${id}`} className="text-accent underline underline-offset-2">
						<Safe>{clip(run.data.title || id, 120)}</Safe>
					</Link>
				</>
			}
		>
			<Sides run={run.data} a={sides[0]} b={sides[1]} />
		</Page>
	);
}

function Sides({ run, a, b }: { run: Run; a: Side | null; b: Side | null }) {
	if (!a || !b)
		return (
			<p>The address names no two revisions and no two runs: ?a=88&amp;b=96 compares revisions, ?b=run_… this run with another one.</p>
		);
	if ("n" in a && "n" in b) return <Revisions run={run} a={a.n} b={b.n} />;
	if ("run" in a && "run" in b && a.run !== b.run) return <Runs a={a.run} b={b.run} />;
	return <p>A revision is compared with a revision, and a run with another run.</p>;
}

function Revisions({ run, a, b }: { run: Run; a: number; b: number }) {
	const sandbox = run.sandbox ?? "";
	const history = useHistory(sandbox);
	const { store, view } = useRun(run.id);
	const diff = useDiff(sandbox, a, b, !sandbox);
	if (!sandbox) return <p>This run had no machine, so there are no files to compare.</p>;
	const revs = history.data?.items ?? [];
	const error = history.error ?? diff.error;
	const columns = [a, b].map((n) => {
		const rev = revs.find((r) => r.n === n);
		return { n, rev, spent: rev && view ? spentAt(store, run.thread, rev.time) : null };
	});
	const [from, to] = [columns[0]!.spent, columns[1]!.spent];
	const unknown = view ? "not known here" : "…";
	return (
		<>
			{error && <ProblemBox of={error} />}
			<Facts
				names={[`Revision #${a}`, `Revision #${b}`]}
				rows={[
					["What", ...columns.map((c) => (c.rev ? <Safe key={c.n}>{c.rev.title}</Safe> : "…"))],
					["By", ...columns.map((c) => (c.rev ? whoOf(c.rev) : "…"))],
					["Made at", ...columns.map((c) => (c.rev ? clock(c.rev.time) : "…"))],
					["Steps until then", ...columns.map((c) => c.spent?.step ?? unknown)],
					["Cost until then", ...columns.map((c) => (c.spent ? money(c.spent.costUSD) : unknown))],
					["Time until then", ...columns.map((c) => (c.spent ? duration(c.spent.ms) : unknown))],
				]}
			/>
			{from && to && (
				<p role="status">
					Between them: {plural(Math.abs(to.step - from.step), "step")}, {money(Math.abs(to.costUSD - from.costUSD))},{" "}
					{duration(Math.abs(to.ms - from.ms))}.
				</p>
			)}
			<Lines title={`What changed from #${a} to #${b}`} sandbox={sandbox} diff={diff.data} revs={revs} />
		</>
	);
}

function Runs({ a, b }: { a: string; b: string }) {
	const runs = [useOneRun(a), useOneRun(b)] as const;
	const [first, second] = [runs[0].data, runs[1].data];
	const histories = [useHistory(first?.sandbox ?? ""), useHistory(second?.sandbox ?? "")] as const;
	const [revsA, revsB] = [histories[0].data?.items ?? [], histories[1].data?.items ?? []];
	const tips = [tipOf(revsA, a), tipOf(revsB, b)] as const;
	const ready = !!tips[0] && !!tips[1];
	const common = ready ? commonOf(revsA, revsB, Math.min(tips[0]!.n, tips[1]!.n)) : 0;
	const diffs = [
		useDiff(first?.sandbox ?? "", common, tips[0]?.n, !ready),
		useDiff(second?.sandbox ?? "", common, tips[1]?.n, !ready),
	] as const;
	const error = [...runs, ...histories, ...diffs].find((q) => q.error)?.error;
	const sums = diffs.map((d) => sumOf(d.data));
	const same = ready && tips[0]!.root === tips[1]!.root;
	const facts = [first, second].map((r) => (r ? factsOf(r) : ["…", "…", "…", "…"]));
	return (
		<>
			{error && <ProblemBox of={error} />}
			<Facts
				names={[<RunLink key="a" run={first} id={a} />, <RunLink key="b" run={second} id={b} />]}
				rows={[
					...["State", "Steps", "Cost", "Time"].map((name, i): [string, ReactNode, ReactNode] => [name, facts[0]![i], facts[1]![i]]),
					["Last revision", ...tips.map((t) => (t ? `#${t.n}` : "none"))],
					["Lines", ...sums.map((s, i) => (diffs[i]!.data ? <Signs key={String(i)} {...s} /> : "…"))],
				]}
			/>
			{ready && (
				<p role="status">
					{same
						? "Their files are the same."
						: common
							? `Each is compared with #${common}, the last revision that they share.`
							: "They share no revision: each is compared with the empty workspace."}
				</p>
			)}
			{diffs[0].data && diffs[1].data && !same && (
				<>
					<Paths a={diffs[0].data.files ?? []} b={diffs[1].data.files ?? []} />
					<Lines title="What the first changed" sandbox={first!.sandbox!} diff={diffs[0].data} revs={revsA} />
					<Lines title="What the second changed" sandbox={second!.sandbox!} diff={diffs[1].data} revs={revsB} />
				</>
			)}
		</>
	);
}

const factsOf = (r: Run): ReactNode[] => [
	<State key="state" of={r.state} />,
	r.steps,
	money(r.cost_usd),
	duration((r.ended_at ? Date.parse(r.ended_at) : Date.now()) - Date.parse(r.created_at)),
];

function RunLink({ run, id }: { run: Run | undefined; id: string }) {
	return (
		<Link href={`/runs/${id}`} className="text-accent underline underline-offset-2">
			<Safe>{clip(run?.title || id, 80)}</Safe>
		</Link>
	);
}

function Signs({ added, removed }: { added: number; removed: number }) {
	return (
		<span className="whitespace-nowrap tabular-nums">
			<span className="text-good">+{added}</span> <span className="text-bad">−{removed}</span>
		</span>
	);
}

/** Facts is a table of two columns. */
function Facts({ names, rows }: { names: ReactNode[]; rows: ReactNode[][] }) {
	return (
		<Scroll label="The two sides">
			<table className="table" aria-label="The two sides">
				<thead>
					<tr>
						<td />
						{names.map((n, i) => (
							<th key={String(i)} scope="col">
								{n}
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{rows.map(([name, ...cells]) => (
						<tr key={String(name)}>
							<th scope="row">{name}</th>
							{cells.map((c, i) => (
								<td key={String(i)}>{c}</td>
							))}
						</tr>
					))}
				</tbody>
			</table>
		</Scroll>
	);
}

const pathsMax = 500;

/** Paths says of each path which side changed it. */
function Paths({ a, b }: { a: Change[]; b: Change[] }) {
	const all = pair(a, b);
	const side = (f: Change | undefined) =>
		f ? (
			<>
				{actions[f.action]} <Signs {...count(f.hunks)} />
			</>
		) : (
			<span className="text-quiet">as it was</span>
		);
	return (
		<Scroll label="Paths">
			<table className="table" aria-label="Paths">
				<thead>
					<tr>
						{["Path", "The first", "The second", "Both"].map((h) => (
							<th key={h} scope="col">
								{h}
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{all.slice(0, pathsMax).map((p) => (
						<tr key={keyOf(p.path)}>
							<td className="w-full min-w-40 [overflow-wrap:anywhere]">
								<bdi className="font-mono">
									<Safe>{p.path.path}</Safe>
								</bdi>
							</td>
							<td className="whitespace-nowrap">{side(p.a)}</td>
							<td className="whitespace-nowrap">{side(p.b)}</td>
							<td>{p.a && p.b ? (p.same ? "the same" : "differ") : ""}</td>
						</tr>
					))}
				</tbody>
			</table>
			{all.length > pathsMax && <p className="text-quiet">and {all.length - pathsMax} more, in the lines below</p>}
		</Scroll>
	);
}

interface LinesProps {
	title: string;
	sandbox: string;
	diff: Schemas["Diff"] | undefined;
	revs: Revision[];
}

function Lines({ title, sandbox, diff, revs }: LinesProps) {
	if (!diff) return null;
	const root = (n: number) => revs.find((r) => r.n === n)?.root ?? String(n);
	return (
		<section aria-label={title} className="@container flex flex-col">
			<h2 className="font-semibold">{title}</h2>
			<div className="flex h-[60vh] min-h-64 flex-col rounded-md border border-line">
				<DiffView
					sandbox={sandbox}
					diff={diff}
					trees={`${root(diff.from)} ${root(diff.to)}`}
					restore={0}
					refused={onlyLooks}
					hidden={false}
				/>
			</div>
		</section>
	);
}
