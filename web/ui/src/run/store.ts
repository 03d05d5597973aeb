// A run on the screen: its newest events, those before them as they are asked for, and what
// comes. Components read the fold and a version of it that changes at most once a frame.

import { useEffect, useState, useSyncExternalStore } from "react";
import { get, Problem } from "../api/http";
import type { FollowMessage, Run, RunEvent, RunEventPage } from "../api/types";
import { socket } from "../live";
import { onDomain } from "../live/events";
import type { Block } from "./events";
import { type Item, RunFold, type Seed } from "./fold";

const firstPage = 500;
const olderPage = 1000;

export interface RunView {
	run: Run;
	fold: RunFold;
	version: number;
	/** before asks for older events; 0 = they are all here. */
	before: number;
	loadingOlder: boolean;
	/** ended: the stream of the run has told its end. */
	ended: boolean;
	/** firstSeq is of the oldest event that is here. */
	firstSeq: number;
	/** subEvents counts events of sub-agents: what was past changes with them as they come late. */
	subEvents: number;
	/** gap counts live news that were dropped. */
	gap: number;
	error: Problem | null;
}

export class RunStore {
	private state: RunView | null = null; // changes in place
	private view: RunView | null = null; // its copy of the last frame
	private events: RunEvent[] = []; // of the run's own thread, in order
	private subs = new Map<string, RunEvent[]>(); // of sub-agents
	private listeners = new Set<() => void>();
	private scheduled = false;
	private leave: (() => void) | undefined;
	private closed = false;
	private agent = "";
	private seed: Seed | null = null;
	private asked = new Set<string>(); // blobs that are loaded or on their way
	private error: Problem | null = null;

	constructor(readonly id: string) {}

	readonly watch = (on: () => void): (() => void) => {
		this.listeners.add(on);
		return () => this.listeners.delete(on);
	};

	readonly snapshot = (): RunView | null => this.view;

	/** failure is why the run could not be opened. */
	readonly failure = (): Problem | null => this.error;

	async open(): Promise<void> {
		try {
			const run = await get<Run>(`/v1/runs/${this.id}`);
			const page = await get<RunEventPage>(`/v1/runs/${this.id}/events?last=${firstPage}`);
			if (this.closed) return;
			this.events = page.items ?? [];
			this.agent = run.agent;
			this.seed = page.before ? seedOf(run, this.events) : null;
			this.state = {
				run,
				firstSeq: this.events[0]?.seq ?? 0,
				subEvents: 0,
				fold: this.refold(run.thread),
				version: 1,
				before: page.before ?? 0,
				loadingOlder: false,
				ended: false,
				gap: 0,
				error: null,
			};
			this.tell();
			this.follow();
		} catch (err) {
			this.fail(err);
		}
	}

	close(): void {
		this.closed = true;
		this.leave?.();
	}

	/** newest takes over what came since the run's stream has ended. */
	async newest(): Promise<void> {
		const v = this.state;
		if (!v) return;
		const page = await get<RunEventPage>(`/v1/runs/${this.id}/events?last=${firstPage}`);
		for (const e of page.items ?? []) this.note("", e);
		this.tell();
	}

	/** older loads a page of events from before the first that is here. */
	async older(): Promise<void> {
		const v = this.state;
		if (!v?.before || v.loadingOlder) return;
		v.loadingOlder = true;
		this.tell();
		try {
			const page = await get<RunEventPage>(`/v1/runs/${this.id}/events?last=${olderPage}&before=${v.before}`);
			this.prepend(page.items ?? [], page.before ?? 0);
		} catch (err) {
			this.trouble(err);
		}
		v.loadingOlder = false;
		this.tell();
	}

	/** findOlder loads pages until one holds the words, and says whether one did. told says how far it is. */
	async findOlder(words: string, signal: AbortSignal, told: (before: number) => void): Promise<boolean> {
		const v = this.state;
		if (!v?.before || v.loadingOlder) return false;
		const q = words.toLowerCase();
		const pages: RunEvent[][] = [];
		let before = v.before;
		let found = false;
		v.loadingOlder = true;
		try {
			while (before && !found && !signal.aborted) {
				const page = await get<RunEventPage>(`/v1/runs/${this.id}/events?last=${olderPage}&before=${before}`, signal);
				pages.unshift(page.items ?? []);
				found = (page.items ?? []).some((e) => holds(e.data, q));
				before = page.before ?? 0;
				told(before);
			}
		} catch (err) {
			if (err instanceof Problem) v.error = err;
			else if (!signal.aborted) throw err;
		}
		v.loadingOlder = false;
		this.prepend(pages.flat(), before);
		this.tell();
		return found;
	}

	/** prepend puts events before those that are here, and folds all anew. */
	private prepend(events: RunEvent[], before: number): void {
		const v = this.state;
		if (!v) return;
		this.events = events.concat(this.events);
		v.before = before;
		v.firstSeq = this.events[0]?.seq ?? 0;
		this.seed = before ? seedOf(v.run, this.events) : null;
		const fold = this.refold(v.run.thread);
		fold.adopt(v.fold);
		v.fold = fold;
	}

	/** past is the fold as it was at an event of the run's own thread; nothing is asked of the server. */
	past(at: number): RunFold {
		const fold = this.begin(this.state?.run.thread ?? "");
		let until = "";
		for (const e of this.events) {
			if (e.seq > at) break;
			fold.apply("", e);
			until = e.at;
		}
		for (const [thread, list] of this.subs) for (const e of list) if (Date.parse(e.at) <= Date.parse(until)) fold.apply(thread, e);
		return fold;
	}

