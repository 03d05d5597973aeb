import { QueryClient } from "@tanstack/react-query";
import { afterEach, expect, test, vi } from "vitest";
import type { Run, RunEvent } from "../src/api/types";
import { socket } from "../src/live";
import { followEvents } from "../src/live/events";
import { type CallItem, RunFold } from "../src/run/fold";
import { rowsOf } from "../src/run/rows";
import { RunStore, seedOf } from "../src/run/store";
import { beatOf, bySeq, byTime, momentsOf, quietMS, stepAfter, stepBefore, stopBy, thin, trackOf } from "../src/run/track";

class DeadSocket {
	static OPEN = 1;
	readyState = 0;
	close() {}
	send() {}
}

afterEach(() => vi.unstubAllGlobals());

const at = (n: number) => new Date(Date.parse("2026-01-01T00:00:00Z") + n * 1000).toISOString();

/** turn is an answer with one command, its start and its end: three events. */
function turn(n: number, first: number, blob?: string): RunEvent[] {
	const id = `c${n}`;
	const call = { id, name: "execute", args: blob ? undefined : { command: `echo ${n}` } };
	const text = { kind: "text", text: blob ? undefined : `Step ${n}` };
	return [
		{
			seq: first,
			v: 1,
			kind: "model.completed",
			at: at(first),
			data: {
				message: { role: "assistant", blocks: [text, { kind: "call", call }] },
				usage: { input: 10, output: 1 },
				cost_usd: 0.5,
				model: "m",
				stop: "tool_use",
				through: first - 1,
				blob,
			},
		},
		{ seq: first + 1, v: 1, kind: "tool.started", at: at(first + 1), data: { call: id, tool: "execute" } },
		{
			seq: first + 2,
			v: 1,
			kind: "tool.completed",
			at: at(first + 2),
			data: { call: id, blocks: [{ kind: "text", text: `${n}\n` }], exit: 0 },
		},
	];
}

const turns = (n: number) => Array.from({ length: n }, (_, i) => turn(i, 1 + 3 * i)).flat();

const run = (more: Partial<Run> = {}): Run =>
	({
		id: "r",
		thread: "t",
		agent: "coder",
		model: "m",
		steps: 10,
		cost_usd: 5,
		last_seq: 30,
		first_seq: 1,
		created_at: at(0),
		state: "running",
		...more,
	}) as Run;

/** serve answers the store's requests from a log, in pages of `size`. */
function serve(events: RunEvent[], size: number, blobs: Record<string, unknown> = {}): string[] {
	const asked: string[] = [];
	const answer = (path: string): unknown => {
		const blob = /^\/v1\/blobs\/(.*)$/.exec(path)?.[1];
		if (blob) return blobs[blob];
		if (path === "/v1/runs/r") return run();
		const before = Number(/before=(\d+)/.exec(path)?.[1] ?? Number.POSITIVE_INFINITY);
		const items = events.filter((e) => e.seq < before).slice(-size);
		return { items, before: items[0] && items[0].seq > 1 ? items[0].seq : undefined };
	};
	vi.stubGlobal("WebSocket", DeadSocket);
	vi.stubGlobal("fetch", async (path: string) => {
		asked.push(path);
		return new Response(JSON.stringify(answer(path)), { headers: { "Content-Type": "application/json" } });
	});
	return asked;
}

/** opened opens a store and waits for its first view. */
async function opened(): Promise<RunStore> {
	const store = new RunStore("r");
	await store.open();
	await vi.waitFor(() => expect(store.snapshot()).not.toBeNull());
	return store;
}

const state = (store: RunStore) => store.snapshot()!.fold.thread("t");

