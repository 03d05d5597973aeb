// Rows of a diff: what stands in one line of a virtual list.

import type { Schemas } from "../api/types";
import { type Change, keyOf } from "./paths";

export type Hunk = Schemas["DiffHunk"];
export type Line = Schemas["DiffLine"];

export interface LineRow {
	row: "line";
	key: string;
	kind: Line["kind"];
	/** before and after are its numbers; 0 = it has none there. */
	before: number;
	after: number;
	text: string;
	/** pair is the line that it replaces, or that replaces it. */
	pair?: string;
	noNewline: boolean;
}

export type Row =
	| { row: "file"; key: string; file: Change; open: boolean; added: number; removed: number }
	| { row: "about"; key: string; file: Change }
	| { row: "gap"; key: string; text: string }
	| { row: "pair"; key: string; before?: LineRow; after?: LineRow }
	| LineRow;

/** count counts the changed lines of hunks. */
export function count(hunks: readonly Hunk[] | null | undefined): { added: number; removed: number } {
	let added = 0;
	let removed = 0;
	for (const h of hunks ?? []) {
		for (const l of h.lines ?? []) {
			if (l.kind === "add") added++;
			else if (l.kind === "remove") removed++;
		}
	}
	return { added, removed };
}

/** reversed are the hunks of the way back. */
export function reversed(hunks: readonly Hunk[]): Hunk[] {
	const turned = { same: "same", add: "remove", remove: "add" } as const;
	return hunks.map((h) => {
		const lines: Line[] = [];
		let adds: Line[] = [];
		for (const l of h.lines ?? []) {
			const t = { ...l, kind: turned[l.kind] };
			if (t.kind === "remove") lines.push(t);
			else if (t.kind === "add") adds.push(t);
			else {
				lines.push(...adds, t);
				adds = [];
			}
		}
		lines.push(...adds);
		return { before: h.after, before_lines: h.after_lines, after: h.before, after_lines: h.before_lines, lines };
	});
}

const bare = (s: string) => s.replace(/\s+/g, "");

/** settle takes pairs that differ in space alone for the same line. */
function settle(run: Line[]): Line[] {
	const removed = run.filter((l) => l.kind === "remove");
	const added = run.filter((l) => l.kind === "add");
	if (!removed.length || removed.length !== added.length || !removed.every((l, i) => bare(l.text) === bare(added[i]!.text))) return run;
	return added.map((l) => ({ ...l, kind: "same" }));
}

/** runs splits lines into those that are the same, and runs of those that are not. */
function runs(lines: readonly Line[]): Line[][] {
	const out: Line[][] = [];
	let changed: Line[] = [];
	for (const l of lines) {
		if (l.kind !== "same") {
			changed.push(l);
			continue;
		}
		if (changed.length) out.push(changed);
		changed = [];
		out.push([l]);
	}
	if (changed.length) out.push(changed);
	return out;
}

/** linesOf are the rows of one file's hunks. space: changes of space alone count. */
export function linesOf(hunks: readonly Hunk[], prefix: string, space = true): Row[] {
	const rows: Row[] = [];
	hunks.forEach((h, at) => {
		let { before, after } = h;
		const begin = rows.length;
		let changes = 0;
		const push = (l: Line, pair?: string) => {
			if (l.kind !== "same") changes++;
			rows.push({
				row: "line",
				key: `${prefix} ${at} ${rows.length - begin}`,
				kind: l.kind,
				before: l.kind === "add" ? 0 : before,
				after: l.kind === "remove" ? 0 : after,
				text: l.text,
				pair,
				noNewline: l.no_newline ?? false,
			});
			if (l.kind !== "add") before++;
			if (l.kind !== "remove") after++;
		};
		rows.push({ row: "gap", key: `${prefix} ${at}`, text: `line ${h.after || h.before}` });
		for (const run of runs(h.lines ?? [])) {
			const part = space ? run : settle(run);
			const removed = part.filter((l) => l.kind === "remove");
			const added = part.filter((l) => l.kind === "add");
			const paired = removed.length === added.length;
			let r = 0;
			let a = 0;
			for (const l of part) {
				if (l.kind === "remove") push(l, paired ? added[r++]?.text : undefined);
				else if (l.kind === "add") push(l, paired ? removed[a++]?.text : undefined);
				else push(l);
			}
		}
		if (!changes) rows.length = begin;
	});
	return rows;
}

