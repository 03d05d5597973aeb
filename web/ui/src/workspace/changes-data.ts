// The history of a machine's files as the panes ask for it. A pane that is hidden asks for nothing.

import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useState } from "react";
import { get, query } from "../api/http";
import type { RunEventPage, Schemas } from "../api/types";
import { useNumber } from "../ui/url";

export type Revision = Schemas["Revision"];
export type RevisionPage = Schemas["RevisionPage"];
export type Diff = Schemas["Diff"];

const pageSize = 100;

/** freshMS is how often a pane that is seen looks for news that no event told of. */
export const freshMS = 3000;

export const historyOf = (sandbox: string) => `/v1/sandboxes/${encodeURIComponent(sandbox)}/history`;

/** Known is what is known of the revisions, the newest first. */
export interface Known {
	revs: Revision[];
	/** next asks for older ones; "" = these are all. */
	next: string;
	current: number;
	undo: number;
	redo: number;
	unsaved?: Schemas["Unsaved"];
	unseen: string;
}

/** merge puts a page of the newest revisions before what is known already. */
export function merge(known: Known | null, page: RevisionPage): Known {
	const items = page.items ?? [];
	const where = { current: page.current, undo: page.undo, redo: page.redo, unsaved: page.unsaved, unseen: page.unseen ?? "" };
	const oldest = items[items.length - 1]?.n ?? 0;
	const newest = known?.revs[0]?.n ?? 0;
	const older = (known?.revs ?? []).filter((r) => r.n < oldest);
	const gap = newest < oldest - 1 && !!page.next_page_token; // those between are not known
	if (gap || !older.length) return { ...where, revs: items, next: page.next_page_token ?? "" };
	return { ...where, revs: items.concat(older), next: known?.next ?? "" };
}

/** useRevisions follows the history; older asks for a page of older revisions. */
export function useRevisions(sandbox: string, hidden: boolean) {
	const [known, setKnown] = useState<Known | null>(null);
	const page = useQuery({
		queryKey: ["history", sandbox, "list"],
		queryFn: ({ signal }) => get<RevisionPage>(`${historyOf(sandbox)}${query({ page_size: pageSize })}`, signal),
		enabled: !hidden,
		refetchInterval: freshMS,
	});
	useEffect(() => {
		if (page.data) setKnown((k) => merge(k, page.data));
	}, [page.data]);
	const token = known?.next ?? "";
	const [problem, setProblem] = useState<unknown>(null);
	const [asking, setAsking] = useState(false);
	const older = useCallback(async () => {
		if (!token || asking) return;
		setAsking(true);
		setProblem(null);
		try {
			const p = await get<RevisionPage>(`${historyOf(sandbox)}${query({ page_size: pageSize, page_token: token })}`);
			setKnown((k) => (k && k.next === token ? { ...k, revs: k.revs.concat(p.items ?? []), next: p.next_page_token ?? "" } : k));
		} catch (err) {
			setProblem(err);
		}
		setAsking(false);
	}, [sandbox, token, asking]);
	return { known, older, asking, error: page.error ?? problem, again: () => void page.refetch() };
}

/** useRevision is a revision and the one before it. */
export function useRevision(sandbox: string, n: number, hidden: boolean) {
	return useQuery({
		queryKey: ["history", sandbox, "revision", n],
		queryFn: ({ signal }) => get<Schemas["RevisionChanges"]>(`${historyOf(sandbox)}/${n}`, signal),
		enabled: !hidden && n > 0,
	});
}

/** beforeOf is the revision before one; undefined = that is not known here. */
export function beforeOf(known: Known, n: number): number | undefined {
	const i = known.revs.findIndex((r) => r.n === n);
	if (i < 0) return undefined;
	const before = known.revs[i + 1];
	return before ? before.n : known.next ? undefined : 0;
}

/** Since is what a range can begin with, beside a revision. */
export type Since = "step" | "turn";

/** workOf is the newest revision of a run's work at n or before; 0 = the newest of all. */
export function workOf(known: Known, n: number): Revision | undefined {
	return known.revs.find((r) => (!n || r.n <= n) && !!r.run && !!r.call && r.actor !== "outside");
}