	/** seqAt is the last event of the run's own thread that was there at a time, ms; 0 = it is not here. */
	seqAt(time: number): number {
		return this.events.filter((e) => Date.parse(e.at) <= time).at(-1)?.seq ?? 0;
	}

	/** eventsOf are those that an item is made of. */
	eventsOf(thread: string, item: Item): RunEvent[] {
		const list = this.subs.get(thread) ?? this.events;
		const call = item.kind === "call" ? item.call : "";
		return list.filter((e) => e.seq === item.seq || (call && (e.data as { call?: string } | null)?.call === call));
	}

	/** whole loads an answer of which the log has only the shape. */
	async whole(thread: string, seq: number, blob: string): Promise<void> {
		if (this.asked.has(blob)) return;
		this.asked.add(blob);
		try {
			const message = await get<{ blocks: Block[] | null }>(`/v1/blobs/${encodeURIComponent(blob)}`);
			this.replace(thread, seq, message);
			this.state?.fold.threads.get(thread)?.fill(seq, message.blocks);
			if (this.state) this.state.subEvents++;
			this.tell();
		} catch (err) {
			this.asked.delete(blob);
			throw err;
		}
	}

	/** replace keeps the answer in the event, so that later folds have it. */
	private replace(thread: string, seq: number, message: unknown): void {
		const list = this.subs.get(thread) ?? this.events;
		const i = list.findIndex((e) => e.seq === seq);
		const e = list[i];
		if (e) list[i] = { ...e, data: { ...(e.data as object), message, blob: undefined } };
	}

	private begin(root: string): RunFold {
		const fold = new RunFold(root);
		const t = fold.thread(root);
		if (this.seed) t.seed(this.seed);
		else t.agent = this.agent;
		return fold;
	}

	private refold(root: string): RunFold {
		const fold = this.begin(root);
		for (const e of this.events) fold.apply("", e);
		for (const [thread, list] of this.subs) for (const e of list) fold.apply(thread, e);
		return fold;
	}

	private follow(): void {
		const v = this.state!;
		// What comes after the end, as when another page takes the conversation back, is told of alone.
		const deaf = onDomain((e) => {
			const ours = e.resync || (e.id === this.id && e.type?.startsWith("run."));
			if (ours && v.ended) void this.newest().catch((err) => this.trouble(err));
		});
		const leave = socket.subscribe({
			name: `tree:${this.id}`,
			live: true,
			from: () => v.fold.thread(v.run.thread).seq + 1,
			threads: () => Object.fromEntries([...v.fold.threads].filter(([id]) => id !== v.run.thread).map(([id, t]) => [id, t.seq + 1])),
			on: (m) => this.take(m),
		});
		this.leave = () => {
			deaf();
			leave();
		};
	}

	private take(m: FollowMessage): void {
		const v = this.state!;
		if (m.event) this.note(m.thread ?? "", m.event);
		else if (m.live) v.fold.news(m.live, new Date().toISOString());
		else if (m.gap) v.gap += m.gap.lost;
		else if (m.end) v.ended = true;
		else if (m.problem) v.error = new Problem(m.problem.status ?? 0, m.problem.title ?? "", m.problem.detail ?? "", "", "");
		this.tell();
	}

	private note(thread: string, e: RunEvent): void {
		const v = this.state!;
		if (!v.fold.apply(thread, e)) return;
		if (!thread || thread === v.run.thread) this.events.push(e);
		else {
			const list = this.subs.get(thread) ?? [];
			list.push(e);
			this.subs.set(thread, list);
			v.subEvents++;
		}
	}

	/** trouble says of a run that is on the screen that something of it could not be loaded. */
	private trouble(err: unknown): void {
		if (!(err instanceof Problem)) throw err;
		if (this.state) this.state.error = err;
		this.tell();
	}

	private fail(err: unknown): void {
		if (!(err instanceof Problem)) throw err;
		this.error = err;
		this.tell();
	}

	/** tell draws at most once a frame; a tab that is not seen has no frames, and draws once a second. */
	private tell(): void {
		if (this.scheduled) return;
		this.scheduled = true;
		const draw = () => {
			this.scheduled = false;
			if (this.state) {
				this.state.version++;
				this.view = { ...this.state };
			}
			for (const on of this.listeners) on();
		};
		if (document.hidden) setTimeout(draw, 1000);
		else requestAnimationFrame(draw);
	}
}

/** holds reports whether a text in an event's data has the words, which are in small letters. */
function holds(data: unknown, words: string): boolean {
	if (typeof data === "string") return data.toLowerCase().includes(words);
	if (!data || typeof data !== "object") return false;
	return Object.values(data).some((v) => holds(v, words));
}

/** seedOf is what the run's record says beyond the events that are here. */
export function seedOf(run: Run, events: RunEvent[]): Seed {
	const here = new RunFold(run.thread);
	for (const e of events) if (e.seq <= run.last_seq) here.apply("", e);
	const t = here.thread(run.thread);
	return {
		step: Math.max(0, run.steps - t.step),
		costUSD: Math.max(0, run.cost_usd - t.costUSD),
		agent: run.agent,
		title: run.title ?? "",
		model: run.model,
		machine: run.sandbox ?? "",
		startedAt: run.created_at,
		todos: t.todos.length ? [] : (run.todos ?? []),
	};
}

/** useRun opens a run; null = it is not there yet. */
export function useRun(id: string): { store: RunStore; view: RunView | null; error: Problem | null } {
	const [store, setStore] = useState(() => new RunStore(id));
	useEffect(() => {
		const s = new RunStore(id);
		setStore(s);
		void s.open();
		return () => s.close();
	}, [id]);
	const view = useSyncExternalStore(store.watch, store.snapshot);
	const error = useSyncExternalStore(store.watch, store.failure);
	return { store, view, error };
}