/** rowsOf are the rows of all files of a diff. */
export function rowsOf(files: readonly Change[], open: (f: Change, index: number) => boolean, space = true): Row[] {
	const rows: Row[] = [];
	files.forEach((file, i) => {
		const key = keyOf(file);
		const isOpen = open(file, i);
		rows.push({ row: "file", key, file, open: isOpen, ...count(file.hunks) });
		if (!isOpen) return;
		rows.push({ row: "about", key: `${key} about`, file });
		const lines = linesOf(file.hunks ?? [], key, space);
		if (file.hunks?.length && !lines.length) rows.push({ row: "gap", key: `${key} space`, text: "Only space differs." });
		for (const l of lines) rows.push(l);
	});
	return rows;
}

/** sideBySide puts lines that were removed beside those that came in their place. */
export function sideBySide(rows: readonly Row[]): Row[] {
	const out: Row[] = [];
	let removed: LineRow[] = [];
	let added: LineRow[] = [];
	const settle = () => {
		for (let i = 0; i < Math.max(removed.length, added.length); i++) {
			const [before, after] = [removed[i], added[i]];
			out.push({ row: "pair", key: `${before?.key ?? ""}|${after?.key ?? ""}`, before, after });
		}
		removed = [];
		added = [];
	};
	for (const r of rows) {
		if (r.row === "line" && r.kind === "remove") {
			if (added.length) settle();
			removed.push(r);
		} else if (r.row === "line" && r.kind === "add") added.push(r);
		else {
			settle();
			out.push(r.row === "line" ? { row: "pair", key: r.key, before: r, after: r } : r);
		}
	}
	settle();
	return out;
}

const marksMax = 2000; // characters of a line that is looked into
const wordsMax = 200;

/** marks are the parts of a line that its pair does not have, as [from, to). */
export function marks(text: string, pair: string): [number, number][] {
	if (text === pair || text.length > marksMax || pair.length > marksMax) return [];
	const a = words(text);
	const b = words(pair);
	if (a.length > wordsMax || b.length > wordsMax) return [];
	const kept = common(a, b);
	const out: [number, number][] = [];
	let at = 0;
	let same = 0;
	a.forEach((w, i) => {
		if (kept[i]) {
			if (w.trim()) same += w.length;
		} else if (out.length && out[out.length - 1]![1] === at) out[out.length - 1]![1] = at + w.length;
		else out.push([at, at + w.length]);
		at += w.length;
	});
	return same ? out : []; // lines without a word in common are marked as a whole already
}

const words = (s: string) => s.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? [];

/** common marks the words of a that are in the longest common subsequence with b. */
function common(a: string[], b: string[]): boolean[] {
	const width = b.length + 1;
	const table = new Uint16Array((a.length + 1) * width);
	for (let i = a.length - 1; i >= 0; i--) {
		for (let j = b.length - 1; j >= 0; j--) {
			const at = i * width + j;
			table[at] = a[i] === b[j] ? table[at + width + 1]! + 1 : Math.max(table[at + width]!, table[at + 1]!);
		}
	}
	const kept = a.map(() => false);
	for (let i = 0, j = 0; i < a.length && j < b.length; ) {
		const at = i * width + j;
		if (a[i] === b[j]) {
			kept[i++] = true;
			j++;
		} else if (table[at + width]! >= table[at + 1]!) i++;
		else j++;
	}
	return kept;
}
