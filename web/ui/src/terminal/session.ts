// A shell in a terminal of a machine, and its connection. The shell outlives connections and
// reloads: its output is read from an offset on, its input is written at offsets.

import { Problem } from "../api/http";
import type { Schemas } from "../api/types";
import { wait } from "../live/socket";
import { creditFrame, type Frame, type ProcessInfo, parseFrame, resizeFrame, signalFrame, stdinFrame } from "./frames";
import { Input } from "./input";

/** windowBytes may be on their way or wait to be drawn. The server goes beyond it by a frame at most, which is 256 KB. */
export const windowBytes = 256 << 10;
/** backBytes of output are read again after a reload. */
export const backBytes = 256 << 10;
/** spoolBytes of output are kept in the machine. */
const spoolBytes = 2 << 20;
/** ackMS is how long the server may take to accept input before the connection counts as dead. */
const ackMS = 12_000;

/** Where a session is. Only ended and failed are for good. */
export type Word = "connecting" | "live" | "reconnecting" | "ended" | "failed" | "resting";

export interface SessionState {
	word: Word;
	/** exit of a shell that has ended; undefined = it is not known. */
	exit?: Schemas["Exit"];
	/** lost: the machine was started anew. */
	lost?: boolean;
	problem?: Problem;
	/** tries since the connection broke */
	tries: number;
}

/** Screen is where the output goes. done is called when it is drawn. */
export interface Screen {
	write(data: Uint8Array, done: () => void): void;
	size(): { cols: number; rows: number };
}

export interface SessionOptions {
	sandbox: string;
	key: string;
	/** known: it was started before. */
	known: boolean;
	/** url is that of a WebSocket for a path of the API. */
	url(path: string): string;
	call<T>(path: string, o?: { method?: string; body?: unknown }): Promise<T>;
	open?(url: string): WebSocket;
	random?(): number;
}

/** shells are tried in this order: the next one where the machine does not have the one before. */
const shells = ["bash", "sh"];

export class TerminalSession {
	private ws: WebSocket | null = null;
	private screen: Screen | null = null;
	private input = new Input();
	private listeners = new Set<() => void>();
	private state: SessionState = { word: "resting", tries: 0 };
	private at = 0; // the next byte of output that is wanted
	private drawn = 0; // up to where output is drawn
	private replayEnd = 0; // output before it was there already
	private skipLine = false; // the first line of a replay is a torn one
	private placed = false; // at is known
	private typed = false; // the input has begun
	private got = 0; // bytes of this connection
	private used = 0; // of them drawn
	private allowed = 0; // of them allowed
	private turn = 0; // of connections: what is left of an old one is not counted
	private retry: ReturnType<typeof setTimeout> | undefined;
	private dog: ReturnType<typeof setTimeout> | undefined;
	private known: boolean;

	constructor(private readonly o: SessionOptions) {
		this.known = o.known;
	}

	get key(): string {
		return this.o.key;
	}

	readonly watch = (on: () => void): (() => void) => {
		this.listeners.add(on);
		return () => this.listeners.delete(on);
	};

	readonly snapshot = (): SessionState => this.state;

	/** replaying: what is drawn now was written before; questions of programs in it are not answered. */
	get replaying(): boolean {
		return this.drawn < this.replayEnd;
	}

	/** inFlight counts bytes that came and are not drawn. */
	get inFlight(): number {
		return this.got - this.used;
	}

	/** open connects the shell with a screen, and starts it if it is new. */
	open(screen: Screen): void {
		if (screen !== this.screen) this.placed = false;
		this.screen = screen;
		if (this.over) return;
		this.set({ word: "connecting", tries: 0 });
		void this.connect();
	}

	/** rest ends the connection; the shell goes on. */
	rest(): void {
		this.drop();
		clearTimeout(this.retry);
		if (!this.over) this.set({ word: "resting", tries: 0 });
	}

	/** again connects anew where the output is, at once. */
	again(): void {
		if (this.over || !this.screen || this.state.word === "resting") return;
		clearTimeout(this.retry);
		this.drop();
		this.set({ ...this.state, word: "reconnecting" });
		void this.connect();
	}

	type(data: Uint8Array): void {
		if (this.over) return;
		this.input.put(data);
		this.flush();
	}