test("older pages come before what is there, in order, and the sums stay right", async () => {
	serve(turns(10), 6);
	const store = await opened();
	expect(state(store).items.map((i) => i.seq)).toEqual([25, 25, 28, 28]);
	expect([state(store).step, state(store).costUSD]).toEqual([10, 5]);
	await store.older();
	await vi.waitFor(() => expect(store.snapshot()!.before).toBe(19));
	const seqs = state(store).items.map((i) => i.seq);
	expect(seqs).toEqual([...seqs].sort((a, b) => a - b));
	expect(seqs.length).toBe(8);
	expect([state(store).step, state(store).costUSD]).toEqual([10, 5]);
	expect(state(store).items[0]!.step).toBe(7);
	store.close();
});

test("what comes behind the end of a run is asked for when the server tells that the run changed", async () => {
	const log = turns(2);
	const asked = serve(log, 6);
	let hear: (m: unknown) => void = () => {};
	class LiveSocket extends DeadSocket {
		override readyState = 1;
		onmessage: (e: { data: string }) => void = () => {};
		constructor() {
			super();
			hear = (m) => this.onmessage({ data: JSON.stringify(m) });
		}
	}
	vi.stubGlobal("WebSocket", LiveSocket);
	vi.stubGlobal("location", { protocol: "http:", host: "localhost" });
	const deaf = followEvents(new QueryClient());
	const store = await opened();
	socket.again();
	const changed = (id: string) => hear({ topic: "events", seq: 9, domain: { type: "run.succeeded", id } });
	const pages = () => asked.filter((path) => path.includes("/events?")).length;
	log.push({ seq: 7, v: 1, kind: "thread.rewound", at: at(7), data: { to: 3 } });
	changed("r");
	expect(pages()).toBe(1); // the stream tells it
	hear({ topic: "tree:r", end: { seq: 6, state: "succeeded" } });
	changed("other");
	expect(pages()).toBe(1);
	changed("r");
	await vi.waitFor(() => expect(state(store).items.at(-1)).toMatchObject({ kind: "note", note: "rewound" }));
	changed("r"); // once more, for what it brought is no new stream
	await vi.waitFor(() => expect(pages()).toBe(3));
	store.close();
	changed("r");
	expect(pages()).toBe(3);
	deaf();
	socket.close();
});

test("words are looked for in older pages, until one holds them", async () => {
	const asked = serve(turns(10), 6);
	const store = await opened();
	const told: number[] = [];
	expect(await store.findOlder("ECHO 3", new AbortController().signal, (before) => told.push(before))).toBe(true);
	expect(told).toEqual([19, 13, 7]);
	await vi.waitFor(() => expect(store.snapshot()!.before).toBe(7));
	expect(state(store).items[0]!.seq).toBe(7);
	expect([state(store).step, state(store).costUSD]).toEqual([10, 5]);
	const stop = new AbortController();
	stop.abort();
	const before = asked.length;
	expect(await store.findOlder("nowhere", stop.signal, () => {})).toBe(false);
	expect(asked.length).toBe(before);
	expect(await store.findOlder("nowhere", new AbortController().signal, () => {})).toBe(false);
	expect(store.snapshot()!.loadingOlder).toBe(false);
	store.close();
});

test("live news outlive the load of an older page", async () => {
	serve(turns(10), 6);
	const store = await opened();
	const fold = store.snapshot()!.fold;
	fold.news({ thread: "t", run: "r", after: 30, kind: "text", text: "Hel" }, "now");
	await store.older();
	await vi.waitFor(() => expect(store.snapshot()!.before).toBe(19));
	expect(state(store).items.at(-1)).toMatchObject({ kind: "text", text: "Hel", streaming: true });
	store.snapshot()!.fold.news({ thread: "t", run: "r", after: 30, kind: "text", text: "lo" }, "now");
	expect(state(store).items.at(-1)).toMatchObject({ text: "Hello" });
	store.close();
});

test("the past is what was known then, and asks the server for nothing", async () => {
	const asked = serve(turns(10), 100);
	const store = await opened();
	const before = asked.length;
	const past = store.past(8).thread("t");
	expect(past.items.map((i) => i.key)).toEqual(["e:1.0", "c:c0", "e:4.0", "c:c1", "e:7.0", "c:c2"]);
	expect((past.item("c:c2") as CallItem).state).toBe("running");
	expect([past.step, past.costUSD, past.seq]).toEqual([3, 1.5, 8]);
	expect(asked.length).toBe(before);
	store.close();
});

