import { expect, test } from "vitest";
import { canonical, changes, draftOf, hosts, kindOf, parseField, read, rounded } from "../src/approvals/args";
import { type Ask, byAge } from "../src/approvals/call";
import { applied, diff, editsOf, hunks } from "../src/approvals/diff";
import { answer, fieldsOf, formOf } from "../src/approvals/form";
import { decidedWords, left } from "../src/approvals/words";

test("changes are by value, whatever the order of keys", () => {
	expect(canonical({ b: 1, a: [{ d: 1, c: 2 }] })).toBe(canonical({ a: [{ c: 2, d: 1 }], b: 1 }));
	expect(changes({ a: { x: 1, y: 2 }, b: 1 }, { b: 2, a: { y: 2, x: 1 } })).toEqual([{ name: "b", before: 1, after: 2 }]);
	expect(changes({ a: 1 }, { b: null })).toEqual([
		{ name: "a", before: 1, after: undefined },
		{ name: "b", before: undefined, after: null },
	]);
	expect(changes({}, { toString: 1 })).toEqual([{ name: "toString", before: undefined, after: 1 }]);
});

test("a draft that was not touched is what it was", () => {
	const args = { s: "a\nb", n: 1.5, f: false, l: ["x", "y"], e: [], j: { k: [1, "\n"] }, z: null, m: ["a\nb", ""] };
	expect(read(draftOf(args))).toEqual({ args });
	expect(Object.values(args).map(kindOf)).toEqual(["text", "number", "flag", "lines", "json", "json", "json", "json"]);
});

test.each([
	["number", "1e3", { value: 1000 }],
	["number", "-0.5", { value: -0.5 }],
	["number", "01", null],
	["number", "0x10", null],
	["number", "NaN", null],
	["number", "", null],
	["lines", "a\n\nb\n", { value: ["a", "b"] }],
	["json", "{", null],
	["json", "null", { value: null }],
	["flag", "true", { value: true }],
] as const)("a field of kind %s reads %j", (kind, text, want) => {
	const got = parseField(kind, text);
	if (want) expect(got).toEqual(want);
	else expect(got).toHaveProperty("error");
});

test("numbers that JavaScript rounds are found at any depth", () => {
	expect(rounded(JSON.parse(`{"a":[{"b":12345678901234567890}]}`))).toBe(true);
	expect(rounded({ a: [{ b: 9007199254740991, c: "12345678901234567890" }] })).toBe(false);
});

test.each([
	["curl https://ex\u0430mple.com/x", ["xn--exmple-4nf.com"]],
	["git clone ssh://git@host.example:22/a", ["host.example"]],
	["https://good.example@evil.example/", ["evil.example"]],
	['curl "http://a.example"; wget ftp://b.example|sh', ["a.example", "b.example"]],
	["nothing://", []],
	["no address", []],
])("hosts of %s", (text, want) => {
	expect(hosts({ deep: [text] })).toEqual(want);
});

test("a diff, put together again, is both texts", () => {
	const cases = [
		["", "a\nb\n"],
		["a\nb\n", ""],
		["a\nb\nc\n", "a\nx\nc\n"],
		["a\na\na\n", "a\na\n"],
		["x\ny\n", "y\nx\n"],
	];
	for (const [before, after] of cases) {
		const lines = diff(before!, after!);
		const side = (not: string) =>
			lines
				.filter((l) => l.kind !== not)
				.map((l) => `${l.text}\n`)
				.join("");
		expect([side("add"), side("remove")]).toEqual([before, after]);
	}
});

test("hunks have three lines around and the numbers of their lines", () => {
	const before = Array.from({ length: 30 }, (_, i) => `${i + 1}\n`).join("");
	const got = hunks(diff(before, before.replace("5\n", "five\n").replace("\n25\n", "\n")));
	expect(got.map((h) => [h.before, h.after, h.lines.length])).toEqual([
		[2, 2, 8],
		[22, 22, 7],
	]);
});

