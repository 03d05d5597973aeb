// What two sides of a comparison are: revisions of a run's files, or runs.

import type { Schemas } from "../api/types";
import type { Change } from "../undo/paths";
import { keyOf } from "../undo/paths";
import { count } from "../undo/rows";
import type { Revision } from "../workspace/changes-data";
import type { RunStore } from "./store";

/** Side is what an address names: a revision by its number, or another run by its id. */
export type Side = { n: number } | { run: string };

export function sideOf(param: string, self: string): Side | null {
	if (/^[1-9]\d{0,14}$/.test(param)) return { n: Number(param) };
	if (/^run_[a-z0-9]{1,40}$/.test(param)) return { run: param };
	return param === "" ? { run: self } : null;
}

/** tipOf is the last revision that a run made; else the newest that its machine has. */
export function tipOf(revs: readonly Revision[], run: string): Revision | undefined {
	return revs.find((r) => r.run === run) ?? revs[0];
}

/** commonOf is the newest revision, at or before both tips, that two histories share: a fork begins with a copy. 0 = there is none. */
export function commonOf(a: readonly Revision[], b: readonly Revision[], most: number): number {
	const roots = new Map(b.map((r) => [r.n, `${r.root} ${r.time}`]));
	return a.find((r) => r.n <= most && roots.get(r.n) === `${r.root} ${r.time}`)?.n ?? 0;
}

/** Spent is what a run had used when a revision was made; null = the events of that time are not here. */
export interface Spent {
	step: number;
	costUSD: number;
	ms: number;
}

export function spentAt(store: RunStore, root: string, time: string): Spent | null {
	const seq = store.seqAt(Date.parse(time));
	if (!seq) return null;
	const t = store.past(seq).thread(root);
	return { step: t.step, costUSD: t.costUSD, ms: Math.max(0, Date.parse(time) - Date.parse(t.startedAt || time)) };
}

/** Both is a path that differs from the common revision on one side, or on both. */
export interface Both {
	path: Change;
	a?: Change;
	b?: Change;
	/** same: both made the same of it, as far as its lines tell. */
	same: boolean;
}

const lines = (f: Change) => JSON.stringify([f.action, f.after, f.hunks]);

export function pair(a: readonly Change[], b: readonly Change[]): Both[] {
	const of = new Map<string, Both>(a.map((f) => [keyOf(f), { path: f, a: f, same: false }]));
	for (const f of b) {
		const other = of.get(keyOf(f))?.a;
		const same = !!other && !f.binary && !f.large && !other.binary && !other.large && lines(f) === lines(other);
		of.set(keyOf(f), { path: f, a: other, b: f, same });
	}
	return [...of.values()].sort((x, y) => (x.path.path < y.path.path ? -1 : x.path.path > y.path.path ? 1 : 0));
}

/** sumOf counts the lines of a side. */
export const sumOf = (d: Schemas["Diff"] | undefined) => count((d?.files ?? []).flatMap((f) => f.hunks ?? []));