test("an answer that is not in the log is loaded once, and stays", async () => {
	const blocks = [
		{ kind: "text", text: "all of it" },
		{ kind: "call", call: { id: "c0", name: "execute", args: { command: "long" } } },
	];
	const asked = serve(turn(0, 1, "b1"), 100, { b1: { role: "assistant", blocks } });
	const store = await opened();
	expect(state(store).items[0]).toMatchObject({ kind: "text", text: "", blob: "b1" });
	await Promise.all([store.whole("t", 1, "b1"), store.whole("t", 1, "b1")]);
	expect(asked.filter((p) => p.endsWith("/b1")).length).toBe(1);
	expect(state(store).items[0]).toMatchObject({ text: "all of it", blob: undefined });
	expect((state(store).item("c:c0") as CallItem).args).toEqual({ command: "long" });
	expect(store.past(1).thread("t").items[0]).toMatchObject({ text: "all of it" });
	store.close();
});

test("raw events of a call are all that name it", async () => {
	serve(turns(3), 100);
	const store = await opened();
	const item = state(store).item("c:c1")!;
	expect(store.eventsOf("t", item).map((e) => e.kind)).toEqual(["model.completed", "tool.started", "tool.completed"]);
	store.close();
});

test("what is taken back is marked, and what comes after is not", () => {
	const f = new RunFold("t");
	for (const e of turns(2)) f.apply("", e);
	f.apply("", { seq: 7, v: 1, kind: "thread.rewound", at: at(7), data: { to: 3, by: "ana" } });
	for (const e of turn(5, 8)) f.apply("", e);
	const marked = f.thread("t").items.map((i) => [i.seq, !!i.rewound]);
	expect(marked).toEqual([
		[1, false],
		[1, false],
		[4, true],
		[4, true],
		[7, false],
		[8, false],
		[8, false],
	]);
});

test("sub-agents fold beside their parent, by their own seqs", () => {
	const f = new RunFold("t");
	for (const e of turns(1)) f.apply("", e);
	for (const e of turns(2)) f.apply("t/c0", { ...e, run: "r2" });
	for (const e of turns(1)) f.apply("t/c0/c1", e);
	expect(f.children("t").map((t) => [t.id, t.step, t.run])).toEqual([["t/c0", 2, "r2"]]);
	expect(f.children("t/c0").map((t) => t.id)).toEqual(["t/c0/c1"]);
	expect(f.thread("t").step).toBe(1);
});

test("output of a command grows, keeps its end, and gives way to the log", () => {
	const f = new RunFold("t");
	for (const e of turn(0, 1).slice(0, 2)) f.apply("", e);
	const live = { thread: "t", run: "r", after: 2, kind: "output" as const, call: "c0" };
	f.news({ ...live, text: "x".repeat(70_000) }, "now");
	f.news({ ...live, text: "end" }, "now");
	const item = () => f.thread("t").callItem("c0")!;
	expect([item().live.length, item().live.endsWith("end")]).toEqual([65_536, true]);
	f.news({ ...live, text: "from the middle", again: true }, "now");
	f.news({ ...live, text: " on" }, "now");
	expect(item().live).toBe("from the middle on");
	f.apply("", turn(0, 1)[2]!);
	expect([item().live, item().output, item().state]).toEqual(["", "0\n", "done"]);
	f.news({ ...live, text: "late" }, "now");
	expect(item().live).toBe("");
});

test("an event of a kind that is not known is a row, and the run goes on", () => {
	const f = new RunFold("t");
	f.apply("", { seq: 1, v: 1, kind: "tomorrow.invented", at: at(1), data: { any: 1 } });
	for (const e of turn(0, 2)) f.apply("", e);
	expect(f.thread("t").items.map((i) => i.kind)).toEqual(["note", "text", "call"]);
});

