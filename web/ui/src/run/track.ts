// What the bar under a run is made of: where it can stand, what is marked on it, and where on it
// an event is, by its number or by its time.

import { clip, visible } from "../ui/text";
import type { Item, ThreadFold } from "./fold";
import { isFailed } from "./rows";

export interface Stop {
	seq: number;
	at: string;
	/** after says what had just happened. */
	after: string;
}

export interface Mark {
	seq: number;
	kind: "turn" | "approval" | "error" | "rewound" | "revision";
}

export interface Track {
	stops: Stop[];
	/** steps are the seqs at which answers of the model came. */
	steps: number[];
	marks: Mark[];
}

/** Moment is a revision of the files, and the event with which a look into the past first has it. */
export interface Moment {
	n: number;
	seq: number;
}

function afterOf(i: Item): string {
	if (i.kind === "call") {
		const args = i.args as Record<string, unknown> | null | undefined;
		const about = args?.command ?? args?.file_path ?? args?.path ?? "";
		return visible(clip(`${i.tool} ${typeof about === "string" ? about : ""}`, 80));
	}
	if (i.kind === "input") return "a message";
	if (i.kind === "reasoning") return "thinking";
	return i.kind === "note" ? visible(clip(i.text, 80)) : i.kind;
}

/** trackOf is where the bar can stand, and what is marked on it. */
export function trackOf(t: ThreadFold): Track {
	const stops = new Map<number, Stop>();
	const steps: number[] = [];
	const marks: Mark[] = [];
	let step = -1;
	for (const i of t.items) {
		if (i.key.startsWith("l:")) continue;
		const after = afterOf(i);
		stops.set(i.seq, { seq: i.seq, at: i.at, after });
		if (i.kind === "call" && i.endedSeq) stops.set(i.endedSeq, { seq: i.endedSeq, at: i.endedAt, after: `the end of ${after}` });
		if (i.step !== step) {
			step = i.step;
			steps.push(i.seq);
		}
		if (i.kind === "input") marks.push({ seq: i.seq, kind: "turn" });
		if (i.kind === "call" && i.asked) marks.push({ seq: i.asked.seq, kind: "approval" });
		if (i.kind === "note" && i.note === "rewound") marks.push({ seq: i.seq, kind: "rewound" });
		if (isFailed(i)) marks.push({ seq: i.kind === "call" ? i.endedSeq || i.seq : i.seq, kind: "error" });
	}
	const sorted = [...stops.values()].sort((a, b) => a.seq - b.seq);
	return { stops: sorted, steps, marks };
}

/** stopBy is the index of the last stop at or before a seq. */
export function stopBy(stops: readonly Stop[], seq: number): number {
	return lastBy(stops.length, (i) => stops[i]!.seq <= seq);
}

/** lastBy is the last index of those for which something holds, which are the first ones; -1 = none. */
function lastBy(length: number, holds: (i: number) => boolean): number {
	let low = 0;
	let high = length;
	while (low < high) {
		const mid = (low + high) >> 1;
		if (holds(mid)) low = mid + 1;
		else high = mid;
	}
	return low - 1;
}

/** momentsOf says with which event a look into the past first has each revision, the oldest first. Several
 * revisions of one event are the last of them. */
export function momentsOf(stops: readonly Stop[], revs: readonly { n: number; time: string }[]): Moment[] {
	const out: Moment[] = [];
	for (const r of [...revs].sort((a, b) => a.n - b.n)) {
		const time = Date.parse(r.time);
		const stop = stops[lastBy(stops.length, (i) => Date.parse(stops[i]!.at) < time) + 1];
		if (!stop) continue; // what comes of it is live
		if (out.at(-1)?.seq === stop.seq) out.pop();
		out.push({ n: r.n, seq: stop.seq });
	}
	return out;
}

/** Scale is where on the bar an event is, from 0 to 1, and back. */
export interface Scale {
	left(seq: number): number;
	seq(left: number): number;
}

export function bySeq(first: number, last: number): Scale {
	const span = Math.max(1, last - first);
	return {
		left: (seq) => (last > first ? Math.min(1, Math.max(0, (seq - first) / span)) : 1),
		seq: (left) => first + left * span,
	};
}

/** quietMS is as long as a silence counts at most. */
export const quietMS = 60_000;

/** byTime places stops by their times, of which long silences are cut. */
export function byTime(stops: readonly Stop[]): Scale {
	const places: number[] = [];
	let sum = 0;
	stops.forEach((s, i) => {
		if (i) sum += quietOf(stops[i - 1]!, s);
		places.push(sum);
	});
	return {
		left: (seq) => (sum > 0 ? (places[stopBy(stops, seq)] ?? 0) / sum : 1),
		seq: (left) =>
			stops[
				Math.max(
					0,
					lastBy(places.length, (i) => places[i]! <= left * sum),
				)
			]?.seq ?? 0,
	};
}

const quietOf = (a: Stop, b: Stop) => Math.min(quietMS, Math.max(0, Date.parse(b.at) - Date.parse(a.at)) || 0);

/** thin keeps one mark of a kind for each of so many places, so that a long run has no more than can be seen. */
export function thin(marks: readonly Mark[], scale: Scale, places: number): (Mark & { left: number })[] {
	const out = new Map<string, Mark & { left: number }>();
	for (const m of marks) {
		const left = scale.left(m.seq);
		out.set(`${m.kind} ${Math.round(left * places)}`, { ...m, left });
	}
	return [...out.values()];
}

/** stepBefore is the newest of the seqs before one; 0 = there is none. */
export function stepBefore(steps: readonly number[], seq: number): number {
	let to = 0;
	for (const s of steps) if (s < seq) to = s;
	return to;
}

/** stepAfter is the next of the seqs; 0 = what is live. */
export function stepAfter(steps: readonly number[], seq: number): number {
	return steps.find((s) => s > seq) ?? 0;
}

export const speeds = [1, 4, 16] as const;
export type Speed = (typeof speeds)[number];

const beatMS = { least: 60, most: 2000, calm: 1500 };

/** beatOf is how long a stop is shown while it plays: as long as it lasted, but no silence. calm: for a person
 * who wants little motion; each stop stays long enough to be read. */
export function beatOf(a: Stop, b: Stop, speed: Speed, calm: boolean): number {
	if (calm) return beatMS.calm;
	return Math.max(beatMS.least, Math.min(beatMS.most, quietOf(a, b)) / speed);
}
