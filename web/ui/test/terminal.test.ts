import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Problem } from "../src/api/http";
import { parseFrame } from "../src/terminal/frames";
import { isQuestion } from "../src/terminal/guard";
import { Input } from "../src/terminal/input";
import { linkOf } from "../src/terminal/link";
import { asks, pasteOf } from "../src/terminal/paste";
import { controlled } from "../src/terminal/screen";
import { backBytes, TerminalSession, windowBytes } from "../src/terminal/session";
import { kept } from "../src/terminal/tabs";
import { offOf } from "../src/workspace/terminal_off";
import { wordOf } from "../src/workspace/terminal_view";

const text = (b: Uint8Array) => new TextDecoder().decode(b);
const bytes = (s: string) => new TextEncoder().encode(s);

/** FakeSocket plays the server's side of one connection. */
class FakeSocket {
	static made: FakeSocket[] = [];
	readyState = 0;
	binaryType = "";
	sent: Uint8Array[] = [];
	onopen: (() => void) | null = null;
	onmessage: ((e: { data: ArrayBuffer }) => void) | null = null;
	onclose: (() => void) | null = null;
	constructor(readonly url: string) {
		FakeSocket.made.push(this);
	}
	send(b: Uint8Array) {
		this.sent.push(b);
	}
	close() {
		this.readyState = 3;
	}
	open() {
		this.readyState = 1;
		this.onopen?.();
	}
	json(kind: number, value: unknown) {
		const body = bytes(JSON.stringify(value));
		this.onmessage?.({ data: Uint8Array.from([kind, ...body]).buffer });
	}
	started(acked = 0) {
		this.json(1, { ...process(0), stdin_acked: acked });
	}
	output(offset: number, data: Uint8Array) {
		const b = new Uint8Array(9 + data.length);
		b[0] = 2;
		new DataView(b.buffer).setBigUint64(1, BigInt(offset));
		b.set(data, 9);
		this.onmessage?.({ data: b.buffer });
	}
	die() {
		this.readyState = 3;
		this.onclose?.();
	}
	/** of lists the sent frames of a kind: offset and data. */
	of(kind: number): { offset: number; data: string }[] {
		return this.sent
			.filter((b) => b[0] === kind)
			.map((b) => ({ offset: Number(new DataView(b.buffer, b.byteOffset).getBigUint64(1)), data: text(b.subarray(9)) }));
	}
	get credit() {
		return this.of(0x16).at(-1)?.offset ?? 0;
	}
}

const process = (size: number, more = {}) => ({ key: "k", state: "running", stdout: { size }, stdin_acked: 0, ...more });

/** FakeScreen draws when it is told to. */
class FakeScreen {
	shown = "";
	waiting: (() => void)[] = [];
	constructor(readonly slow = false) {}
	write(data: Uint8Array, done: () => void) {
		this.shown += text(data);
		if (this.slow) this.waiting.push(done);
		else done();
	}
	size() {
		return { cols: 80, rows: 24 };
	}
	drawAll() {
		for (const done of this.waiting.splice(0)) done();
	}
}

const flush = () => vi.advanceTimersByTimeAsync(0);
const last = () => FakeSocket.made.at(-1)!;

function session(call: (path: string, o?: { method?: string; body?: unknown }) => unknown, known = false) {
	return new TerminalSession({
		sandbox: "sbx",
		key: "k",
		known,
		url: (path) => `ws://x${path}`,
		call: async <T>(path: string, o?: { method?: string; body?: unknown }) => (await call(path, o)) as T,
		open: (url) => new FakeSocket(url) as unknown as WebSocket,
		random: () => 0,
	});
}

async function live(screen = new FakeScreen()) {
	const s = session(() => process(0));
	s.open(screen);
	await flush();
	last().open();
	last().started();
	return { s, screen };
}

beforeEach(() => {
	vi.useFakeTimers();
	FakeSocket.made = [];
});
afterEach(() => vi.useRealTimers());

test("a new shell is started once, in a terminal of the screen's size, and read from its beginning", async () => {
	const calls: [string, unknown][] = [];
	const s = session((path, o) => {
		calls.push([path, o?.body]);
		return process(0);
	});
	s.open(new FakeScreen());
	await flush();
	expect(calls.length).toBe(1);
	expect(calls[0]![0]).toBe("/v1/sandboxes/sbx/processes");
	expect(calls[0]![1]).toMatchObject({ key: "k", terminal: { cols: 80, rows: 24 }, stdin: true, wait: true });
	expect(last().url).toBe("ws://x/v1/sandboxes/sbx/processes/k/attach?stdout_from=0&stderr_from=0");
	last().open();
	expect(s.snapshot().word).toBe("connecting");
	last().started();
	expect(s.snapshot().word).toBe("live");
});

test("a machine without bash has sh", async () => {
	const tried: unknown[] = [];
	const s = session((_, o) => {
		const { argv } = o!.body as { argv: string[] };
		tried.push(argv);
		if (argv[0] === "bash") throw new Problem(404, "not found", "there is no bash", "", "");
		return process(0);
	});
	s.open(new FakeScreen());
	await flush();
	expect(tried).toEqual([
		["bash", "-l"],
		["sh", "-l"],
	]);
	last().open();
	last().started();
	expect(s.snapshot().word).toBe("live");
});

