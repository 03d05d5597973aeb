// The table of runs, and the composer that starts one.

import { lazy, Suspense, useState } from "react";
import { Link } from "wouter";
import { useAgents, useApprovals, useRuns } from "../api/queries";
import type { Run } from "../api/types";
import { ago, duration, money } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Skeleton } from "../ui/skeleton";
import { State } from "../ui/state";
import { clip, Safe } from "../ui/text";
import { useParam } from "../ui/url";
import { Composer, Pick } from "./home-composer";

// What is not there at first is loaded when it is wanted.
const FirstStart = lazy(() => import("./home-first").then((m) => ({ default: m.FirstStart })));
const CancelDialog = lazy(() => import("./home-cancel").then((m) => ({ default: m.CancelDialog })));

const states = ["", "running", "interrupted", "succeeded", "failed", "cancelled", "timed_out"] as const;

export function HomePage() {
	const [state, setState] = useParam("state");
	const [agent, setAgent] = useParam("agent");
	const [page, setPage] = useParam("page");
	const runs = useRuns({ state, agent, page_token: page });
	const items = runs.data?.items ?? [];
	const filtered = !!(state || agent || page);
	return (
		<div className="mx-auto flex w-full max-w-6xl flex-col gap-4 p-4">
			<h1 className="sr-only">Runs</h1>
			<Composer />
			{runs.data && !filtered && !items.length ? (
				<Suspense fallback={null}>
					<FirstStart />
				</Suspense>
			) : (
				<section aria-label="Runs" className="flex flex-col gap-3">
					<Filters state={state} setState={setState} agent={agent} setAgent={setAgent} />
					{runs.error && <ProblemBox of={runs.error} again={() => void runs.refetch()} />}
					{runs.data ? <RunTable runs={items} /> : !runs.error && <Skeleton label="Loading the runs" />}
					<nav aria-label="Pages" className="flex flex-wrap gap-2">
						{page && (
							<button type="button" className="button" onClick={() => setPage("", true)}>
								Newest runs
							</button>
						)}
						{runs.data?.next_page_token && (
							<button type="button" className="button" onClick={() => setPage(runs.data?.next_page_token ?? "", true)}>
								Older runs
							</button>
						)}
					</nav>
				</section>
			)}
		</div>
	);
}

interface FilterProps {
	state: string;
	setState(v: string): void;
	agent: string;
	setAgent(v: string): void;
}

function Filters({ state, setState, agent, setAgent }: FilterProps) {
	const agents = useAgents();
	const open = useApprovals().data?.items ?? [];
	const waiting = new Set(open.map((a) => a.run)).size;
	// A page belongs to the filter that it was asked with.
	const filter = (set: (v: string) => void) => (v: string) => {
		const q = new URLSearchParams(location.search);
		q.delete("page");
		history.replaceState(history.state, "", `${location.pathname}${q.size ? `?${q}` : ""}`);
		set(v);
	};
	return (
		<div className="flex flex-wrap items-center gap-x-4 gap-y-2">
			<fieldset className="flex flex-wrap gap-1">
				<legend className="sr-only">Show runs that are</legend>
				{states.map((s) => (
					<button
						key={s}
						type="button"
						aria-pressed={s === state}
						className={`button ${s === state ? "border-accent bg-accent-ground" : ""}`}
						onClick={() => filter(setState)(s)}
					>
						{s ? <State of={s} /> : "all"}
					</button>
				))}
			</fieldset>
			<Pick label="Agent" value={agent} onChange={filter(setAgent)} none="all" names={(agents.data?.items ?? []).map((a) => a.name)} />
			{waiting > 0 && (
				<Link href="/approvals" className="text-warn underline">
					{waiting === 1 ? "1 run needs you" : `${waiting} runs need you`}
				</Link>
			)}
		</div>
	);
}

const columns = ["State", "Title", "Agent", "Machine", "Steps", "Time", "Cost", "Began"];
const final = new Set(["succeeded", "failed", "cancelled", "timed_out"]);

function RunTable({ runs }: { runs: Run[] }) {
	const [ending, setEnding] = useState<Run | null>(null);
	if (!runs.length)
		return (
			<p className="text-quiet">
				No runs here. Write a task above, or <code>skete run &quot;Fix the failing test&quot;</code>.
			</p>
		);
	return (
		// biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys.
		<section className="relative overflow-x-auto" aria-label="Table of runs" tabIndex={0}>
			<table className="table">
				<thead>
					<tr>
						{columns.map((h) => (
							<th key={h} scope="col">
								{h}
							</th>
						))}
						<th scope="col">
							<span className="sr-only">Actions</span>
						</th>
					</tr>
				</thead>
				<tbody>
					{runs.map((r) => (
						<RunRow key={r.id} run={r} onCancel={() => setEnding(r)} />
					))}
				</tbody>
			</table>
			{ending && (
				<Suspense fallback={null}>
					<CancelDialog run={ending} onClose={() => setEnding(null)} />
				</Suspense>
			)}
		</section>
	);
}

function RunRow({ run: r, onCancel }: { run: Run; onCancel(): void }) {
	const until = r.ended_at ? new Date(r.ended_at).getTime() : Date.now();
	return (
		<tr>
			<td>
				<State of={r.state} word={r.waiting ? `needs you: ${r.waiting}` : undefined} />
			</td>
			<td className="w-full min-w-40">
				<Link href={`/runs/${r.id}`} className="text-accent underline-offset-2 hover:underline">
					<Safe>{clip(r.title || r.id, 120)}</Safe>
				</Link>
			</td>
			<td>
				<Safe>{r.agent}</Safe>
			</td>
			<td className="whitespace-nowrap">
				{r.sandbox && (
					<Link href={`/vms/${r.sandbox}`} className="underline-offset-2 hover:underline">
						{r.sandbox.slice(0, 12)}
					</Link>
				)}
			</td>
			<td>{r.steps}</td>
			<td className="whitespace-nowrap">{duration(until - new Date(r.created_at).getTime())}</td>
			<td>{money(r.cost_usd)}</td>
			<td className="whitespace-nowrap text-quiet">
				<time dateTime={r.created_at} title={r.created_at}>
					{ago(r.created_at)}
				</time>
			</td>
			<td>
				{!final.has(r.state) && (
					<button type="button" className="button" onClick={onCancel} aria-label={`Cancel ${clip(r.title || r.id, 60)}`}>
						Cancel
					</button>
				)}
			</td>
		</tr>
	);
}
