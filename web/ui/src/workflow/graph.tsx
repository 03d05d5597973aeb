// The picture of a workflow. What it shows is in the table, too.

import { Maximize, ZoomIn, ZoomOut } from "lucide-react";
import { type KeyboardEvent, type PointerEvent, useEffect, useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import type { Schemas } from "../api/types";
import { money } from "../ui/format";
import { clip, visible } from "../ui/text";
import { type Line, nodeHeight, type Picture, type Place, pictureOf } from "./layout";
import type { Row } from "./rows";
import { lookOf } from "./words";

interface View {
	x: number;
	y: number;
	scale: number;
}

const least = 0.15;
const most = 3;
const bound = (s: number) => Math.min(most, Math.max(least, s));

/** zoomed changes the scale and keeps the point (px, py) of the box where it is. */
export function zoomed(v: View, by: number, px: number, py: number): View {
	const scale = bound(v.scale * by);
	const f = scale / v.scale;
	return { scale, x: px - (px - v.x) * f, y: py - (py - v.y) * f };
}

/** fitted shows all of a picture in a box, and never larger than it is. */
export function fitted(p: { width: number; height: number }, width: number, height: number): View {
	const scale = bound(Math.min(1, width / Math.max(1, p.width), height / Math.max(1, p.height)));
	return { scale, x: Math.max(0, (width - p.width * scale) / 2), y: Math.max(0, (height - p.height * scale) / 2) };
}

interface Props {
	graph: Schemas["WorkflowGraph"];
	rows: Row[];
	name: string;
}

export function GraphView({ graph, rows, name }: Props) {
	// A run that goes on comes with an equal graph each time: it is laid out once.
	const same = JSON.stringify(graph);
	const picture = useMemo(() => pictureOf(JSON.parse(same) as Schemas["WorkflowGraph"]), [same]);
	const byNode = useMemo(() => new Map(rows.map((r) => [r.vertex.node, r])), [rows]);
	const box = useRef<HTMLDivElement>(null);
	const [view, setView] = useState<View>({ x: 0, y: 0, scale: 1 });
	const showAll = useMemo(
		() => () => box.current && setView(fitted(picture, box.current.clientWidth, box.current.clientHeight)),
		[picture],
	);
	useEffect(() => {
		showAll();
		const el = box.current!;
		const wheel = (e: WheelEvent) => {
			if (!e.ctrlKey) return;
			e.preventDefault();
			const b = el.getBoundingClientRect();
			setView((v) => zoomed(v, Math.exp(-e.deltaY / 200), e.clientX - b.left, e.clientY - b.top));
		};
		el.addEventListener("wheel", wheel, { passive: false });
		return () => el.removeEventListener("wheel", wheel);
	}, [showAll]);
	const zoom = (by: number) => setView((v) => zoomed(v, by, (box.current?.clientWidth ?? 0) / 2, (box.current?.clientHeight ?? 0) / 2));
	return (
		<div className="relative">
			<div className="absolute top-2 right-2 z-10 flex gap-1">
				<button type="button" className="button icon" aria-label="Larger" onClick={() => zoom(1.25)}>
					<ZoomIn size={16} aria-hidden />
				</button>
				<button type="button" className="button icon" aria-label="Smaller" onClick={() => zoom(0.8)}>
					<ZoomOut size={16} aria-hidden />
				</button>
				<button type="button" className="button icon" aria-label="Show all of it" onClick={showAll}>
					<Maximize size={16} aria-hidden />
				</button>
			</div>
			<Canvas box={box} view={view} setView={setView} zoom={zoom} showAll={showAll} name={name} height={picture.height}>
				<Drawing picture={picture} byNode={byNode} graph={graph} />
			</Canvas>
			<p className="mt-1 text-quiet">
				Drag or use the arrow keys to move it, + and − (or Ctrl and the wheel) for its size, 0 for all of it.
			</p>
		</div>
	);
}

interface CanvasProps {
	box: React.RefObject<HTMLDivElement | null>;
	view: View;
	setView: React.Dispatch<React.SetStateAction<View>>;
	zoom(by: number): void;
	showAll(): void;
	name: string;
	height: number;
	children: React.ReactNode;
}

const step = 40;
const moves: Record<string, [number, number]> = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };

function Canvas({ box, view, setView, zoom, showAll, name, height, children }: CanvasProps) {
	const from = useRef<{ x: number; y: number; view: View } | null>(null);
	const keys = (e: KeyboardEvent) => {
		const move = moves[e.key];
		if (move) setView((v) => ({ ...v, x: v.x + move[0], y: v.y + move[1] }));
		else if (e.key === "+" || e.key === "=") zoom(1.25);
		else if (e.key === "-") zoom(0.8);
		else if (e.key === "0") showAll();
		else return;
		e.preventDefault();
	};
	const drag = (e: PointerEvent) => {
		const f = from.current;
		if (!f) return;
		// A click on a node is no drag: the pointer is taken when it has moved.
		if (Math.abs(e.clientX - f.x) + Math.abs(e.clientY - f.y) > 4) e.currentTarget.setPointerCapture(e.pointerId);
		setView({ ...f.view, x: f.view.x + e.clientX - f.x, y: f.view.y + e.clientY - f.y });
	};
	return (
		// biome-ignore lint/a11y/useSemanticElements: no element is a picture that is moved by keys.
		<div
			ref={box}
			role="group"
			aria-label={`Picture of ${name}`}
			// biome-ignore lint/a11y/noNoninteractiveTabindex: it is moved by keys.
			tabIndex={0}
			className="cursor-grab touch-none overflow-hidden rounded-md border border-line bg-sunken"
			style={{ height: Math.min(560, Math.max(220, height + 60)) }}
			onKeyDown={keys}
			onPointerDown={(e) => {
				if (e.button === 0) from.current = { x: e.clientX, y: e.clientY, view };
			}}
			onPointerMove={drag}
			onPointerUp={() => {
				from.current = null;
			}}
			onPointerCancel={() => {
				from.current = null;
			}}
		>
			<svg width="100%" height="100%" aria-label={`Nodes of ${name}`}>
				<title>{`Nodes of ${name}`}</title>
				<defs>
					<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
						<path d="M0,0 L8,4 L0,8 z" fill="var(--quiet)" />
					</marker>
				</defs>
				<g transform={`translate(${view.x} ${view.y}) scale(${view.scale})`}>{children}</g>
			</svg>
		</div>
	);
}

