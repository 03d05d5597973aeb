import { expect, test } from "vitest";
import type { RunEvent } from "../src/api/types";
import { changeOf, diff } from "../src/run/diff";
import { RunFold } from "../src/run/fold";
import { type Filter, foundIn, passes, RowBuilder, readsTitle, rowsOf } from "../src/run/rows";

const all: Filter = { kinds: [], failed: false, changed: false };

/** Log writes events at a second each, or later. */
class Log {
	readonly events: RunEvent[] = [];
	private now = Date.parse("2026-01-01T10:00:00Z");

	add(kind: string, data: unknown, afterMS = 1000): this {
		this.now += afterMS;
		this.events.push({ seq: this.events.length + 1, v: 1, kind, at: new Date(this.now).toISOString(), data });
		return this;
	}

	calls(...calls: [id: string, name: string, args: unknown][]): this {
		const blocks = calls.map(([id, name, args]) => ({ kind: "call", call: { id, name, args } }));
		return this.add("model.completed", {
			message: { role: "assistant", blocks },
			usage: { input: 1, output: 1 },
			model: "m",
			stop: "tool_use",
			through: 1,
		});
	}

	done(call: string, more: object = {}, afterMS = 1000): this {
		return this.add("tool.completed", { call, blocks: [{ kind: "text", text: `result of ${call}` }], ...more }, afterMS);
	}

	items() {
		const f = new RunFold("t");
		for (const e of this.events) f.apply("", e);
		return f.thread("t").items;
	}
}

test("calls in a row that only look are one row, with what they did", () => {
	const log = new Log()
		.calls(
			["a", "read_file", { file_path: "/a" }],
			["b", "grep", { pattern: "x" }],
			["c", "read_file", { file_path: "/b" }],
			["d", "execute", { command: "ls" }],
		)
		.done("a")
		.done("b")
		.done("c")
		.done("d");
	const { rows } = rowsOf(log.items(), all);
	expect(rows.map((r) => r.kind)).toEqual(["reads", "item"]);
	expect(rows[0]!.kind === "reads" && readsTitle(rows[0]!.items)).toBe("read 2 files, 1 search");
});

test("a look that failed is not folded away", () => {
	const log = new Log()
		.calls(["a", "read_file", {}], ["b", "read_file", {}], ["c", "read_file", {}])
		.done("a")
		.done("b", { failed: true, code: "not_found" })
		.done("c");
	expect(rowsOf(log.items(), all).rows.map((r) => r.kind)).toEqual(["item", "item", "item"]);
});

test("a long silence is a break that says why", () => {
	const log = new Log()
		.add("input", { from: "user", blocks: [{ kind: "text", text: "go" }] })
		.calls(["a", "execute", { command: "x" }])
		.add("approval.asked", { call: "a", tool: "execute", allowed: ["approve"] })
		.add("approval.decided", { call: "a", decision: "approve", by: "ana" }, 7_800_000)
		.done("a")
		.add("input", { from: "user", blocks: [{ kind: "text", text: "more" }] }, 120_000);
	const rows = rowsOf(log.items(), all).rows;
	expect(rows.filter((r) => r.kind === "gap").map((r) => r.kind === "gap" && r.text)).toEqual([
		"2 h 10 min waiting for approval",
		"2 min 0 s until the next message",
	]);
});

test("a command that runs long is no silence", () => {
	const log = new Log()
		.calls(["a", "execute", { command: "sleep 600" }])
		.done("a", {}, 600_000)
		.calls(["b", "execute", { command: "x" }]);
	expect(rowsOf(log.items(), all).rows.filter((r) => r.kind === "gap")).toEqual([]);
});

