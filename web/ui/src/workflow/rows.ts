// A run of a workflow as rows: each node in its place, with what was done for it.

import type { FieldError } from "../api/http";
import type { Schemas } from "../api/types";

type Graph = Schemas["WorkflowGraph"];
type Vertex = Schemas["WorkflowVertex"];
type Edge = Schemas["WorkflowEdge"];
type Attempt = Schemas["WorkflowNode"];
type Run = Schemas["WorkflowRun"];

export interface Row {
	vertex: Vertex;
	/** depth is how far it is indented. */
	depth: number;
	state: string;
	attempts: Attempt[];
	steps: number;
	cost: number;
	/** after says what it follows, in words. */
	after: string[];
}

/** graphMax is how many nodes a picture has at most: of more, the table says it better. */
export const graphMax = 150;

/** depths indents what begins beside others, and takes what joins them back. */
export function depths(g: Graph): Map<string, number> {
	const forward = (g.edges ?? []).filter((e) => !e.loop);
	const out = new Map<string, number>();
	for (const e of forward) out.set(e.from, (out.get(e.from) ?? 0) + 1);
	const into = new Map<string, string[]>();
	for (const e of forward) into.set(e.to, [...(into.get(e.to) ?? []), e.from]);
	const at = new Map<string, number>();
	for (const v of g.vertices ?? []) {
		const from = into.get(v.node) ?? [];
		const parents = from.map((p) => at.get(p) ?? 0);
		const least = Math.min(...parents);
		if (!from.length) at.set(v.node, 0);
		else if (from.length > 1) at.set(v.node, Math.max(0, least - 1));
		else at.set(v.node, least + ((out.get(from[0]!) ?? 0) > 1 ? 1 : 0));
	}
	return at;
}

/** stateOf says how a node is, of all that was done for it. */
export function stateOf(v: Vertex, attempts: Attempt[], run: Run | undefined): string {
	for (const s of ["waiting", "running"]) if (attempts.some((a) => a.state === s)) return s;
	const last = attempts.at(-1);
	if (!run) return "";
	if (last) {
		// Of a list, one element that failed is what matters.
		const newest = attempts.filter((a) => a.iteration === last.iteration && !attempts.some((b) => later(b, a)));
		return newest.find((a) => a.state !== "succeeded")?.state ?? last.state;
	}
	if (run.skipped?.includes(v.node)) return "skipped";
	return run.state === "running" ? "pending" : "not reached";
}

const later = (b: Attempt, a: Attempt) => b.iteration === a.iteration && (b.item ?? 0) === (a.item ?? 0) && b.attempt > a.attempt;

/** edgeWords says when an edge is taken. */
export function edgeWords(e: Edge): string {
	const parts = [];
	if (e.when) parts.push(e.when);
	if (e.loop) parts.push(`at most ${e.max} times`);
	if (e.artifacts) parts.push(e.artifacts === 1 ? "1 file" : `${e.artifacts} files`);
	return parts.join(", ");
}

/** rowsOf makes the table. Places where paths meet do nothing, and have no row. */
export function rowsOf(g: Graph, run?: Run): Row[] {
	const at = depths(g);
	const done = new Map<string, Attempt[]>();
	for (const a of run?.nodes ?? []) done.set(a.node, [...(done.get(a.node) ?? []), a]);
	return (g.vertices ?? [])
		.filter((v) => !v.meeting)
		.map((v) => {
			const attempts = done.get(v.node) ?? [];
			const into = (g.edges ?? []).filter((e) => e.to === v.node);
			return {
				vertex: v,
				depth: at.get(v.node) ?? 0,
				state: stateOf(v, attempts, run),
				attempts,
				steps: attempts.reduce((n, a) => n + (a.steps ?? 0), 0),
				cost: attempts.reduce((n, a) => n + (a.cost_usd ?? 0), 0),
				after: into.map((e) => [`${e.loop ? "again after" : "after"} ${e.from}`, edgeWords(e)].filter(Boolean).join(": ")),
			};
		});
}

export interface Mistake {
	line: number;
	column: number;
	field: string;
	text: string;
}

/** mistakesOf reads where each mistake is: "7:5 nodes[2].agent". */
export function mistakesOf(errors: FieldError[]): Mistake[] {
	return errors.map((e) => {
		const m = /^(\d+):(\d+)(?: (.*))?$/s.exec(e.location ?? "");
		return { line: Number(m?.[1] ?? 0), column: Number(m?.[2] ?? 0), field: m ? (m[3] ?? "") : (e.location ?? ""), text: e.message };
	});
}

/** offsetOf is where a line and a column are in a text. */
export function offsetOf(text: string, line: number, column: number): number {
	let at = 0;
	for (let n = 1; n < line; n++) {
		const end = text.indexOf("\n", at);
		if (end < 0) return text.length;
		at = end + 1;
	}
	return Math.min(at + Math.max(0, column - 1), text.length);
}
