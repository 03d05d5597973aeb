// The calls of a run that wait for a person: those of its own thread and of all sub-agents.

import { useQuery } from "@tanstack/react-query";
import { useCallback, useRef } from "react";
import { get } from "../api/http";
import type { Approval } from "../api/types";
import { type Ask, byAge } from "../approvals/call";
import { Card } from "../approvals/card";
import { useNow } from "../approvals/now";
import { ProblemBox } from "../ui/problem";
import type { CallItem, RunFold, ThreadFold } from "./fold";
import type { RunView } from "./store";

export { Decision } from "../approvals/decision";

const keptMS = 30_000;
const againMS = 1000; // while the log tells of more than the answer does

const keyOf = (thread: string, call: string, seq: number) => `${thread} ${call} ${seq}`;

/** pathOf names the agents from the run's own to the one of a thread: "lead / reviewer". root and own
 * stand in for names that the log has not told. */
export function pathOf(fold: RunFold, thread: string, root = "agent", own = "sub-agent"): string {
	const parts = thread.slice(fold.root.length).split("/").slice(1);
	const ids = [fold.root, ...parts.map((_, i) => [fold.root, ...parts.slice(0, i + 1)].join("/"))];
	const name = (id: string) => (id === fold.root ? root : id === thread ? own : "sub-agent");
	return ids.map((id) => fold.threads.get(id)?.agent || name(id)).join(" / ");
}

/** Kept remembers which calls were seen to wait, and since when each of them does not. */
export class Kept {
	private seen = new Map<string, number>(); // 0 = it waits
	private mine = new Set<string>();

	/** sent notes that a decision of this page was taken. */
	sent(key: string): void {
		this.mine.add(key);
	}

	/** show reports whether a call stays on the card: while it waits, and for a while after another client
	 * decided it; one that was decided here only beside others that wait. */
	show(key: string, waits: boolean, othersWait: boolean, now: number): boolean {
		if (waits) {
			this.seen.set(key, 0);
			return true;
		}
		const since = this.seen.get(key);
		if (since === undefined) return false;
		if (since === 0) this.seen.set(key, now);
		const young = now - (since || now) < keptMS;
		return young && (othersWait || !this.mine.has(key));
	}
}

function askOf(view: RunView, thread: ThreadFold, item: CallItem, approval: Approval | undefined): Ask {
	const asked = item.asked!;
	return {
		key: keyOf(thread.id, item.call, asked.seq),
		run: view.run.id,
		thread: thread.id,
		agent: pathOf(view.fold, thread.id, view.run.agent, approval?.agent),
		tool: item.tool,
		at: asked.at,
		seq: asked.seq,
		approval,
		writes: asked.writes,
		reads: asked.reads,
		machine: thread.machine || view.fold.thread(view.run.thread).machine || view.run.sandbox || "",
		decided: asked.decided,
	};
}

/** ApprovalCard is all that waits in a run, each call with its own decision. The log says what waits;
 * the server says what exactly would run, and its hash. */
export function ApprovalCard({ view }: { view: RunView }) {
	const kept = useRef<Kept>(null);
	kept.current ??= new Kept();
	const waiting = view.fold.waiting();
	const asking = waiting.map((w) => keyOf(w.thread.id, w.item.call, w.item.asked!.seq));
	const q = useQuery({
		queryKey: ["approvals", view.run.id, asking],
		queryFn: () => get<{ items: Approval[] | null }>(`/v1/runs/${view.run.id}/approvals`),
		enabled: asking.length > 0,
		staleTime: Number.POSITIVE_INFINITY,
		refetchInterval: (of) => (of.state.data?.items ?? []).length < asking.length && againMS,
		placeholderData: (old) => old,
	});
	const known = new Map((q.data?.items ?? []).map((a) => [keyOf(a.thread, a.call, a.seq), a]));
	const now = useNow(1000);
	const k = kept.current;
	const asks = [...view.fold.threads.values()]
		.flatMap((t) => t.items.filter((i): i is CallItem => i.kind === "call" && !!i.asked).map((item) => ({ t, item })))
		.map(({ t, item }) => askOf(view, t, item, known.get(keyOf(t.id, item.call, item.asked!.seq))))
		.map((a) => (a.decided || asking.includes(a.key) ? a : { ...a, gone: true }))
		.filter((a) => k.show(a.key, asking.includes(a.key), asking.length > 0, now))
		.sort(byAge);
	const onSent = useCallback((key: string) => k.sent(key), [k]);
	return (
		<>
			{q.error && asking.length > 0 && <ProblemBox of={q.error} again={() => void q.refetch()} />}
			<Card asks={asks} onSent={onSent} />
		</>
	);
}