test("what a filter hides is counted", () => {
	const log = new Log()
		.add("input", { from: "user", blocks: [{ kind: "text", text: "go" }] })
		.calls(["a", "execute", { command: "x" }], ["b", "write_file", { file_path: "/f", content: "1\n2\n" }], ["c", "read_file", {}])
		.done("a", { exit: 3 })
		.done("b")
		.done("c");
	const items = log.items();
	const shown = (f: Partial<Filter>) => {
		const { rows, hidden } = rowsOf(items, { ...all, ...f });
		return [rows.map((r) => (r.kind === "item" ? r.item.key : r.kind)), hidden];
	};
	expect(shown({ failed: true })).toEqual([["c:a"], 3]);
	expect(shown({ changed: true })).toEqual([["c:b"], 3]);
	expect(shown({ kinds: ["messages", "reads"] })).toEqual([["e:1", "c:c"], 2]);
	expect(items.every((i) => passes(i, all))).toBe(true);
});

test("words are found in arguments and output, whatever their case", () => {
	const log = new Log()
		.calls(["a", "execute", { command: "make Parser" }], ["b", "execute", { command: "ls" }])
		.done("a")
		.done("b", { blocks: [{ kind: "text", text: "PARSER.go" }] });
	const { rows } = rowsOf(log.items(), all);
	expect(foundIn(rows, "parser")).toEqual([0, 1]);
	expect(foundIn(rows, "absent")).toEqual([]);
	expect(foundIn(rows, "")).toEqual([]);
});

test("a change shows the lines that differ, with those around them", () => {
	expect(diff("a\nb\nc\n", "a\nx\nc\ny\n").map((l) => `${l.kind[0]} ${l.text}`)).toEqual(["s a", "r b", "a x", "s c", "a y"]);
	expect(changeOf("edit_file", { file_path: "/f", old_string: "1\n2", new_string: "1\n3\n4" })).toMatchObject({
		path: "/f",
		added: 2,
		removed: 1,
	});
	expect(changeOf("write_file", { file_path: "/f", content: "1\n2\n" })).toMatchObject({ added: 2, removed: 0, whole: true });
	const patch = "*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** Add File: b\n+x\n*** End Patch";
	expect(changeOf("apply_patch", { patch })).toMatchObject({ path: "a and 1 more", added: 2, removed: 1 });
});

test("arguments that are none of a file tool are no change", () => {
	for (const args of [undefined, null, "text", 1, [], {}, { content: 5 }]) expect(changeOf("write_file", args)).toBe(null);
	for (const edits of [[null], [5], ["x"]]) expect(changeOf("edit_file", { edits })?.lines).toEqual([]);
});

test("sides that are too long to compare are shown whole", () => {
	const lines = (n: number, word: string) => Array.from({ length: n }, (_, i) => `${word}${i}`).join("\n");
	const d = diff(lines(5000, "a"), lines(5000, "b"));
	expect(d.filter((l) => l.kind === "removed").length).toBe(5000);
	expect(d.filter((l) => l.kind === "added").length).toBe(5000);
});

test("rows that grow with the log are those that are made at once", () => {
	const log = new Log();
	for (let n = 0; n < 12; n++) {
		log.add("input", { from: "user", blocks: [{ kind: "text", text: `${n}` }] }, n % 4 ? 1000 : 90_000);
		log.calls([`a${n}`, "read_file", {}], [`b${n}`, "grep", {}], [`c${n}`, n % 3 ? "ls" : "execute", {}]);
		log
			.done(`b${n}`, { failed: n % 5 === 0 })
			.done(`a${n}`)
			.done(`c${n}`, {}, 70_000);
		if (n === 8) log.add("thread.rewound", { to: 20 });
	}
	for (const filter of [all, { ...all, failed: true }, { ...all, kinds: ["reads" as const] }]) {
		const f = new RunFold("t");
		const builder = new RowBuilder(filter);
		for (const e of log.events) {
			f.apply("", e);
			const items = f.thread("t").items;
			expect(builder.build(items)).toEqual(rowsOf(items, filter));
		}
		for (const e of ["text", "reset"] as const) {
			f.news({ thread: "t", run: "r", after: 1, kind: e, text: "live" }, log.events.at(-1)!.at);
			expect(builder.build(f.thread("t").items)).toEqual(rowsOf(f.thread("t").items, filter));
		}
	}
});
