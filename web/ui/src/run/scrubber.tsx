// The bar under a run: drag it, play it, or use the keys, and the screen shows what was recorded up
// to there. Nothing is executed.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Pause, Play } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { get } from "../api/http";
import type { Schemas } from "../api/types";
import { clock } from "../ui/format";
import { useSlow } from "../ui/slow";
import type { ThreadFold } from "./fold";
import { useKeys } from "./keys";
import { beatOf, bySeq, byTime, type Moment, momentsOf, type Speed, speeds, stepAfter, stepBefore, stopBy, thin, trackOf } from "./track";

const places = 200;
const trackMS = 500; // a track is made of all items: not in each frame
const looks = { turn: "bg-quiet", approval: "bg-warn", error: "bg-bad", rewound: "bg-pause", revision: "bg-good" };
const signs = { turn: "", approval: "!", error: "×", rewound: "↶", revision: "" };
const timeKey = "skete.scrubber.time";
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

interface Props {
	/** of the thread as it is now. */
	thread: ThreadFold;
	/** machine whose revisions are marked. */
	machine: string;
	version: number;
	/** first seq that is here. */
	first: number;
	/** at is where it looks; 0 = live. */
	at: number;
	onAt(at: number): void;
}

/** useRevisionTimes are the revisions of a machine, once the bar is used. */
function useRevisionTimes(machine: string, wanted: boolean) {
	const client = useQueryClient();
	const options = {
		queryKey: ["history", machine, "moments"],
		queryFn: () => get<Schemas["RevisionPage"]>(`/v1/sandboxes/${encodeURIComponent(machine)}/history?page_size=1000`),
		staleTime: 5000,
	};
	const known = useQuery({ ...options, enabled: wanted && !!machine });
	const ask = async () => (machine ? ((await client.fetchQuery(options).catch(() => null))?.items ?? []) : []);
	return { items: known.data?.items ?? [], ask };
}

