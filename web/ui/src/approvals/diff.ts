// What an edit would do to a text, line by line.

export interface Line {
	kind: "same" | "add" | "remove";
	text: string;
}

export interface Hunk {
	/** before and after are the numbers of its first lines, from 1. */
	before: number;
	after: number;
	lines: Line[];
}

const cellsMax = 4_000_000;
const context = 3;

const linesOf = (s: string) => (s === "" ? [] : s.replace(/\n$/, "").split("\n"));

/** diff compares texts. Where the parts that differ are large, all of them is replaced. */
export function diff(before: string, after: string): Line[] {
	const a = linesOf(before);
	const b = linesOf(after);
	let head = 0;
	while (head < a.length && head < b.length && a[head] === b[head]) head++;
	let tail = 0;
	while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
	const same = (list: string[]): Line[] => list.map((text) => ({ kind: "same", text }));
	return [
		...same(a.slice(0, head)),
		...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
		...same(a.slice(a.length - tail)),
	];
}

/** middle is the longest common subsequence by its table. */
function middle(a: string[], b: string[]): Line[] {
	const w = b.length + 1;
	const out: Line[] = [];
	if ((a.length + 1) * w > cellsMax) {
		for (const text of a) out.push({ kind: "remove", text });
		for (const text of b) out.push({ kind: "add", text });
		return out;
	}
	const t = new Uint32Array((a.length + 1) * w);
	for (let i = a.length - 1; i >= 0; i--)
		for (let j = b.length - 1; j >= 0; j--)
			t[i * w + j] = a[i] === b[j] ? t[(i + 1) * w + j + 1]! + 1 : Math.max(t[(i + 1) * w + j]!, t[i * w + j + 1]!);
	let i = 0;
	let j = 0;
	while (i < a.length || j < b.length) {
		if (i < a.length && j < b.length && a[i] === b[j]) {
			out.push({ kind: "same", text: a[i]! });
			i++;
			j++;
		} else if (i < a.length && (j === b.length || t[(i + 1) * w + j]! >= t[i * w + j + 1]!)) out.push({ kind: "remove", text: a[i++]! });
		else out.push({ kind: "add", text: b[j++]! });
	}
	return out;
}

/** hunks are the lines that differ, with three around them. */
export function hunks(lines: Line[]): Hunk[] {
	const near = new Uint8Array(lines.length);
	lines.forEach((l, i) => {
		if (l.kind !== "same") near.fill(1, Math.max(0, i - context), i + context + 1);
	});
	const out: Hunk[] = [];
	let before = 1;
	let after = 1;
	lines.forEach((l, i) => {
		if (near[i]) {
			if (!near[i - 1]) out.push({ before, after, lines: [] });
			out.at(-1)!.lines.push(l);
		}
		if (l.kind !== "add") before++;
		if (l.kind !== "remove") after++;
	});
	return out;
}

export interface Edit {
	old_string: string;
	new_string: string;
	replace_all?: boolean;
}

/** editsOf reads the arguments of edit_file; null = they are none of it. */
export function editsOf(args: Record<string, unknown>): Edit[] | null {
	const list = Array.isArray(args.edits) ? args.edits : [args];
	const ok = list.every((e) => typeof e?.old_string === "string" && typeof e?.new_string === "string" && e.old_string !== "");
	return ok && list.length ? (list as Edit[]) : null;
}

/** applied is a text after edits; null = one of them does not fit, and the call would fail. */
export function applied(text: string, edits: Edit[]): string | null {
	let now = text;
	for (const e of edits) {
		const parts = now.split(e.old_string);
		if (parts.length < 2 || (parts.length > 2 && !e.replace_all)) return null;
		now = parts.join(e.new_string);
	}
	return now;
}