test("after a reload the newest output is read again, without its torn first line", async () => {
	const size = backBytes + 1000;
	const s = session(() => process(size), true);
	const screen = new FakeScreen();
	s.open(screen);
	await flush();
	expect(last().url).toContain("stdout_from=1000&");
	last().open();
	last().started();
	expect(s.replaying).toBe(true);
	last().output(1000, bytes("torn\nwhole\n"));
	expect(screen.shown).toBe("whole\n");
	expect(s.replaying).toBe(true);
	last().output(1011, new Uint8Array(size - 1011).fill(65));
	expect(s.replaying).toBe(false);
});

test("a broken connection goes on at its offset; what comes twice is drawn once", async () => {
	const { s, screen } = await live();
	last().output(0, bytes("abc"));
	last().die();
	expect(s.snapshot().word).toBe("reconnecting");
	await vi.advanceTimersByTimeAsync(300);
	expect(FakeSocket.made.length).toBe(2);
	expect(last().url).toContain("stdout_from=3&");
	last().open();
	last().started();
	last().output(1, bytes("bcde"));
	expect(screen.shown).toBe("abcde");
});

test("output with a hole is not drawn: it is asked for again", async () => {
	const { screen } = await live();
	last().output(5, bytes("later"));
	await flush();
	expect(screen.shown).toBe("");
	expect(FakeSocket.made.length).toBe(2);
	expect(last().url).toContain("stdout_from=0&");
});

test("no more output is allowed than is drawn and fits into the window", async () => {
	const screen = new FakeScreen(true);
	const { s } = await live(screen);
	expect(last().credit).toBe(windowBytes);
	let at = 0;
	while (at < last().credit) {
		last().output(at, new Uint8Array(64 << 10));
		at += 64 << 10;
	}
	expect(last().credit).toBe(windowBytes);
	expect(s.inFlight).toBe(windowBytes);
	screen.drawAll();
	expect(s.inFlight).toBe(0);
	expect(last().credit).toBe(2 * windowBytes);
});

test("what an old connection still draws is not counted for the new one", async () => {
	const screen = new FakeScreen(true);
	await live(screen);
	last().output(0, new Uint8Array(windowBytes));
	last().die();
	await vi.advanceTimersByTimeAsync(300);
	last().open();
	last().started();
	screen.drawAll();
	expect(last().credit).toBe(windowBytes);
});

test("input has offsets, and is sent again from where the shell has it", async () => {
	const { s } = await live();
	s.type(bytes("ab"));
	s.type(bytes("cd"));
	expect(last().of(0x12)).toEqual([
		{ offset: 0, data: "ab" },
		{ offset: 2, data: "cd" },
	]);
	last().die();
	s.type(bytes("ef"));
	await vi.advanceTimersByTimeAsync(300);
	last().open();
	last().started(3);
	expect(last().of(0x12)).toEqual([{ offset: 3, data: "def" }]);
	last().json(6, { acked: 6 });
	expect(s.pending).toBe(0);
});

test("input that the server does not accept in time shows that the connection is dead", async () => {
	const { s } = await live();
	s.type(bytes("a"));
	await vi.advanceTimersByTimeAsync(12_001);
	expect(FakeSocket.made.length).toBe(2);
	last().open();
	last().started(0);
	expect(last().of(0x12)).toEqual([{ offset: 0, data: "a" }]);
	expect(s.snapshot().word).toBe("live");
});

test("a large paste is sent in pieces, and not more at once than the server queues", () => {
	const input = new Input();
	input.put(new Uint8Array(3 << 20).fill(1));
	let sent = 0;
	for (let piece = input.next(); piece; piece = input.next()) {
		expect(piece.offset).toBe(sent);
		expect(piece.data.length).toBeLessThanOrEqual(256 << 10);
		sent += piece.data.length;
	}
	expect(sent).toBe(1 << 20);
	input.ack(sent);
	expect(input.next()?.offset).toBe(1 << 20);
	expect(input.pending).toBe(2 << 20);
});

test("a shell that ends says how, and is not connected again", async () => {
	const { s } = await live();
	last().json(5, process(0, { state: "exited", exit: { code: 3 } }));
	last().die();
	await vi.advanceTimersByTimeAsync(10_000);
	expect(FakeSocket.made.length).toBe(1);
	expect(wordOf(s.snapshot())).toBe("ended with exit code 3");
});

test("a shell that the machine does not know any more has ended; one that could not be started says why", async () => {
	const gone = () => {
		throw new Problem(404, "not found", "there is no such command", "", "");
	};
	const known = session(gone, true);
	known.open(new FakeScreen());
	await flush();
	expect(known.snapshot()).toMatchObject({ word: "ended", lost: true });
	const fresh = session(() => {
		throw new Problem(403, "forbidden", "", "", "");
	});
	fresh.open(new FakeScreen());
	await flush();
	expect(fresh.snapshot()).toMatchObject({ word: "failed", problem: { status: 403 } });
});

