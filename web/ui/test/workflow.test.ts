import { expect, test } from "vitest";
import { Problem } from "../src/api/http";
import type { Schemas } from "../src/api/types";
import { fitted, zoomed } from "../src/workflow/graph";
import { fieldsOf, filesWrong, inputOf } from "../src/workflow/input";
import { nodeWidth, pictureOf } from "../src/workflow/layout";
import { depths, edgeWords, mistakesOf, offsetOf, rowsOf } from "../src/workflow/rows";
import { verdictOf } from "../src/workflow/text";
import { shownAs } from "../src/workflow/view";

type Graph = Schemas["WorkflowGraph"];
type Run = Schemas["WorkflowRun"];
type Node = Schemas["WorkflowNode"];

// plan → (left, right) → join → ask, and back from join to plan.
const graph: Graph = {
	vertices: [
		{ node: "plan", agent: "inline", sandbox: "shared" },
		{ node: "left", agent: "default", sandbox: "fork" },
		{ node: "right", agent: "default", sandbox: "own", each: true },
		{ node: "meet", meeting: true },
		{ node: "join", agent: "default", sandbox: "shared" },
		{ node: "ask", human: true },
	],
	edges: [
		{ from: "plan", to: "left", when: "plan.ok = true" },
		{ from: "plan", to: "right" },
		{ from: "left", to: "meet" },
		{ from: "right", to: "meet" },
		{ from: "meet", to: "join", artifacts: 2 },
		{ from: "join", to: "ask" },
		{ from: "join", to: "plan", loop: true, max: 3, when: "join failed" },
	],
};

const node = (name: string, state: string, more: Partial<Node> = {}): Node => ({
	node: name,
	label: name,
	iteration: 1,
	attempt: 1,
	state,
	started_at: "2026-01-01T00:00:00Z",
	...more,
});

const run = (state: string, nodes: Node[], skipped: string[] = []): Run => ({
	id: "wfr_1",
	workflow: "w",
	hash: "abc",
	state,
	created_at: "2026-01-01T00:00:00Z",
	nodes,
	skipped,
});

test("what begins beside others is indented, and what joins them is not", () => {
	expect(Object.fromEntries(depths(graph))).toEqual({ plan: 0, left: 1, right: 1, meet: 0, join: 0, ask: 0 });
});

test("the table has each node with its state, its attempts and what it costs", () => {
	const rows = rowsOf(
		graph,
		run("running", [
			node("plan", "succeeded", { cost_usd: 0.25, steps: 2 }),
			node("left", "failed", { cost_usd: 0.5 }),
			node("left", "running", { attempt: 2 }),
			node("right", "succeeded", { item: 0 }),
			node("right", "failed", { item: 1 }),
			node("ask", "waiting"),
		]),
	);
	expect(rows.map((r) => [r.vertex.node, r.state, r.attempts.length, r.cost])).toEqual([
		["plan", "succeeded", 1, 0.25],
		["left", "running", 2, 0.5],
		["right", "failed", 2, 0],
		["join", "pending", 0, 0],
		["ask", "waiting", 1, 0],
	]);
	expect(rows[1]?.after).toEqual(["after plan: plan.ok = true"]);
	expect(rows[0]?.after).toEqual(["again after join: join failed, at most 3 times"]);
});

test("a node that a second attempt mended has succeeded, also of a list", () => {
	const mended = [
		node("right", "failed", { item: 0 }),
		node("right", "succeeded", { item: 1 }),
		node("right", "succeeded", { item: 0, attempt: 2 }),
	];
	expect(rowsOf(graph, run("running", mended)).find((r) => r.vertex.node === "right")?.state).toBe("succeeded");
});

test("of a run that is over, nodes were skipped or not reached, and none is pending", () => {
	const rows = rowsOf(graph, run("failed", [node("plan", "failed")], ["left"]));
	expect(rows.map((r) => r.state)).toEqual(["failed", "skipped", "not reached", "not reached", "not reached"]);
	expect(rowsOf(graph).every((r) => r.state === "")).toBe(true);
});

test("the picture goes from left to right, and nothing lies on anything else", () => {
	const p = pictureOf(graph);
	const at = new Map(p.places.map((x) => [x.node, x]));
	for (const e of graph.edges!.filter((e) => !e.loop))
		expect(at.get(e.from)!.x + at.get(e.from)!.width).toBeLessThanOrEqual(at.get(e.to)!.x);
	for (const a of p.places)
		for (const b of p.places)
			if (a !== b) expect(a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y).toBe(true);
	expect(at.get("plan")!.width).toBe(nodeWidth);
	expect(p.lines.length).toBe(graph.edges!.length);
	expect(p.lines.find((l) => l.loop)?.whole).toBe("join failed, at most 3 times");
	expect(p.lines.every((l) => /^M[-\d.]/.test(l.path))).toBe(true);
	expect(pictureOf({ vertices: [{ node: "a" }], edges: [{ from: "a", to: "gone" }] }).lines).toEqual([]);
});