export function Scrubber({ thread, machine, version, first, at, onAt }: Props) {
	const slow = useSlow(version, trackMS);
	// biome-ignore lint/correctness/useExhaustiveDependencies: the thread changes in place, with the version.
	const track = useMemo(() => trackOf(thread), [thread, slow]);
	const bar = useRef<HTMLDivElement>(null);
	const [used, setUsed] = useState(at > 0);
	const [timed, setTimed] = useState(() => localStorage.getItem(timeKey) === "1");
	const { items, ask } = useRevisionTimes(machine, used || at > 0);
	const { stops, steps } = track;
	const last = thread.seq;
	const moments = useMemo(() => momentsOf(stops, items), [stops, items]);
	const scale = useMemo(() => (timed ? byTime(stops) : bySeq(first, last)), [timed, stops, first, last]);
	const marks = useMemo(
		() => thin([...moments.map((m) => ({ seq: m.seq, kind: "revision" as const })), ...track.marks], scale, places),
		[moments, track, scale],
	);
	const here = at ? stopBy(stops, at) : stops.length - 1;
	const stop = stops[here];
	const left = at ? scale.left(Math.max(first, Math.min(at, last))) : 1;
	const go = (n: number) => {
		const to = stops[Math.max(0, Math.min(n, stops.length - 1))];
		if (to) onAt(n >= stops.length - 1 ? 0 : to.seq);
	};
	const play = usePlay(here, stops, at, go);
	const move = (to: () => void) => {
		play.pause();
		setUsed(true);
		to();
	};
	const drag = (e: React.PointerEvent) => {
		if (!bar.current?.hasPointerCapture(e.pointerId)) return;
		const r = bar.current.getBoundingClientRect();
		const share = Math.min(1, Math.max(0, (e.clientX - r.left) / r.width));
		move(() => go(Math.max(0, stopBy(stops, scale.seq(share)))));
	};
	/** toRevision goes to the revision before or after; where there are none, to a step. */
	const toRevision = async (back: boolean) => {
		if (!back && !at) return;
		const list = momentsOf(stops, await ask()).map((m) => m.seq);
		const from = list.length ? list : steps;
		move(() => onAt(back ? stepBefore(from, at || last) || at : stepAfter(from, at)));
	};
	const turnScale = () => {
		setTimed(!timed);
		if (timed) localStorage.removeItem(timeKey);
		else localStorage.setItem(timeKey, "1");
	};
	useKeys([
		["[", () => void toRevision(true)],
		["]", () => void toRevision(false)],
		["t", turnScale],
		["p", play.turn],
	]);
	const keys = (e: React.KeyboardEvent) => {
		if (e.key === "ArrowLeft" || e.key === "ArrowDown") move(() => go(here - 1));
		else if (e.key === "ArrowRight" || e.key === "ArrowUp") move(() => go(here + 1));
		else if (e.key === "PageDown") void toRevision(true);
		else if (e.key === "PageUp") void toRevision(false);
		else if (e.key === "Home") move(() => go(0));
		else if (e.key === "End") move(() => onAt(0));
		else if (e.key === " ") play.turn();
		else return;
		e.preventDefault();
	};
	if (stops.length < 2) return null;
	const revision = revisionAt(moments, at, items[0]?.n ?? 0);
	return (
		<div className="flex shrink-0 items-center gap-3 border-line border-t px-3">
			<Player play={play} />
			<div
				ref={bar}
				role="slider"
				tabIndex={0}
				aria-label="Time of the run"
				aria-valuemin={1}
				aria-valuemax={stops.length}
				aria-valuenow={here + 1}
				aria-valuetext={
					at && stop ? `event ${stop.seq} of ${last}, ${revision}${clock(stop.at)}, after ${stop.after}` : `live, event ${last} of ${last}`
				}
				className="relative h-8 min-w-0 flex-1 cursor-pointer touch-none"
				onFocus={() => setUsed(true)}
				onPointerDown={(e) => {
					e.currentTarget.setPointerCapture(e.pointerId);
					drag(e);
				}}
				onPointerMove={drag}
				onKeyDown={keys}
			>
				<span className="absolute inset-x-0 top-1/2 h-0.5 bg-line" />
				<span className="absolute left-0 top-1/2 h-0.5 bg-accent" style={{ width: `${left * 100}%` }} />
				{marks.map((m) => (
					<span
						key={`${m.kind} ${m.seq}`}
						aria-hidden
						data-mark={m.kind}
						className={`absolute h-2 w-0.5 ${m.kind === "revision" ? "bottom-1" : "top-1"} ${looks[m.kind]}`}
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
			<button
				type="button"
				className="button plain max-sm:hidden"
				aria-pressed={timed}
				title="Place events by their time, long silences cut short (t)"
				onClick={turnScale}
			>
				{timed ? "by time, silences cut" : "by event"}
			</button>
			<span className="shrink-0 text-quiet tabular-nums">{at && stop ? `event ${stop.seq} of ${last}` : "live"}</span>
		</div>
	);
}

/** revisionAt says which revision a look into the past has. */
function revisionAt(moments: readonly Moment[], at: number, newest: number): string {
	const n = moments.filter((m) => m.seq <= at).at(-1)?.n;
	return n ? `revision ${n} of ${newest}, ` : "";
}

interface Playing {
	speed: Speed;
	on: boolean;
	turn(): void;
	pause(): void;
	setSpeed(to: Speed): void;
}

/** usePlay goes from stop to stop until the last, which is live. */
function usePlay(here: number, stops: readonly { seq: number; at: string; after: string }[], at: number, go: (n: number) => void): Playing {
	const [on, setOn] = useState(false);
	const [speed, setSpeed] = useState<Speed>(1);
	const next = useRef(go);
	next.current = go;
	const end = !at || here >= stops.length - 1;
	const [a, b] = [stops[here], stops[here + 1]];
	const ms = on && a && b ? beatOf(a, b, speed, calm.matches) : 0;
	useEffect(() => {
		if (!on) return;
		if (end) {
			setOn(false);
			return;
		}
		const timer = setTimeout(() => next.current(here + 1), ms);
		return () => clearTimeout(timer);
	}, [on, end, here, ms]);
	return {
		on,
		speed,
		setSpeed,
		pause: () => setOn(false),
		turn: () => {
			if (!on && !at) next.current(0); // from the beginning
			setOn(!on);
		},
	};
}

function Player({ play }: { play: Playing }) {
	const Icon = play.on ? Pause : Play;
	return (
		<span className="flex shrink-0 items-center gap-1">
			<button
				type="button"
				className="button icon plain"
				aria-label={play.on ? "Pause" : "Play what was recorded"}
				title={`${play.on ? "Pause" : "Play what was recorded"} (p)`}
				onClick={play.turn}
			>
				<Icon size={14} aria-hidden />
			</button>
			<select
				aria-label="Speed"
				className="field max-sm:hidden"
				value={play.speed}
				onChange={(e) => play.setSpeed(Number(e.target.value) as Speed)}
			>
				{speeds.map((s) => (
					<option key={s} value={s}>
						{s}x
					</option>
				))}
			</select>
		</span>
	);
}
