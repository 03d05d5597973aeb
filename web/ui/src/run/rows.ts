// Rows of the timeline: items that follow each other and only look are one row, long silence is
// one, and what a filter hides is counted.

import { duration } from "../ui/format";
import { changeOf } from "./diff";
import type { CallItem, Item } from "./fold";

export interface ItemRowData {
	kind: "item";
	key: string;
	item: Item;
}

export interface ReadsRowData {
	kind: "reads";
	key: string;
	items: CallItem[];
}

export interface GapRowData {
	kind: "gap";
	key: string;
	text: string;
	seq: number;
}

export type RowData = ItemRowData | ReadsRowData | GapRowData;

export const filterKinds = ["messages", "thoughts", "commands", "files", "reads", "agents", "other"] as const;
export type FilterKind = (typeof filterKinds)[number];

export interface Filter {
	/** kinds that are shown; empty = all. */
	kinds: readonly FilterKind[];
	failed: boolean;
	changed: boolean;
}

export const readTools = new Set(["ls", "read_file", "glob", "grep", "process_output", "process_list"]);
const searches = new Set(["glob", "grep"]);
const writeTools = new Set(["write_file", "edit_file", "apply_patch"]);
const agentTools = new Set(["task", "task_output", "task_send", "task_cancel", "task_list"]);

const gapMS = 60_000;
const groupMax = 50;

export const isRead = (i: Item): i is CallItem => i.kind === "call" && readTools.has(i.tool);

/** folds: a call that may stand in a group of reads. One that failed or waits stands alone. */
const folds = (i: Item): i is CallItem => isRead(i) && !i.asked && i.state !== "failed" && i.state !== "rejected";

export function kindOf(i: Item): FilterKind {
	switch (i.kind) {
		case "input":
		case "text":
		case "end":
			return "messages";
		case "reasoning":
			return "thoughts";
		case "call":
			if (i.tool === "execute") return "commands";
			if (writeTools.has(i.tool)) return "files";
			if (readTools.has(i.tool)) return "reads";
			return agentTools.has(i.tool) ? "agents" : "other";
		default:
			return "other";
	}
}

export function isFailed(i: Item): boolean {
	switch (i.kind) {
		case "call":
			return i.state === "failed" || i.state === "rejected" || !!i.exit;
		case "failure":
			return true;
		case "note":
			return !!i.failed;
		case "end":
			return i.state === "failed" || i.state === "timed_out";
	}
	return false;
}

/** changes: the call changed files, as far as its arguments tell. */
export const changes = (i: Item) => i.kind === "call" && i.state === "done" && writeTools.has(i.tool) && changeOf(i.tool, i.args) !== null;

export function passes(i: Item, f: Filter): boolean {
	if (f.kinds.length && !f.kinds.includes(kindOf(i))) return false;
	if (f.failed && !isFailed(i)) return false;
	return !f.changed || changes(i);
}

/** Before is how it was before an item: to here the rows can be taken back. */
interface Before {
	rows: number;
	hidden: number;
	quietFrom: number;
	/** begin is the item that the last row began with. */
	begin: number;
}

/** RowBuilder makes the rows of items, and counts those that a filter hides. Items are replaced and
 * not changed, so it begins where the first is another one: a frame of a long run costs little. */
export class RowBuilder {
	private items: Item[] = [];
	private before: Before[] = [];
	private rows: RowData[] = [];
	private hidden = 0;
	private quietFrom = 0; // when the last thing that was shown or hidden ended, ms
	private begin = 0;
	private readonly all: boolean;

	constructor(private readonly filter: Filter) {
		this.all = !filter.kinds.length && !filter.failed && !filter.changed;
	}

	build(items: readonly Item[]): { rows: RowData[]; hidden: number } {
		let from = 0;
		const most = Math.min(items.length, this.items.length);
		while (from < most && items[from] === this.items[from]) from++;
		// Items after that one may have joined the row before it, which is made anew too.
		from = Math.min(from, this.before[from]?.begin ?? from);
		this.back(from);
		for (let n = from; n < items.length; n++) this.add(items[n]!);
		return { rows: this.rows.slice(), hidden: this.hidden };
	}

	private back(to: number): void {
		const was = this.before[to];
		if (!was) return;
		this.rows.length = was.rows;
		this.hidden = was.hidden;
		this.quietFrom = was.quietFrom;
		this.begin = was.begin;
		this.items.length = this.before.length = to;
	}