test("150 nodes are drawn, and more are a table whatever is wanted", () => {
	expect([
		shownAs("", 10, 1200),
		shownAs("", 10, 800),
		shownAs("graph", 10, 320),
		shownAs("graph", 150, 1200),
		shownAs("graph", 151, 1200),
	]).toEqual(["graph", "table", "graph", "graph", "table"]);
});

test("zooming keeps the point beneath the pointer, and ends at bounds", () => {
	const v = zoomed({ x: 10, y: 20, scale: 1 }, 2, 100, 100);
	expect([(100 - v.x) / v.scale, (100 - v.y) / v.scale]).toEqual([90, 80]);
	expect(zoomed(v, 1000, 0, 0).scale).toBe(3);
	expect(fitted({ width: 2000, height: 100 }, 1000, 400)).toEqual({ scale: 0.5, x: 0, y: 175 });
});

test("edges say their condition, their bound and their files", () => {
	expect(edgeWords({ from: "a", to: "b", when: "a.ok = true", artifacts: 1 })).toBe("a.ok = true, 1 file");
	expect(edgeWords({ from: "a", to: "b" })).toBe("");
});

test("the server's mistakes have their line, column and key", () => {
	const errors = [
		{ location: "7:5 nodes[2].agent", message: "there is none" },
		{ location: "4:1", message: "odd" },
		{ location: "body.text", message: "too long" },
		{ message: "no place" },
	];
	expect(mistakesOf(errors)).toEqual([
		{ line: 7, column: 5, field: "nodes[2].agent", text: "there is none" },
		{ line: 4, column: 1, field: "", text: "odd" },
		{ line: 0, column: 0, field: "body.text", text: "too long" },
		{ line: 0, column: 0, field: "", text: "no place" },
	]);
	expect(verdictOf(new Problem(400, "Bad Request", "x", "", "", errors.slice(0, 1))).mistakes.length).toBe(1);
	expect(verdictOf(new Problem(400, "Bad Request", "the input does not fit: subject is missing", "", "")).note).toContain("subject");
	expect(verdictOf(new Problem(500, "Internal Server Error", "", "", "")).problem).toBeInstanceOf(Problem);
});

test("a place in a text is found, also behind its end", () => {
	expect([offsetOf("ab\ncd\n", 2, 2), offsetOf("ab", 9, 1), offsetOf("ab", 1, 9), offsetOf("", 0, 0)]).toEqual([4, 2, 2, 0]);
});

const schema = {
	type: "object",
	properties: {
		words: { type: "integer", default: 500 },
		subject: { type: "string", description: "What about." },
		deep: { type: "boolean" },
		tone: { type: "string", enum: ["dry", "warm"] },
		list: { type: "array" },
	},
	required: ["subject"],
};

test("the form has a field for each property, those that are needed first", () => {
	expect(fieldsOf(schema).map((f) => [f.name, f.kind, f.required])).toEqual([
		["subject", "text", true],
		["words", "integer", false],
		["deep", "boolean", false],
		["tone", "choice", false],
		["list", "json", false],
	]);
	expect(fieldsOf(undefined)).toEqual([]);
	expect(fieldsOf({ properties: [1] })).toEqual([]);
});

test("what is typed becomes the input, or says what is wrong with it", () => {
	const fields = fieldsOf(schema);
	expect(inputOf(fields, { subject: "snails", deep: "true", list: "[1]" })).toEqual({
		input: { subject: "snails", words: 500, deep: true, list: [1] },
		wrong: {},
	});
	const bad = inputOf(fields, { subject: " ", words: "2.5", list: "[1" });
	expect(Object.keys(bad.wrong).sort()).toEqual(["list", "subject", "words"]);
});

test("files that the server would refuse are refused at once", () => {
	expect(filesWrong([{ name: "a", size: 1 }])).toBe("");
	expect(filesWrong([{ name: "a", size: 9 << 20 }])).toContain("9 MiB");
	expect(filesWrong(Array.from({ length: 101 }, (_, i) => ({ name: String(i), size: 1 })))).toContain("101");
	expect(
		filesWrong([
			{ name: "a", size: 1 },
			{ name: "a", size: 2 },
		]),
	).toContain("twice");
});