test("a machine that is away for a moment is tried again", async () => {
	let n = 0;
	const s = session(() => {
		if (n++ === 0) throw new Problem(409, "conflict", "it is stopped", "", "");
		return process(0);
	}, true);
	s.open(new FakeScreen());
	await flush();
	expect(s.snapshot().word).toBe("reconnecting");
	await vi.advanceTimersByTimeAsync(300);
	last().open();
	last().started();
	expect(s.snapshot().word).toBe("live");
});

test("a shell whose machine was started anew has ended, and is not asked for its old output for ever", async () => {
	let state = "running";
	const s = session(() => process(0, { state }));
	s.open(new FakeScreen());
	await flush();
	last().open();
	last().started();
	last().output(0, bytes("some output"));
	last().die();
	state = "lost";
	await vi.advanceTimersByTimeAsync(300);
	last().open();
	last().json(7, { status: 400, title: "Bad Request", detail: "offset 11 is beyond the 0 bytes that there are" });
	await flush();
	expect(s.snapshot()).toMatchObject({ word: "ended", lost: true });
});

test("output that a machine has forgotten is read anew from what it has", async () => {
	const { s } = await live();
	last().output(0, bytes("some output"));
	last().die();
	await vi.advanceTimersByTimeAsync(300);
	expect(last().url).toContain("stdout_from=11&");
	last().open();
	last().json(7, { status: 400, title: "Bad Request" });
	await vi.advanceTimersByTimeAsync(1000);
	expect(last().url).toContain("stdout_from=0&");
	last().open();
	last().started();
	expect(s.snapshot().word).toBe("live");
});

test("a session at rest has no connection, and another screen is drawn anew", async () => {
	const { s } = await live();
	last().output(0, bytes("old\n"));
	s.rest();
	expect(last().readyState).toBe(3);
	const screen = new FakeScreen();
	s.open(screen);
	await flush();
	expect(last().url).toContain("stdout_from=0&");
});

test("dropped output is said", async () => {
	const { screen } = await live();
	last().json(4, { stream: "stdout", from: 0, to: 500 });
	last().output(500, bytes("x"));
	expect(screen.shown).toContain("[500 bytes of output were not kept]");
	expect(screen.shown.endsWith("x")).toBe(true);
});

test.each<[string, number[]]>([
	["empty", []],
	["a short offset", [2, 0, 0]],
	["no JSON", [1, 123]],
	["an offset that is no number here", [2, 255, 255, 255, 255, 255, 255, 255, 255]],
])("a frame is refused: %s", (_, b) => {
	expect(() => parseFrame(Uint8Array.from(b).buffer)).toThrow();
});

test("a bad frame ends the connection, which is made again", async () => {
	const { s } = await live();
	last().onmessage?.({ data: Uint8Array.from([2, 1]).buffer });
	expect(s.snapshot().word).toBe("reconnecting");
});

test("several lines and control characters are asked about; one line is not", () => {
	expect(asks(pasteOf("ls -l"))).toBe(false);
	expect(asks(pasteOf("ls\n"))).toBe(true);
	expect(asks(pasteOf("a\rb"))).toBe(true);
	const p = pasteOf("x\x1b[201~rm");
	expect(p).toEqual({ text: "x[201~rm", lines: 1, removed: 1 });
	expect(asks(p)).toBe(true);
});

test("links are web addresses or none", () => {
	expect(linkOf("https://a.example/x")?.host).toBe("a.example");
	for (const bad of ["javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "nonsense", "vscode://x"])
		expect(linkOf(bad)).toBe(null);
	expect(linkOf("https://аpple.com/")?.host).toBe("xn--pple-43d.com");
});

test("programs may ask for colours, and not change them", () => {
	expect(isQuestion("?")).toBe(true);
	expect(isQuestion("4;?")).toBe(true);
	expect(isQuestion("rgb:00/00/00")).toBe(false);
	expect(isQuestion("1;#ffffff;2;?")).toBe(false);
});

test("keys that were kept are keys, or nothing", () => {
	expect(kept(null)).toEqual([]);
	expect(kept("{")).toEqual([]);
	expect(kept('{"key":"a"}')).toEqual([]);
	expect(kept('[{"key":"a","number":1},{"key":"../b","number":2},null,{"key":"c"}]')).toEqual([{ key: "a", number: 1 }]);
});

test("Ctrl makes control characters of letters alone", () => {
	expect(controlled("c")).toBe("\x03");
	expect(controlled("[")).toBe("\x1b");
	expect(controlled("1")).toBe("1");
	expect(controlled("ab")).toBe("ab");
});

test.each([
	["running", undefined],
	["paused", "resume"],
	["stopped", "start"],
	["failed", "start"],
] as const)("a machine that is %s is helped by %s", (state, verb) => {
	expect(offOf("It", false, { state }, true)?.verb).toBe(verb);
	expect(offOf("It", false, { state }, true) === null).toBe(state === "running");
	expect(offOf("It", true, { state }, true)?.text).toContain("past");
	expect(offOf("It", false, { state }, false)?.text).toContain("read");
});