test("the seed counts no event twice that the record may not know yet", () => {
	const seed = seedOf(run({ steps: 9, cost_usd: 4.5, last_seq: 27 }), turns(10).slice(-6));
	expect([seed.step, seed.costUSD]).toEqual([8, 4]);
});

test("the bar stands at events and steps, and marks what matters", () => {
	const f = new RunFold("t");
	for (const e of turns(3)) f.apply("", e);
	const { stops, steps } = trackOf(f.thread("t"));
	expect(stops.map((s) => s.seq)).toEqual([1, 3, 4, 6, 7, 9]);
	expect(stops.at(-1)!.after).toBe("the end of execute echo 2");
	expect(steps).toEqual([1, 4, 7]);
	expect([stopBy(stops, 0), stopBy(stops, 5), stopBy(stops, 99)]).toEqual([-1, 2, 5]);
	expect([stepBefore(steps, 7), stepBefore(steps, 1), stepAfter(steps, 4), stepAfter(steps, 7)]).toEqual([4, 0, 7, 0]);
	const many = Array.from({ length: 5000 }, (_, i) => ({ seq: i + 1, kind: "error" as const }));
	expect(thin(many, bySeq(1, 5000), 200).length).toBeLessThanOrEqual(201);
});

const stopAt = (seq: number, seconds: number) => ({ seq, at: at(seconds), after: "x" });

test("the bar by time cuts silences, and leads back to the same stop", () => {
	const stops = [stopAt(1, 0), stopAt(2, 60), stopAt(9, 7200), stopAt(10, 7260)];
	const scale = byTime(stops);
	expect(stops.map((s) => scale.left(s.seq))).toEqual([0, 1 / 3, 2 / 3, 1]);
	for (const s of stops) expect(scale.seq(scale.left(s.seq))).toBe(s.seq);
	expect([scale.seq(0.34), scale.left(5)]).toEqual([2, 1 / 3]);
	expect(byTime([stopAt(1, 0), stopAt(2, 0)]).left(1)).toBe(1); // all at one time
	expect(bySeq(1, 10).left(99)).toBe(1);
});

test("a revision is first seen with the event after it", () => {
	const stops = [stopAt(3, 10), stopAt(5, 20), stopAt(8, 30)];
	const revs = [
		{ n: 4, time: at(31) },
		{ n: 3, time: at(20) },
		{ n: 2, time: at(12) },
		{ n: 1, time: at(1) },
	];
	expect(momentsOf(stops, revs)).toEqual([
		{ n: 1, seq: 3 },
		{ n: 3, seq: 5 },
	]);
	expect(momentsOf([], revs)).toEqual([]);
});

test("it plays as fast as is asked for, cuts silences, and gives who wants calm time to read", () => {
	const [a, b, c] = [stopAt(1, 0), stopAt(2, 1), stopAt(3, 3600)];
	expect([beatOf(a, b, 1, false), beatOf(a, b, 4, false), beatOf(b, c, 1, false), beatOf(b, c, 16, false)]).toEqual([1000, 250, 2000, 125]);
	expect(beatOf(a, a, 16, false)).toBeGreaterThan(0);
	expect(beatOf(a, b, 16, true)).toBeGreaterThanOrEqual(1000);
	expect(quietMS).toBe(60_000);
});

test("ten thousand items: the time is printed, the shape is checked", () => {
	const events = turns(5000);
	let f = new RunFold("t");
	for (const name of ["cold", "warm"]) {
		const start = performance.now();
		f = new RunFold("t");
		for (const e of events) f.apply("", e);
		console.log(`fold of 10,000 items, ${name}: ${(performance.now() - start).toFixed(1)} ms`);
	}
	const folded = performance.now();
	const { rows } = rowsOf(f.thread("t").items, { kinds: [], failed: false, changed: false });
	console.log(`rows of them: ${(performance.now() - folded).toFixed(1)} ms`);
	expect([f.thread("t").items.length, rows.length]).toEqual([10_000, 10_000]);
});