	private add(item: Item): void {
		const before = { rows: this.rows.length, hidden: this.hidden, quietFrom: this.quietFrom, begin: this.begin };
		this.before.push(before);
		this.items.push(item);
		const gap = gapBefore(item, this.quietFrom);
		this.quietFrom = Math.max(this.quietFrom, endOf(item));
		if (gap) this.rows.push(gap);
		if (!this.all && !passes(item, this.filter)) this.hidden++;
		else if (!join(this.rows, item)) this.begin = this.items.length - 1;
		const waited = waitOf(item);
		if (waited) this.rows.push(waited);
	}
}

export function rowsOf(items: readonly Item[], f: Filter): { rows: RowData[]; hidden: number } {
	return new RowBuilder(f).build(items);
}

/** join adds an item, and says whether the row before took it. */
function join(rows: RowData[], item: Item): boolean {
	const last = rows.at(-1);
	const fits = last && last.kind !== "gap" && folds(item);
	if (fits && last.kind === "reads" && last.items.length < groupMax && last.items[0]!.rewound === item.rewound) {
		last.items.push(item);
		return true;
	}
	if (fits && last.kind === "item" && folds(last.item) && last.item.rewound === item.rewound) {
		rows[rows.length - 1] = { kind: "reads", key: `g:${last.key}`, items: [last.item, item] };
		return true;
	}
	rows.push({ kind: "item", key: item.key, item });
	return false;
}

const time = (at: string) => (at ? Date.parse(at) : 0);

const endOf = (i: Item) => (i.kind === "call" ? Math.max(time(i.at), time(i.endedAt), time(i.asked?.decided?.at ?? "")) : time(i.at));

/** gapBefore is the break before an item that came after a long silence. */
function gapBefore(item: Item, quietFrom: number): GapRowData | null {
	const ms = time(item.at) - quietFrom;
	if (!quietFrom || !(ms > gapMS) || item.key.startsWith("l:")) return null;
	return { kind: "gap", key: `gap:${item.key}`, text: `${duration(ms)} ${silence(item)}`, seq: item.seq };
}

function silence(next: Item): string {
	if (next.kind === "input") return "until the next message";
	if (next.kind === "note" && next.note === "resumed") return "until a server took the run up again";
	if (next.kind === "text" || next.kind === "reasoning" || next.kind === "call") return "waiting for the model";
	return "without events";
}

/** waitOf is the break that a call made which waited long for a person. */
function waitOf(item: Item): GapRowData | null {
	if (item.kind !== "call" || !item.asked?.decided) return null;
	const ms = time(item.asked.decided.at) - time(item.asked.at);
	if (!(ms > gapMS)) return null;
	return { kind: "gap", key: `wait:${item.key}`, text: `${duration(ms)} waiting for approval`, seq: item.seq };
}

/** readsTitle says what a group did: "read 6 files, 2 searches". */
export function readsTitle(items: readonly CallItem[]): string {
	const files = items.filter((i) => i.tool === "read_file").length;
	const found = items.filter((i) => searches.has(i.tool)).length;
	const lists = items.filter((i) => i.tool === "ls").length;
	const rest = items.length - files - found - lists;
	const going = items.some((i) => !i.endedSeq);
	const parts: string[] = [];
	const say = (n: number, one: string, many: string) => n && parts.push(`${n} ${n === 1 ? one : many}`);
	if (files) parts.push(`${going ? "reading" : "read"} ${files} ${files === 1 ? "file" : "files"}`);
	say(found, "search", "searches");
	say(lists, "directory listed", "directories listed");
	say(rest, "look at commands", "looks at commands");
	return parts.join(", ");
}

/** seqOf is the event that a row began with. */
export const seqOf = (r: RowData) => (r.kind === "item" ? r.item.seq : r.kind === "reads" ? r.items[0]!.seq : r.seq);

/** searchText is all of an item that can be searched. */
export function searchText(i: Item): string {
	switch (i.kind) {
		case "call":
			return `${i.tool}\n${typeof i.args === "string" ? i.args : (JSON.stringify(i.args) ?? i.argsText)}\n${i.output || i.live}`;
		case "note":
			return `${i.text}\n${i.detail}`;
		case "failure":
			return `${i.trouble}\n${i.text}`;
		case "end":
			return `${i.state}\n${i.reason}\n${i.text}`;
		case "input":
			return `${i.name}\n${i.text}`;
		default:
			return i.text;
	}
}

/** foundIn are the indices of rows that hold the words, whatever their case. */
export function foundIn(rows: readonly RowData[], words: string): number[] {
	const q = words.toLowerCase();
	if (!q) return [];
	const out: number[] = [];
	rows.forEach((r, n) => {
		const items = r.kind === "item" ? [r.item] : r.kind === "reads" ? r.items : [];
		if (items.some((i) => searchText(i).toLowerCase().includes(q))) out.push(n);
	});
	return out;
}
