// The one WebSocket of a tab: topics of /v1/follow, resumed by their last seq wherever the
// connection breaks. A connection that says nothing for watchdogMS is dead, whatever TCP says:
// the server sends a heartbeat every five seconds.

import type { FollowMessage } from "../api/types";

/** LiveState is how the connection is. lastAt = when the last message came, ms. */
export interface LiveState {
	state: "connecting" | "live" | "lost";
	/** since when it has been so, ms */
	since: number;
	lastAt: number;
	/** tries since it was lost */
	tries: number;
}

/** Topic is what a subscriber follows. */
export interface Topic {
	name: string;
	/** from is the first seq that is wanted, asked anew at each connection; 0 = the server's default. */
	from(): number;
	/** threads are the same for sub-agents, by thread. */
	threads?(): Record<string, number>;
	live?: boolean;
	on(m: FollowMessage): void;
}

const watchdogMS = 12_000;
const waitMinMS = 250;
const waitMaxMS = 5_000;

/** wait is how long to wait before the next try. Half of it is chance, so that tabs do not come at once. */
export function wait(tries: number, random: () => number): number {
	const most = Math.min(waitMaxMS, waitMinMS * 2 ** Math.min(tries, 10));
	return most / 2 + (most / 2) * random();
}

export interface SocketOptions {
	url(): string;
	/** open makes a WebSocket; tests hand in another. */
	open?(url: string): WebSocket;
	/** onFail is called when a connection could not be made: the login may be over. */
	onFail?(): void;
}

export class FollowSocket {
	private ws: WebSocket | null = null;
	private topics = new Map<string, Topic>();
	private listeners = new Set<() => void>();
	private dog: ReturnType<typeof setTimeout> | undefined;
	private retry: ReturnType<typeof setTimeout> | undefined;
	private status: LiveState = { state: "connecting", since: Date.now(), lastAt: 0, tries: 0 };
	private ended = false;

	constructor(private readonly o: SocketOptions) {}

	/** subscribe follows a topic until the function that it returns is called. One subscriber a topic. */
	subscribe(t: Topic): () => void {
		this.topics.set(t.name, t);
		if (!this.ws) this.connect();
		else if (this.ws.readyState === WebSocket.OPEN) this.ask(t);
		return () => {
			if (this.topics.get(t.name) !== t) return;
			this.topics.delete(t.name);
			if (this.ws?.readyState === WebSocket.OPEN) this.ws.send(JSON.stringify({ unsubscribe: t.name }));
		};
	}

	readonly watch = (on: () => void): (() => void) => {
		this.listeners.add(on);
		return () => this.listeners.delete(on);
	};

	readonly snapshot = (): LiveState => this.status;

	/** again connects at once, as a person asks for it. */
	again(): void {
		clearTimeout(this.retry);
		this.drop();
		this.connect();
	}

	close(): void {
		this.ended = true;
		clearTimeout(this.retry);
		this.drop();
	}

	private connect(): void {
		if (this.ended) return;
		const ws = (this.o.open ?? ((url) => new WebSocket(url)))(this.o.url());
		this.ws = ws;
		let opened = false;
		this.feed();
		ws.onopen = () => {
			opened = true;
			for (const t of this.topics.values()) this.ask(t);
			this.set("live", 0);
		};
		ws.onmessage = (e) => {
			this.feed();
			this.status.lastAt = Date.now();
			this.take(JSON.parse(String(e.data)) as FollowMessage);
		};
		ws.onclose = () => {
			if (this.ws !== ws) return;
			if (!opened) this.o.onFail?.();
			this.lose();
		};
	}

	private ask(t: Topic): void {
		this.ws?.send(JSON.stringify({ subscribe: t.name, from: t.from() || undefined, threads: t.threads?.(), live: t.live || undefined }));
	}

	private take(m: FollowMessage): void {
		if (!m.topic) return;
		this.topics.get(m.topic)?.on(m);
	}

	/** feed keeps the dog quiet. */
	private feed(): void {
		clearTimeout(this.dog);
		this.dog = setTimeout(() => this.lose(), watchdogMS);
	}

	private lose(): void {
		this.drop();
		const tries = this.status.tries + 1;
		this.set("lost", tries);
		clearTimeout(this.retry);
		this.retry = setTimeout(() => this.connect(), wait(tries, Math.random));
	}

	private drop(): void {
		clearTimeout(this.dog);
		const ws = this.ws;
		this.ws = null;
		if (!ws) return;
		ws.onopen = ws.onmessage = ws.onclose = null;
		ws.close();
	}

	private set(state: LiveState["state"], tries: number): void {
		const since = this.status.state === state ? this.status.since : Date.now();
		this.status = { ...this.status, state, since, tries };
		for (const on of this.listeners) on();
	}
}