function Drawing({ picture, byNode, graph }: { picture: Picture; byNode: Map<string, Row>; graph: Schemas["WorkflowGraph"] }) {
	const meetings = new Set((graph.vertices ?? []).filter((v) => v.meeting).map((v) => v.node));
	return (
		<>
			{picture.lines.map((l, i) => (
				<EdgeLine key={i} line={l} active={!!byNode.get(l.to)?.attempts.some((a) => a.state === "running" || a.state === "waiting")} />
			))}
			{picture.places.map((p) => {
				const row = byNode.get(p.node);
				if (meetings.has(p.node) || !row)
					return (
						<circle key={p.node} cx={p.x + p.width / 2} cy={p.y + p.height / 2} r={p.width / 2} fill="var(--line)" stroke="var(--quiet)" />
					);
				return <NodeBox key={p.node} place={p} row={row} />;
			})}
		</>
	);
}

function EdgeLine({ line, active }: { line: Line; active: boolean }) {
	return (
		<g>
			<title>{visible(`${line.from} to ${line.to}${line.whole ? `: ${line.whole}` : ""}`)}</title>
			<path
				d={line.path}
				fill="none"
				stroke={active ? "var(--accent)" : "var(--quiet)"}
				strokeWidth={active ? 2 : 1.2}
				strokeDasharray={active ? "6 4" : line.loop ? "2 3" : undefined}
				markerEnd="url(#arrow)"
			/>
			{line.label && (
				<text
					x={line.labelAt.x}
					y={line.labelAt.y + 3}
					textAnchor="middle"
					fontSize="10"
					fill="var(--text)"
					stroke="var(--sunken)"
					strokeWidth="3"
					paintOrder="stroke"
				>
					{visible(line.label)}
				</text>
			)}
		</g>
	);
}

/** linkOf is where a node leads: to its newest run, or to the question that it asks. */
export function linkOf(row: Row): string {
	const last = row.attempts.at(-1);
	if (!last) return "";
	return last.run ? `/runs/${last.run}` : last.state === "waiting" ? `#ask-${row.vertex.node}` : "";
}

const kindOf = (row: Row) => (row.vertex.human ? "a person" : (row.vertex.agent ?? ""));

export function describe(row: Row): string {
	const parts = [row.vertex.node, kindOf(row), lookOf(row.state).word];
	if (row.attempts.length > 1) parts.push(`${row.attempts.length} attempts`);
	if (row.cost) parts.push(money(row.cost));
	if (row.vertex.sandbox) parts.push(`machine ${row.vertex.sandbox}`);
	if (row.vertex.each) parts.push("for each element of a list");
	return visible(parts.filter(Boolean).join(", "));
}

function NodeBox({ place, row }: { place: Place; row: Row }) {
	const [, go] = useLocation();
	const { word, Icon, colour } = lookOf(row.state);
	const to = linkOf(row);
	const drawing = (
		<>
			<title>{describe(row)}</title>
			<rect width={place.width} height={nodeHeight} rx="6" fill="var(--ground)" stroke="currentColor" strokeWidth={word ? 1.5 : 1} />
			{row.vertex.each && <rect x="3" y="3" width={place.width - 6} height={nodeHeight - 6} rx="4" fill="none" stroke="var(--line)" />}
			<text x="8" y="14" fontSize="12" fontWeight="600" fill="var(--text)">
				{visible(clip(row.vertex.node, row.vertex.sandbox === "shared" || !row.vertex.sandbox ? 22 : 17))}
			</text>
			{row.vertex.sandbox && row.vertex.sandbox !== "shared" && (
				<text x={place.width - 8} y="14" fontSize="10" textAnchor="end" fill="var(--quiet)">
					{row.vertex.sandbox}
				</text>
			)}
			<text x="8" y="26.5" fontSize="10" fill="var(--quiet)">
				{visible(clip(kindOf(row), 20))}
			</text>
			{row.attempts.length > 1 && (
				<text x={place.width - 8} y="26.5" fontSize="10" textAnchor="end" fill="var(--quiet)">
					{row.attempts.length}×
				</text>
			)}
			{word && <Icon x={8} y={30} width={11} height={11} aria-hidden />}
			<text x="22" y="39" fontSize="10" fill="currentColor">
				{word}
			</text>
			{row.cost > 0 && (
				<text x={place.width - 8} y="39" fontSize="10" textAnchor="end" fill="var(--quiet)">
					{money(row.cost)}
				</text>
			)}
		</>
	);
	const at = `translate(${place.x} ${place.y})`;
	if (!to)
		return (
			<g transform={at} className={colour}>
				{drawing}
			</g>
		);
	return (
		<g transform={at} className={colour}>
			<a
				href={to}
				onClick={(e) => {
					if (to.startsWith("#") || e.metaKey || e.ctrlKey || e.shiftKey) return;
					e.preventDefault();
					go(to);
				}}
			>
				{drawing}
			</a>
		</g>
	);
}