const isTurn = (r: Revision) => !!r.run && !r.call && !r.undoes;

/** sinceOf is the revision before the step or turn in which n was made, 0 = the newest; undefined = older ones
 * have to be asked for. A turn begins when a person speaks to the agent, for which there is a revision. */
export function sinceOf(known: Known, n: number, since: Since): number | undefined {
	const work = workOf(known, n);
	if (!work) return known.next ? undefined : 0;
	const run = known.revs.filter((r) => r.run === work.run && r.n <= work.n);
	const turn = since === "turn" && run.find(isTurn);
	if (turn) return turn.n;
	const of = run.filter((r) => r.actor !== "outside");
	const first = since === "step" ? of.filter((r) => !!r.call && r.step === work.step && r.thread === work.thread).at(-1) : of.at(-1);
	return first && beforeOf(known, first.n);
}

const pagesMax = 50;

/** startOf is the revision that a run began with; 0 = the empty tree. */
async function startOf(sandbox: string, run: string, signal: AbortSignal): Promise<number> {
	let first = 0;
	let token: string | undefined;
	for (let i = 0; i < pagesMax; i++) {
		const page = await get<RevisionPage>(`${historyOf(sandbox)}${query({ run, page_size: 1000, page_token: token })}`, signal);
		first = page.items?.at(-1)?.n ?? first;
		token = page.next_page_token;
		if (!token) break;
	}
	if (!first) return 0;
	return (await get<Schemas["RevisionChanges"]>(`${historyOf(sandbox)}/${first}`, signal)).from;
}

export function useStart(sandbox: string, run: string, wanted: boolean) {
	return useQuery({
		queryKey: ["start", sandbox, run],
		queryFn: ({ signal }) => startOf(sandbox, run, signal),
		enabled: wanted && !!run,
	});
}

/** useDiff is what differs between two trees; to 0 = the files as they are now. */
export function useDiff(sandbox: string, from: number | undefined, to: number | undefined, hidden: boolean) {
	return useQuery({
		queryKey: ["history", sandbox, "diff", from, to],
		queryFn: ({ signal }) => get<Diff>(`${historyOf(sandbox)}/diff${query({ from, to, hunks: true })}`, signal),
		enabled: !hidden && from !== undefined && to !== undefined,
		staleTime: to === 0 ? 0 : Number.POSITIVE_INFINITY,
		meta: { fixed: to !== 0 },
		refetchInterval: to === 0 ? freshMS : false,
	});
}

/** Past is the revision of the moment that the screen looks at; 0 = it looks at no moment. why says why there is none yet. */
export interface Past {
	n: number;
	why: string;
	error: unknown;
}

const noPast: Past = { n: 0, why: "", error: null };

/** usePast finds the newest revision at the moment that the screen looks at. Nothing but reading is asked. */
export function usePast({ known, older, asking }: ReturnType<typeof useRevisions>, run: string, past: boolean, hidden: boolean): Past {
	const [at] = useNumber("at");
	const looks = past && !!run && at > 0;
	const page = useQuery({
		queryKey: ["moment", run, at],
		queryFn: ({ signal }) => get<RunEventPage>(`/v1/runs/${encodeURIComponent(run)}/events${query({ last: 1, before: at + 1 })}`, signal),
		enabled: looks && !hidden,
		staleTime: Number.POSITIVE_INFINITY,
		placeholderData: (old) => old,
	});
	const moment = Date.parse(page.data?.items?.[0]?.at ?? "");
	const n = known?.revs.find((r) => Date.parse(r.time) <= moment)?.n ?? 0;
	const more = looks && !hidden && moment > 0 && !n && !!known?.next && !asking;
	useEffect(() => {
		if (more) void older();
	}, [more, older]);
	if (!looks) return noPast;
	if (page.error) return { n: 0, why: "It is not known which revision this moment had.", error: page.error };
	if (n) return { n, why: "", error: null };
	if (!known || !moment || known.next) return { n: 0, why: "Looking for the revision of this moment…", error: null };
	return { n: 0, why: "No revision had been made at this moment.", error: null };
}
