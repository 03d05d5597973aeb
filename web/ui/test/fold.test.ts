import { expect, test } from "vitest";
import type { RunEvent } from "../src/api/types";
import { type CallItem, RunFold } from "../src/run/fold";

const event = (seq: number, kind: string, data: unknown): RunEvent => ({ seq, v: 1, kind, at: `2026-01-01T00:00:0${seq}Z`, data });

const asked = [
	event(1, "run.started", {}),
	event(2, "input", { from: "user", blocks: [{ kind: "text", text: "Do it" }] }),
	event(3, "model.completed", {
		message: { role: "assistant", blocks: [{ kind: "call", call: { id: "c1", name: "execute", args: { command: "ls" } } }] },
		usage: { input: 10, output: 2 },
		model: "m",
		stop: "calls",
		through: 2,
	}),
	event(4, "approval.asked", { call: "c1", tool: "execute", allowed: ["approve", "reject"] }),
];

function fold(events: RunEvent[]): RunFold {
	const f = new RunFold("t");
	for (const e of events) f.apply("", e);
	return f;
}

test("a call that waits is decided once, and ends", () => {
	const f = fold(asked);
	expect(f.waiting().map((w) => w.item.call)).toEqual(["c1"]);
	expect(f.thread("t").state).toBe("interrupted");
	f.apply("", event(5, "approval.decided", { call: "c1", decision: "reject", text: "no", by: "ana" }));
	f.apply("", event(6, "approval.decided", { call: "c1", decision: "approve", by: "bob" }));
	f.apply("", event(7, "tool.completed", { call: "c1", blocks: [{ kind: "text", text: "rejected" }], failed: true }));
	const item = f.thread("t").callItem("c1") as CallItem;
	expect(item.asked?.decided?.by).toBe("ana");
	expect(item.state).toBe("rejected");
	expect(f.waiting()).toEqual([]);
});

test("who did something is named as the log names it, else by an id", () => {
	const said = (kind: string, data: unknown) =>
		fold([...asked, event(5, kind, data)])
			.thread("t")
			.items.at(-1);
	const ana = { by: "key_0123456789abcdef", by_name: "ana" };
	expect(said("cancel.asked", ana)).toMatchObject({ text: "ana asked the run to end" });
	expect(said("cancel.asked", { by: "key_1" })).toMatchObject({ text: "key_1 asked the run to end" });
	expect(said("budget.changed", { ...ana, budget: {} })).toMatchObject({ text: "The budget was changed by ana" });
	expect(said("policy.changed", { ...ana, rules: [] })).toMatchObject({ text: "ana allowed the same from now on" });
	expect(said("thread.rewound", { ...ana, to: 2 })).toMatchObject({ text: "The conversation was taken back to event 2 by ana" });
	expect(said("thread.rewound", { by: "local", to: 2 })).toMatchObject({ text: "The conversation was taken back to event 2 by local" });
	expect(said("budget.changed", { budget: {} })).toMatchObject({ text: "The budget was changed" });
});

test("what the network refused is a row that failed", () => {
	const refused = { machine: "sbx_1", host: "2001:db8::1", port: 443, method: "GET", path: "/a", why: "no rule allows it" };
	const item = fold([...asked, event(5, "network.refused", refused)])
		.thread("t")
		.items.at(-1);
	expect(item).toMatchObject({
		kind: "note",
		note: "refused",
		text: "network refused GET [2001:db8::1]:443/a",
		detail: refused.why,
		refused,
		failed: true,
	});
});

test("an event that is told twice is taken once", () => {
	const f = fold([...asked, ...asked]);
	expect(f.thread("t").items.length).toBe(2);
	expect(f.thread("t").usage.input).toBe(10);
});

test("live text goes when the answer is there, and when it is void", () => {
	const f = fold(asked.slice(0, 2));
	const live = { thread: "t", run: "r", after: 2, kind: "text" as const };
	f.news({ ...live, text: "Hel" }, "now");
	f.news({ ...live, text: "lo" }, "now");
	expect(f.thread("t").items.at(-1)).toMatchObject({ kind: "text", text: "Hello", streaming: true });
	f.news({ ...live, text: "Hello, ", again: true }, "now");
	f.news({ ...live, text: "you" }, "now");
	expect(f.thread("t").items.at(-1)).toMatchObject({ kind: "text", text: "Hello, you", streaming: true });
	for (const _ of "12") {
		f.news({ ...live, kind: "tool_call", index: 0, name: "edit", again: true }, "now");
		f.news({ ...live, kind: "tool_args", index: 0, text: "{", again: true }, "now");
	}
	f.news({ ...live, kind: "tool_args", index: 0, text: "}" }, "now");
	expect(f.thread("t").items.at(-1)).toMatchObject({ kind: "call", tool: "edit", argsText: "{}" });
	f.news({ ...live, kind: "reset" }, "now");
	expect(f.thread("t").items.length).toBe(1);
	f.news({ ...live, text: "x" }, "now");
	f.apply("", asked[2]!);
	expect(f.thread("t").items.map((i) => i.kind)).toEqual(["input", "call"]);
});