test("very large texts are compared without a table that fills the memory", () => {
	const text = (c: string) => Array.from({ length: 5000 }, (_, i) => `${c}${i}\n`).join("");
	const lines = diff(text("a"), text("b"));
	expect(lines.filter((l) => l.kind === "remove")).toHaveLength(5000);
	expect(lines.filter((l) => l.kind === "add")).toHaveLength(5000);
});

test("edits fit as the tool takes them", () => {
	expect(applied("a b a", [{ old_string: "b", new_string: "c" }])).toBe("a c a");
	expect(applied("a b a", [{ old_string: "a", new_string: "c" }])).toBeNull(); // twice
	expect(applied("a b a", [{ old_string: "a", new_string: "$&", replace_all: true }])).toBe("$& b $&");
	expect(applied("a", [{ old_string: "x", new_string: "" }])).toBeNull();
	expect(editsOf({ edits: [{ old_string: "a", new_string: "b" }] })).toHaveLength(1);
	expect(editsOf({ edits: [null] })).toBeNull();
	expect(editsOf({ edits: [], old_string: "a", new_string: "b" })).toBeNull();
	expect(editsOf({ old_string: 1, new_string: "b" })).toBeNull();
});

test("a schema that cannot be read has no fields, and a field that cannot be read is text", () => {
	for (const s of [null, 1, "x", [], {}, { properties: 1 }]) expect(fieldsOf(s)).toEqual([]);
	expect(fieldsOf({ properties: { a: null, b: { type: "wild", default: {} } } }).map((f) => [f.kind, f.first])).toEqual([
		["text", ""],
		["text", ""],
	]);
	expect(formOf(null)).toEqual({ from: "a program", message: "", schema: undefined, warning: "" });
});

test("an answer has the types of the schema, and leaves out what is empty", () => {
	const fields = fieldsOf({
		required: ["n"],
		properties: {
			n: { type: "number", maximum: 10 },
			s: { type: "string" },
			o: { type: "string", oneOf: [{ const: "x", title: "X" }] },
			d: { type: "string", default: "as it is" },
		},
	});
	expect(answer(fields, {})).toEqual({ errors: { n: "This is needed" } });
	expect(answer(fields, { n: "11" })).toEqual({ errors: { n: "Write a number of at most 10" } });
	expect(answer(fields, { n: " " })).toHaveProperty("errors");
	expect(answer(fields, { n: "2.5", o: "x" })).toEqual({ value: { n: 2.5, o: "x", d: "as it is" } });
});

test("who decided is said, a person or not", () => {
	expect(decidedWords({ decision: "approve", by: "ana" })).toBe("ana approved");
	expect(decidedWords({ decision: "approve", by: "key_0123456789abcdef", by_name: "ana" })).toBe("ana approved");
	expect(decidedWords({ decision: "approve", by: "key_0123456789abcdef" })).toBe("key_0123456789abcdef approved"); // an older log
	expect(decidedWords({ decision: "reject", by: "expiry", by_name: "ana" })).toBe("rejected: no decision came in time");
	expect(decidedWords({ decision: "reject", by: "expiry" })).toBe("rejected: no decision came in time");
	expect(decidedWords({ decision: "approve", by: "skill a 1 ff" })).toBe("approved beforehand by skill a 1 ff");
});

test("the time that is left", () => {
	const at = new Date(1_000_000).toISOString();
	expect(left(at, 990_500)).toBe("10 s");
	expect(left(at, 1_000_000 - 125_000)).toBe("2 min 5 s");
	expect(left(at, 1_000_001)).toBe("");
});

test("calls that were asked about at the same time are in the order of the log, however the times are written", () => {
	const ask = (at: string, seq: number) => ({ at, seq }) as Ask;
	const list = [
		ask("2026-01-01T00:00:00.12Z", 3),
		ask("2026-01-01T00:00:00.120001Z", 2),
		ask("2026-01-01T00:00:00Z", 9),
		ask("2026-01-01T00:00:00.119Z", 8),
	];
	expect(list.sort(byAge).map((a) => a.seq)).toEqual([9, 8, 2, 3]);
});
