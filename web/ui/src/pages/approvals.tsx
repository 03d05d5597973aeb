// All that waits for a person, in all runs, oldest first.

import { useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { get } from "../api/http";
import type { Approval, Run, RunEventPage } from "../api/types";
import { type Ask, byAge } from "../approvals/call";
import { AllCalls } from "../approvals/card";
import type { EventData } from "../run/events";
import { plural } from "../ui/format";
import { ProblemBox } from "../ui/problem";

const none: Approval[] = [];
const askAgainMS = 5000;
const keptMS = 30_000;

const keyOf = (a: Approval) => `${a.thread} ${a.call} ${a.seq}`;

/** decidedIn looks in the log of a run for who decided a call. */
export async function decidedIn(a: Approval): Promise<Ask["decided"]> {
	const page = await get<RunEventPage>(`/v1/runs/${a.run}/events?last=500`);
	for (const e of page.items ?? []) {
		const d = e.data as EventData["approval.decided"];
		if (e.kind === "approval.decided" && e.seq > a.seq && d.call === a.call) return { ...d, text: d.text ?? "", at: e.at };
	}
	return undefined;
}

/** useGone keeps what was decided elsewhere for a while, with who decided. */
function useGone(list: Approval[] | undefined, mine: ReadonlySet<string>): { approval: Approval; decided?: Ask["decided"] }[] {
	const before = useRef<Approval[]>([]);
	const [gone, setGone] = useState<{ approval: Approval; decided?: Ask["decided"] }[]>([]);
	useEffect(() => {
		if (!list) return;
		const here = new Set(list.map(keyOf));
		const left = before.current.filter((a) => !here.has(keyOf(a)) && !mine.has(keyOf(a)));
		before.current = list;
		for (const approval of left)
			void decidedIn(approval)
				.catch(() => undefined)
				.then((decided) => {
					setGone((old) => [...old, { approval, decided }]);
					setTimeout(() => setGone((old) => old.filter((g) => g.approval !== approval)), keptMS);
				});
	}, [list, mine]);
	return gone;
}

export default function ApprovalsPage() {
	const client = useQueryClient();
	const q = useQuery({
		queryKey: ["approvals"],
		queryFn: () => get<{ items: Approval[] | null }>("/v1/approvals"),
		refetchInterval: askAgainMS,
	});
	const [mine] = useState(() => new Set<string>());
	const list = q.data ? (q.data.items ?? none) : undefined;
	const gone = useGone(list, mine);
	const runs = useRunsOf([...(list ?? []), ...gone.map((g) => g.approval)]);
	const onSent = useCallback(
		(key: string) => {
			mine.add(key);
			void client.invalidateQueries({ queryKey: ["approvals"] });
		},
		[client, mine],
	);
	const ask = (a: Approval, over: Partial<Ask>): Ask => ({
		key: keyOf(a),
		run: a.run,
		thread: a.thread,
		agent: a.agent,
		tool: a.tool,
		at: a.asked_at,
		seq: a.seq,
		approval: a,
		writes: [],
		reads: [],
		machine: runs.get(a.run)?.sandbox ?? "",
		link: (
			<Link href={`/runs/${a.run}`} className="text-accent underline underline-offset-2">
				Open the run
			</Link>
		),
		...over,
	});
	const asks = [...(list ?? []).map((a) => ask(a, {})), ...gone.map((g) => ask(g.approval, { decided: g.decided, gone: true }))].sort(
		byAge,
	);
	return (
		<div className="mx-auto flex w-full max-w-4xl flex-col gap-3 p-4">
			<h1 className="text-base font-semibold">Approvals</h1>
			{q.error && <ProblemBox of={q.error} again={() => void q.refetch()} />}
			{list && (
				<p role="status" className="text-quiet">
					{list.length
						? `${plural(list.length, "call")} ${list.length === 1 ? "waits" : "wait"} for a person, the oldest first.`
						: "Nothing waits for a person."}
				</p>
			)}
			{list && !asks.length && (
				<p className="text-quiet">
					What agents ask for shows up here:{" "}
					<Link href="/" className="underline">
						start a run
					</Link>
					. In a terminal, <code>skete approve</code> lists the same and decides it.
				</p>
			)}
			{asks.length > 0 && <AllCalls asks={asks} onSent={onSent} />}
		</div>
	);
}

function useRunsOf(list: Approval[]): Map<string, Run> {
	const ids = [...new Set(list.map((a) => a.run))];
	const got = useQueries({ queries: ids.map((id) => ({ queryKey: ["runs", id], queryFn: () => get<Run>(`/v1/runs/${id}`) })) });
	return new Map(ids.flatMap((id, i) => (got[i]?.data ? [[id, got[i].data] as const] : [])));
}
