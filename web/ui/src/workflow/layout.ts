// Where the nodes of a graph are, from left to right. Loaded with the picture alone.

import { Graph, layout } from "@dagrejs/dagre";
import type { Schemas } from "../api/types";
import { edgeWords } from "./rows";

export const nodeWidth = 160;
export const nodeHeight = 44;
const meetingSize = 12;
const labelWidth = 6;
const labelMax = 26;

export interface Place {
	node: string;
	x: number;
	y: number;
	width: number;
	height: number;
}

export interface Line {
	from: string;
	to: string;
	loop: boolean;
	label: string;
	/** whole is the label before it was cut. */
	whole: string;
	path: string;
	labelAt: { x: number; y: number };
}

export interface Picture {
	places: Place[];
	lines: Line[];
	width: number;
	height: number;
}

interface At {
	x: number;
	y: number;
}

const cut = (s: string) => (s.length > labelMax ? `${s.slice(0, labelMax - 1)}…` : s);

/** smooth draws a line through points, round where they bend. */
export function smooth(points: At[]): string {
	const [first, ...rest] = points;
	if (!first) return "";
	let d = `M${r(first.x)},${r(first.y)}`;
	rest.forEach((p, i) => {
		const next = rest[i + 1];
		d += next ? ` Q${r(p.x)},${r(p.y)} ${r((p.x + next.x) / 2)},${r((p.y + next.y) / 2)}` : ` L${r(p.x)},${r(p.y)}`;
	});
	return d;
}

const r = (n: number) => Math.round(n * 10) / 10;

/** pictureOf lays a graph out. Nodes that edges name and that are not there are left out. */
export function pictureOf(graph: Schemas["WorkflowGraph"]): Picture {
	const g = new Graph({ multigraph: true });
	g.setGraph({ rankdir: "LR", nodesep: 20, ranksep: 48, edgesep: 12, marginx: 12, marginy: 12 });
	g.setDefaultEdgeLabel(() => ({}));
	const vertices = graph.vertices ?? [];
	const known = new Set(vertices.map((v) => v.node));
	for (const v of vertices)
		g.setNode(v.node, v.meeting ? { width: meetingSize, height: meetingSize } : { width: nodeWidth, height: nodeHeight });
	const edges = (graph.edges ?? []).filter((e) => known.has(e.from) && known.has(e.to));
	edges.forEach((e, i) => {
		const label = cut(edgeWords(e));
		g.setEdge(e.from, e.to, label ? { width: label.length * labelWidth, height: 14, labelpos: "c" } : {}, String(i));
	});
	layout(g);
	const places = vertices.map((v) => {
		const n = g.node(v.node) as At & { width: number; height: number };
		return { node: v.node, x: n.x - n.width / 2, y: n.y - n.height / 2, width: n.width, height: n.height };
	});
	const lines = edges.map((e, i) => {
		const d = g.edge({ v: e.from, w: e.to, name: String(i) }) as { points: At[]; x?: number; y?: number };
		const middle = d.points[Math.floor(d.points.length / 2)] ?? { x: 0, y: 0 };
		const whole = edgeWords(e);
		return {
			from: e.from,
			to: e.to,
			loop: !!e.loop,
			label: cut(whole),
			whole,
			path: smooth(d.points),
			labelAt: { x: d.x ?? middle.x, y: d.y ?? middle.y },
		};
	});
	const size = g.graph() as { width?: number; height?: number };
	return { places, lines, width: size.width ?? 0, height: size.height ?? 0 };
}
