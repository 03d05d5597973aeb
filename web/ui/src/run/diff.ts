// What a call of a file tool changes, computed of its arguments alone, within bounds. What really
// changed in the workspace is the server's to say.

export interface DiffLine {
	kind: "added" | "removed" | "same" | "head";
	text: string;
}

export interface Change {
	path: string;
	lines: DiffLine[];
	added: number;
	removed: number;
	/** whole: the file is written anew; what it was is not known. */
	whole: boolean;
}

/** compareMax bounds the table of a comparison: so many lines of each side. */
const compareMax = 400;
const context = 3;

type Args = Record<string, unknown>;

const text = (v: unknown) => (typeof v === "string" ? v : "");

/** changeOf reads the arguments of a file tool; null = it is none that changes files, or they are not readable. */
export function changeOf(tool: string, args: unknown): Change | null {
	if (!args || typeof args !== "object") return null;
	const a = args as Args;
	if (tool === "write_file" && typeof a.content === "string")
		return counted(
			text(a.file_path),
			split(a.content).map((t) => ({ kind: "added", text: t })),
			true,
		);
	if (tool === "edit_file") return counted(text(a.file_path), edits(a), false);
	if (tool === "apply_patch" && typeof a.patch === "string") return patch(a.patch);
	return null;
}

function edits(a: Args): DiffLine[] {
	const list = Array.isArray(a.edits) ? (a.edits as Args[]) : [a];
	return list.flatMap((e, n) => {
		const lines = diff(text(e?.old_string), text(e?.new_string));
		return n ? [{ kind: "head", text: "…" } as DiffLine, ...lines] : lines;
	});
}

function patch(p: string): Change {
	const paths: string[] = [];
	const lines = split(p).map((line): DiffLine => {
		const file = /^\*\*\* (?:Add|Update|Delete) File: (.*)$/.exec(line)?.[1];
		if (file !== undefined) paths.push(file);
		if (line.startsWith("***") || line.startsWith("@@")) return { kind: "head", text: line };
		if (line[0] === "+") return { kind: "added", text: line.slice(1) };
		if (line[0] === "-") return { kind: "removed", text: line.slice(1) };
		return { kind: "same", text: line.slice(1) };
	});
	const path = paths.length > 1 ? `${paths[0]} and ${paths.length - 1} more` : (paths[0] ?? "");
	return counted(path, lines, false);
}

function counted(path: string, lines: DiffLine[], whole: boolean): Change {
	let added = 0;
	let removed = 0;
	for (const l of lines) {
		if (l.kind === "added") added++;
		else if (l.kind === "removed") removed++;
	}
	return { path, lines, added, removed, whole };
}

function split(s: string): string[] {
	if (s === "") return [];
	const lines = s.split("\n");
	if (lines.at(-1) === "") lines.pop();
	return lines;
}

const as =
	(kind: DiffLine["kind"]) =>
	(text: string): DiffLine => ({ kind, text });

/** diff compares two texts by lines. Sides that are too long are shown one after the other. */
export function diff(before: string, after: string): DiffLine[] {
	const a = split(before);
	const b = split(after);
	let head = 0;
	while (head < a.length && head < b.length && a[head] === b[head]) head++;
	let tail = 0;
	while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
	const mid = [a.slice(head, a.length - tail), b.slice(head, b.length - tail)] as const;
	return [
		...a.slice(Math.max(0, head - context), head).map(as("same")),
		...(mid[0].length > compareMax || mid[1].length > compareMax
			? [...mid[0].map(as("removed")), ...mid[1].map(as("added"))]
			: compare(...mid)),
		...a.slice(a.length - tail, a.length - tail + context).map(as("same")),
	];
}

/** compare finds the longest common lines. */
function compare(a: string[], b: string[]): DiffLine[] {
	const w = b.length + 1;
	const table = new Uint16Array((a.length + 1) * w);
	for (let i = a.length - 1; i >= 0; i--)
		for (let j = b.length - 1; j >= 0; j--)
			table[i * w + j] = a[i] === b[j] ? table[(i + 1) * w + j + 1]! + 1 : Math.max(table[(i + 1) * w + j]!, table[i * w + j + 1]!);
	const out: DiffLine[] = [];
	let i = 0;
	let j = 0;
	while (i < a.length || j < b.length) {
		if (i < a.length && j < b.length && a[i] === b[j]) {
			out.push({ kind: "same", text: a[i]! });
			i++;
			j++;
		} else if (i < a.length && (j === b.length || table[(i + 1) * w + j]! >= table[i * w + j + 1]!))
			out.push({ kind: "removed", text: a[i++]! });
		else out.push({ kind: "added", text: b[j++]! });
	}
	return out;
}