	resize(cols: number, rows: number): void {
		this.send(resizeFrame(cols, rows));
	}

	/** hangUp ends the shell as a terminal that is closed does. */
	hangUp(): void {
		this.send(signalFrame(1));
	}

	/** pending counts typed bytes that the shell has not got. */
	get pending(): number {
		return this.input.pending;
	}

	private get over(): boolean {
		return this.state.word === "ended" || this.state.word === "failed";
	}

	private path(rest = ""): string {
		return `/v1/sandboxes/${encodeURIComponent(this.o.sandbox)}/processes${rest}`;
	}

	private own(rest = ""): string {
		return this.path(`/${encodeURIComponent(this.o.key)}${rest}`);
	}

	private async connect(): Promise<void> {
		const turn = ++this.turn;
		try {
			await this.place(turn);
		} catch (err) {
			if (turn === this.turn) this.refused(err);
			return;
		}
		if (turn !== this.turn || this.over) return;
		this.attach(turn);
	}

	/** place finds out from where on the output is wanted; a new shell is started. */
	private async place(turn: number): Promise<void> {
		if (this.placed) return;
		const fresh = !this.known;
		const p = fresh ? await this.start() : await this.o.call<ProcessInfo>(this.own());
		if (turn !== this.turn) return;
		this.known = true;
		this.placed = true;
		const size = p.stdout.size ?? 0;
		this.at = this.drawn = Math.max(0, size - backBytes);
		this.skipLine = this.at > 0;
		this.replayEnd = fresh ? 0 : size;
	}

	private async start(): Promise<ProcessInfo> {
		for (const shell of shells.slice(0, -1)) {
			try {
				return await this.startShell(shell);
			} catch (err) {
				if (!(err instanceof Problem) || err.status !== 404) throw err;
			}
		}
		return this.startShell(shells.at(-1)!);
	}

	/** startShell repeats nothing: a key never runs twice. */
	private startShell(shell: string): Promise<ProcessInfo> {
		const { cols, rows } = this.screen!.size();
		return this.o.call<ProcessInfo>(this.path(), {
			method: "POST",
			body: {
				key: this.o.key,
				argv: [shell, "-l"],
				env: { TERM: "xterm-256color", COLORTERM: "truecolor" },
				terminal: { cols, rows },
				stdin: true,
				wait: true,
				spool_bytes_max: spoolBytes,
			},
		});
	}

	private attach(turn: number): void {
		const url = this.o.url(this.own(`/attach?stdout_from=${this.at}&stderr_from=0`));
		const ws = (this.o.open ?? ((to) => new WebSocket(to)))(url);
		ws.binaryType = "arraybuffer";
		this.ws = ws;
		this.got = this.used = this.allowed = 0;
		let opened = false;
		ws.onopen = () => {
			opened = true;
			this.allow();
		};
		ws.onmessage = (e) => this.receive(turn, e.data as ArrayBuffer);
		ws.onclose = () => {
			if (this.ws !== ws) return;
			this.drop();
			if (this.over) return;
			if (opened) this.later();
			else void this.ask();
		};
	}

	private receive(turn: number, message: ArrayBuffer): void {
		let f: Frame;
		try {
			f = parseFrame(message);
		} catch {
			this.drop();
			this.later();
			return;
		}
		this.take(turn, f);
	}

	private take(turn: number, f: Frame): void {
		switch (f.kind) {
			case "started":
				this.begin(f.process);
				return;
			case "output":
				this.output(turn, f.offset, f.data);
				return;
			case "gap":
				this.gap(turn, f.to);
				return;
			case "ack":
				this.input.ack(f.acked);
				this.feed();
				this.flush();
				return;
			case "exited":
				this.end(f.process);
				return;
			case "problem":
				this.refused(new Problem(f.problem.status ?? 0, f.problem.title ?? "", f.problem.detail ?? "", f.problem.hint ?? "", ""));
		}
	}

	private begin(p: ProcessInfo): void {
		this.input.begin(p.stdin_acked, !this.typed);
		this.typed = true;
		this.set({ word: "live", tries: 0 });
		const { cols, rows } = this.screen!.size();
		this.resize(cols, rows);
		this.flush();
	}

