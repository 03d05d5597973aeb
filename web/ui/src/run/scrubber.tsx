// The bar under a run: drag it, or use the keys, and the screen shows what was recorded up to
// there. Nothing is executed.

import { useMemo, useRef } from "react";
import { clock } from "../ui/format";
import { useSlow } from "../ui/slow";
import { clip, visible } from "../ui/text";
import type { Item, ThreadFold } from "./fold";
import { isFailed } from "./rows";

export interface Stop {
	seq: number;
	at: string;
	/** after says what had just happened. */
	after: string;
}

interface Mark {
	seq: number;
	kind: "turn" | "approval" | "error" | "rewound";
}

export interface Track {
	stops: Stop[];
	/** steps are the seqs at which answers of the model came. */
	steps: number[];
	marks: Mark[];
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
	let low = 0;
	let high = stops.length;
	while (low < high) {
		const mid = (low + high) >> 1;
		if (stops[mid]!.seq <= seq) low = mid + 1;
		else high = mid;
	}
	return low - 1;
}

/** thin keeps one mark of a kind for each of so many places, so that a long run has no more than can be seen. */
export function thin(marks: readonly Mark[], first: number, last: number, places: number): (Mark & { left: number })[] {
	const out = new Map<string, Mark & { left: number }>();
	for (const m of marks) {
		const left = last > first ? (m.seq - first) / (last - first) : 1;
		out.set(`${m.kind} ${Math.round(left * places)}`, { ...m, left: Math.min(1, Math.max(0, left)) });
	}
	return [...out.values()];
}

const places = 200;
const trackMS = 500; // a track is made of all items: not in each frame
const looks = { turn: "bg-quiet", approval: "bg-warn", error: "bg-bad", rewound: "bg-pause" };
const signs = { turn: "", approval: "!", error: "×", rewound: "↶" };

interface Props {
	/** of the thread as it is now. */
	thread: ThreadFold;
	version: number;
	/** first seq that is here. */
	first: number;
	/** at is where it looks; 0 = live. */
	at: number;
	onAt(at: number): void;
}

export function Scrubber({ thread, version, first, at, onAt }: Props) {
	const slow = useSlow(version, trackMS);
	// biome-ignore lint/correctness/useExhaustiveDependencies: the thread changes in place, with the version.
	const track = useMemo(() => trackOf(thread), [thread, slow]);
	const bar = useRef<HTMLDivElement>(null);
	const { stops, steps } = track;
	const last = thread.seq;
	const here = at ? stopBy(stops, at) : stops.length - 1;
	const stop = stops[here];
	const left = at ? (Math.max(first, Math.min(at, last)) - first) / Math.max(1, last - first) : 1;
	const go = (n: number) => {
		const to = stops[Math.max(0, Math.min(n, stops.length - 1))];
		if (to) onAt(n >= stops.length - 1 ? 0 : to.seq);
	};
	const drag = (e: React.PointerEvent) => {
		if (!bar.current?.hasPointerCapture(e.pointerId)) return;
		const r = bar.current.getBoundingClientRect();
		const share = Math.min(1, Math.max(0, (e.clientX - r.left) / r.width));
		go(Math.max(0, stopBy(stops, first + share * (last - first))));
	};
	const keys = (e: React.KeyboardEvent) => {
		const seq = at || last;
		if (e.key === "ArrowLeft" || e.key === "ArrowDown") go(here - 1);
		else if (e.key === "ArrowRight" || e.key === "ArrowUp") go(here + 1);
		else if (e.key === "PageDown") onAt(stepBefore(steps, seq) || at);
		else if (e.key === "PageUp") onAt(stepAfter(steps, seq));
		else if (e.key === "Home") go(0);
		else if (e.key === "End") onAt(0);
		else return;
		e.preventDefault();
	};
	if (stops.length < 2) return null;
	return (
		<div className="flex shrink-0 items-center gap-3 border-line border-t px-3">
			<div
				ref={bar}
				role="slider"
				tabIndex={0}
				aria-label="Time of the run"
				aria-valuemin={1}
				aria-valuemax={stops.length}
				aria-valuenow={here + 1}
				aria-valuetext={
					at && stop ? `event ${stop.seq} of ${last}, ${clock(stop.at)}, after ${stop.after}` : `live, event ${last} of ${last}`
				}
				className="relative h-8 min-w-0 flex-1 cursor-pointer touch-none"
				onPointerDown={(e) => {
					e.currentTarget.setPointerCapture(e.pointerId);
					drag(e);
				}}
				onPointerMove={drag}
				onKeyDown={keys}
			>
				<span className="absolute inset-x-0 top-1/2 h-0.5 bg-line" />
				<span className="absolute left-0 top-1/2 h-0.5 bg-accent" style={{ width: `${left * 100}%` }} />
				{thin(track.marks, first, last, places).map((m) => (
					<span
						key={`${m.kind} ${m.seq}`}
						aria-hidden
						className={`absolute top-1 h-2 w-0.5 ${looks[m.kind]}`}
						style={{ left: `${m.left * 100}%` }}
					>
						<span className="absolute -top-1 left-1 text-[10px] leading-none text-quiet">{signs[m.kind]}</span>
					</span>
				))}
				<span
					aria-hidden
					className="absolute top-1/2 h-4 w-4 -translate-x-1/2 -translate-y-1/2 rounded-full border-2 border-ground bg-accent"
					style={{ left: `${left * 100}%` }}
				/>
			</div>
			<span className="shrink-0 text-quiet tabular-nums">{at && stop ? `event ${stop.seq} of ${last}` : "live"}</span>
		</div>
	);
}

/** stepBefore is where the newest step before seq begins; 0 = there is none. */
export function stepBefore(steps: readonly number[], seq: number): number {
	let to = 0;
	for (const s of steps) if (s < seq) to = s;
	return to;
}

/** stepAfter is where the next step begins; 0 = what is live. */
export function stepAfter(steps: readonly number[], seq: number): number {
	return steps.find((s) => s > seq) ?? 0;
}