	private output(turn: number, offset: number, data: Uint8Array): void {
		const seen = this.at - offset;
		if (seen < 0) {
			// Bytes are missing: the connection is asked for them again.
			this.again();
			return;
		}
		this.got += data.length;
		const fresh = data.subarray(Math.min(seen, data.length));
		this.at += fresh.length;
		this.draw(turn, this.whole(fresh), this.at, data.length);
	}

	/** whole leaves out the torn line that a replay begins with. */
	private whole(data: Uint8Array): Uint8Array {
		if (!this.skipLine) return data;
		const eol = data.indexOf(10);
		if (eol < 0 && this.at < this.replayEnd) return data.subarray(data.length);
		this.skipLine = false;
		return data.subarray(eol + 1);
	}

	private gap(turn: number, to: number): void {
		if (to <= this.at) return;
		const lost = to - this.at;
		this.at = to;
		this.skipLine = false;
		const text = `\x1b[0m\r\n[${lost} bytes of output were not kept]\r\n`;
		this.draw(turn, new TextEncoder().encode(text), to, 0);
	}

	private draw(turn: number, data: Uint8Array, to: number, came: number): void {
		this.screen!.write(data, () => {
			this.drawn = Math.max(this.drawn, to);
			if (turn !== this.turn) return;
			this.used += came;
			this.allow();
		});
	}

	/** allow lets more output come, once enough is drawn to be worth a frame. */
	private allow(): void {
		const limit = this.used + windowBytes;
		if (this.allowed && limit - this.allowed < windowBytes / 4) return;
		if (this.send(creditFrame(limit))) this.allowed = limit;
	}

	private flush(): void {
		if (this.state.word !== "live") return;
		for (let piece = this.input.next(); piece; piece = this.input.next()) this.send(stdinFrame(piece.offset, piece.data));
		if (this.input.waits && !this.dog) this.feed();
	}

	/** feed gives the server its time to accept what is under way. */
	private feed(): void {
		clearTimeout(this.dog);
		this.dog = this.input.waits ? setTimeout(() => this.again(), ackMS) : undefined;
	}

	private send(frame: Uint8Array<ArrayBuffer>): boolean {
		if (this.ws?.readyState !== WebSocket.OPEN) return false;
		this.ws.send(frame);
		return true;
	}

	private end(p: ProcessInfo): void {
		this.drop();
		this.set({ word: "ended", exit: p.exit ?? undefined, lost: p.state === "lost", tries: 0 });
	}

	/** ask finds out why a connection was refused: a WebSocket does not tell, and an offset means nothing after a restart. */
	private async ask(): Promise<void> {
		const turn = this.turn;
		let p: ProcessInfo;
		try {
			p = await this.o.call<ProcessInfo>(this.own());
		} catch (err) {
			if (turn === this.turn && !this.over) this.refused(err);
			return;
		}
		if (turn !== this.turn || this.over) return;
		if (p.state === "lost") {
			this.end(p);
			return;
		}
		if (p.stdout.size < this.at) this.placed = false;
		this.later();
	}

	private refused(err: unknown): void {
		this.drop();
		const p = err instanceof Problem ? err : new Problem(0, String(err), "", "", "");
		// A machine that is being stopped or started is seen by its events.
		if (p.status === 0 || p.status === 429 || p.status >= 500 || (p.status === 409 && this.known)) {
			this.later(p);
			return;
		}
		if (p.status === 400 && this.known) {
			void this.ask();
			return;
		}
		if (p.status === 404 && this.known) {
			this.set({ word: "ended", lost: true, problem: p, tries: 0 });
			return;
		}
		this.set({ word: "failed", problem: p, tries: 0 });
	}

	private later(problem?: Problem): void {
		const tries = this.state.tries + 1;
		this.set({ word: "reconnecting", problem, tries });
		clearTimeout(this.retry);
		this.retry = setTimeout(() => void this.connect(), wait(tries, this.o.random ?? Math.random));
	}

	private drop(): void {
		clearTimeout(this.dog);
		this.dog = undefined;
		this.turn++;
		const ws = this.ws;
		this.ws = null;
		if (!ws) return;
		ws.onopen = ws.onmessage = ws.onclose = null;
		ws.close();
	}

	private set(to: SessionState): void {
		this.state = to;
		for (const on of this.listeners) on();
	}
}
