// One row an item: 28 px when it is closed. Each kind has a shape, a word and a colour.

import {
	AppWindow,
	Bot,
	Brain,
	ChevronRight,
	CircleStop,
	FilePen,
	FileSearch,
	Flag,
	ListChecks,
	type LucideIcon,
	MessageSquare,
	Pause,
	Play,
	ScrollText,
	ShieldX,
	SquareTerminal,
	StickyNote,
	TriangleAlert,
	Undo2,
	Wrench,
} from "lucide-react";
import { memo, type ReactNode, useEffect, useState } from "react";
import { duration, money, plural } from "../ui/format";
import { Markdown } from "../ui/md";
import { unstyled } from "../ui/sgr";
import { State } from "../ui/state";
import { clip, Safe } from "../ui/text";
import { useScene } from "./context";
import { changeOf } from "./diff";
import type { CallItem, Item, NoteItem, RunFold, ThreadFold } from "./fold";
import { ItemBody } from "./items_body";
import { Tools, useWhole } from "./items_tools";
import { lastLine } from "./last";
import { readsTitle, readTools } from "./rows";

interface RowProps {
	item: Item;
	thread: string;
	open: boolean;
	onToggle(key: string): void;
	/** fold holds the sub-agents that calls started; tick changes with them. */
	fold: RunFold;
	tick?: number;
}

/** childOf is the sub-agent that a call started. */
export const childOf = (item: Item, fold: RunFold) => (item.kind === "call" && item.thread ? fold.threads.get(item.thread) : undefined);

export const ItemRow = memo(function ItemRow({ item, thread, open, onToggle, fold, tick }: RowProps) {
	const problem = useWhole(item, thread);
	const toggle = () => onToggle(item.key);
	return (
		<div
			data-kind={item.kind}
			data-seq={item.seq}
			data-state={item.kind === "call" ? item.state : undefined}
			className={`group relative px-3 ${item.rewound ? "opacity-60" : ""} ${item.kind === "call" && item.state === "waiting" ? "border-warn border-l-4 bg-warn-ground" : ""}`}
		>
			{item.rewound && <span className="sr-only">Taken back: </span>}
			{item.kind === "text" ? (
				<Text item={item} thread={thread} />
			) : (
				<Row item={item} open={open} toggle={toggle} thread={thread} fold={fold} tick={tick} />
			)}
			{problem !== null && <p className="text-bad">The whole answer could not be loaded: {problem}</p>}
		</div>
	);
});

function Text({ item, thread }: { item: Extract<Item, { kind: "text" }>; thread: string }) {
	return (
		<div className="py-1" data-streaming={item.streaming || undefined}>
			<Markdown text={item.text} streaming={item.streaming} />
			{!item.streaming && (
				<div className="absolute top-0 right-2 opacity-0 focus-within:opacity-100 group-hover:opacity-100 [@media(hover:none)]:static [@media(hover:none)]:opacity-100">
					<Tools item={item} thread={thread} />
				</div>
			)}
		</div>
	);
}

interface InnerProps {
	item: Exclude<Item, { kind: "text" }>;
	open: boolean;
	toggle(): void;
	thread: string;
	fold: RunFold;
	tick?: number;
}

function Row({ item, open, toggle, thread, fold, tick }: InnerProps) {
	const child = childOf(item, fold);
	const { focus } = useScene();
	const { Icon, colour, line, side } = summary(item, child, fold.threads.get(thread));
	return (
		<>
			<button
				type="button"
				aria-expanded={open}
				onClick={toggle}
				onKeyDown={(e) => {
					if (e.key !== "Enter" || !child) return;
					e.preventDefault();
					focus(child.id);
				}}
				className="flex min-h-7 w-full items-center gap-2 text-left"
			>
				<ChevronRight size={14} aria-hidden className={`shrink-0 text-quiet ${open ? "rotate-90" : ""}`} />
				<Icon size={14} aria-hidden className={`shrink-0 ${colour}`} />
				<span className={`min-w-0 flex-1 truncate ${colour === "text-quiet" || item.kind === "input" ? "" : colour}`}>{line}</span>
				{side}
			</button>
			{item.kind === "call" && !open && <LiveLine item={item} />}
			{item.kind === "call" && <PreviewLine item={item} />}
			{open && (
				<div className="pb-2 pl-5 sm:pl-9">
					<ItemBody item={item} thread={thread} fold={fold} tick={tick} />
					<Tools item={item} thread={thread} />
				</div>
			)}
		</>
	);
}

/** portOf is the port at which a service that was started answers; 0 = none, or it did not come up. */
export function portOf(item: CallItem): number {
	if (item.tool !== "service" || item.state !== "done") return 0;
	const a = item.args as { action?: unknown; ready_http?: unknown; ports?: unknown } | null | undefined;
	if (a?.action !== "start" && a?.action !== "restart") return 0;
	const port = a.ready_http ?? (Array.isArray(a.ports) ? a.ports[0] : 0);
	return typeof port === "number" ? port : 0;
}

function PreviewLine({ item }: { item: CallItem }) {
	const { openPreview, still } = useScene();
	const port = portOf(item);
	if (!port || still) return null;
	return (
		<div className="pb-1 pl-9">
			<button type="button" className="button" onClick={() => openPreview(port)}>
				<AppWindow size={14} aria-hidden />
				Open the preview of port {port}
			</button>
		</div>
	);
}

/** LiveLine is the last line that a command has written so far. */
function LiveLine({ item }: { item: CallItem }) {
	if (item.endedSeq || !item.live) return null;
	return (
		<div className="truncate pb-1 pl-9 text-quiet">
			<code>{clip(lastLine(unstyled(item.live.slice(-4096))), 300)}</code>
		</div>
	);
}

interface Summary {
	Icon: LucideIcon;
	colour: string;
	line: ReactNode;
	side: ReactNode;
}

function summary(item: InnerProps["item"], child?: ThreadFold, of?: ThreadFold): Summary {
	switch (item.kind) {
		case "input":
			return {
				Icon: MessageSquare,
				colour: "text-accent",
				line: <Safe>{clip(item.text || (item.media.length ? plural(item.media.length, "picture") : "empty"), 300)}</Safe>,
				side: (
					<span className="max-w-40 shrink-0 truncate text-quiet">
						<Safe>{item.name ? `${item.from}, ${item.name}` : item.from}</Safe>
					</span>
				),
			};
		case "reasoning":
			return {
				Icon: Brain,
				colour: "text-quiet",
				line: (
					<span className="text-quiet italic">
						{item.streaming ? "thinking: " : "thought: "}
						<Safe>{clip(item.streaming ? lastLine(item.text) : item.text, 300)}</Safe>
					</span>
				),
				side: item.tookMS > 0 && <span className="shrink-0 text-quiet">{duration(item.tookMS)}</span>,
			};
		case "call":
			return {
				Icon: callIcon(item),
				colour: item.state === "waiting" ? "text-warn" : "text-quiet",
				line: <CallLine item={item} child={child} />,
				side: <CallSide item={item} child={child} />,
			};
		case "failure":
			return {
				Icon: TriangleAlert,
				colour: "text-bad",
				line: (
					<>
						error: <Safe>{clip(item.text || item.trouble, 300)}</Safe>
					</>
				),
				side: <span className="shrink-0 text-bad">attempt {item.attempt}</span>,
			};
		case "end":
			return {
				Icon: Flag,
				colour: item.state === "failed" || item.state === "timed_out" ? "text-bad" : "text-quiet",
				line: <Safe>{clip((item.text !== saidLast(of) && item.text) || endWords[item.state] || item.reason || item.state, 300)}</Safe>,
				side: <State of={item.state} />,
			};
		default:
			return noteSummary(item);
	}
}

/** endWords stand where the run's answer, which is the row above, would be said twice. */
const endWords: Record<string, string> = { succeeded: "The agent is done. Send a message to go on from here." };

/** saidLast is the newest text of a thread. */
function saidLast(t: ThreadFold | undefined): string {
	for (let i = (t?.items.length ?? 0) - 1; i >= 0; i--) {
		const item = t?.items[i];
		if (item?.kind === "text") return item.text;
	}
	return "";
}

const noteLooks: Partial<Record<NoteItem["note"], [LucideIcon, string]>> = {
	compacted: [ScrollText, "text-quiet"],
	rewound: [Undo2, "text-accent"],
	cancel: [CircleStop, "text-warn"],
	resumed: [Play, "text-pause"],
	lost: [TriangleAlert, "text-bad"],
	refused: [ShieldX, "text-bad"],
};

function noteSummary(item: NoteItem): Summary {
	const [Icon, colour] = noteLooks[item.note] ?? [StickyNote, item.failed ? "text-bad" : "text-quiet"];
	const text = item.note === "unknown" ? `an event of a kind that this page does not know: ${item.text}` : item.text;
	return {
		Icon,
		colour,
		line: (
			<span className={colour === "text-quiet" ? "text-quiet" : ""}>
				<Safe>{clip(text, 300)}</Safe>
			</span>
		),
		side: item.refused && (
			<span className="max-w-56 shrink-0 truncate text-bad max-sm:hidden">
				<Safe>{item.detail}</Safe>
			</span>
		),
	};
}

function callIcon(item: CallItem): LucideIcon {
	if (item.tool === "execute") return SquareTerminal;
	if (item.thread || item.tool === "task") return Bot;
	if (item.tool === "write_todos") return ListChecks;
	if (item.tool === "write_file" || item.tool === "edit_file" || item.tool === "apply_patch") return FilePen;
	if (item.tool === "service") return AppWindow;
	if (item.tool === "undo_changes") return Undo2;
	if (item.tool === "ask_user" || item.tool === "submit_plan") return Pause;
	return readTools.has(item.tool) ? FileSearch : Wrench;
}

export function stringArg(item: CallItem, name: string): string {
	const v = (item.args as Record<string, unknown> | null | undefined)?.[name];
	return typeof v === "string" ? v : "";
}

function CallLine({ item, child }: { item: CallItem; child?: ThreadFold }) {
	if (item.tool === "execute" && item.args !== undefined)
		return (
			<code>
				$ <Safe>{clip(stringArg(item, "command"), 300)}</Safe>
			</code>
		);
	if (item.tool === "write_todos" && item.todos) return <PlanLine item={item} />;
	if (item.tool === "task")
		return (
			<>
				<span className="font-medium">
					<Safe>{clip(child?.agent || stringArg(item, "subagent_type") || "sub-agent", 60)}</Safe>
				</span>{" "}
				<span className="text-quiet">
					<Safe>{clip(childLine(child) || stringArg(item, "description"), 300)}</Safe>
				</span>
			</>
		);
	if (item.tool === "service" && stringArg(item, "action"))
		return (
			<>
				<span className="font-medium">
					<Safe>{clip(`${stringArg(item, "action")} service ${stringArg(item, "name")}`, 120)}</Safe>
				</span>{" "}
				<code className="text-quiet">
					<Safe>{clip(stringArg(item, "command"), 300)}</Safe>
				</code>
			</>
		);
	const change = changeOf(item.tool, item.args);
	return (
		<>
			<span className="font-medium">
				<Safe>{clip(item.tool, 80)}</Safe>
			</span>{" "}
			<code className="text-quiet">
				<Safe>{clip(change?.path || pathOf(item) || argsOf(item), 300)}</Safe>
			</code>
		</>
	);
}

const childLine = (child: ThreadFold | undefined) => (child ? lastSaid(child) : "");

/** lastSaid is what a sub-agent did or said last. */
function lastSaid(t: ThreadFold): string {
	for (let i = t.items.length - 1; i >= 0; i--) {
		const item = t.items[i]!;
		if (item.kind === "text") return lastLine(item.text);
		if (item.kind === "call") return item.tool === "execute" ? `$ ${stringArg(item, "command")}` : `${item.tool} ${pathOf(item)}`;
		if (item.kind === "failure") return item.text || item.trouble;
	}
	return "";
}

const pathOf = (item: CallItem) => stringArg(item, "file_path") || stringArg(item, "path") || stringArg(item, "pattern");

export function argsOf(item: CallItem): string {
	if (item.args === undefined || item.args === null) return item.argsText;
	return typeof item.args === "string" ? item.args : JSON.stringify(item.args);
}

function PlanLine({ item }: { item: CallItem }) {
	const todos = item.todos ?? [];
	const done = todos.filter((t) => t.status === "completed").length;
	const now = todos.find((t) => t.status === "in_progress");
	return (
		<>
			<span className="font-medium">
				plan {done}/{todos.length}
			</span>
			{now && (
				<>
					: <Safe>{clip(now.content, 200)}</Safe>
				</>
			)}
		</>
	);
}

function CallSide({ item, child }: { item: CallItem; child?: ThreadFold }) {
	return (
		<span className="flex shrink-0 items-center gap-2">
			<Counts item={item} />
			{child && (
				<span className="text-quiet max-sm:hidden">
					{plural(child.step, "step")}, {money(child.costUSD)}
				</span>
			)}
			{item.exit !== undefined && (
				<span className={`rounded border px-1 ${item.exit ? "border-bad text-bad" : "border-line text-quiet"}`}>exit {item.exit}</span>
			)}
			{item.endedSeq > 0 && item.tookMS > 0 && <span className="text-quiet max-sm:hidden">{duration(item.tookMS)}</span>}
			{child && !item.endedSeq ? <State of={child.state} /> : <CallState item={item} />}
		</span>
	);
}

function CallState({ item }: { item: CallItem }) {
	if (item.state === "running" && item.startedAt) return <Running since={item.startedAt} />;
	return <State of={item.exit && item.state === "done" ? "failed" : item.state} />;
}

/** Running counts the seconds of a call that goes on. */
function Running({ since }: { since: string }) {
	const { still } = useScene();
	const [now, setNow] = useState(Date.now);
	useEffect(() => {
		if (still) return;
		const t = setInterval(() => setNow(Date.now()), 1000);
		return () => clearInterval(t);
	}, [still]);
	const ms = Math.max(0, (still ? Date.parse(still) : now) - Date.parse(since));
	return <State of="running" word={ms < 1000 ? "running" : `running ${duration(Math.floor(ms / 1000) * 1000)}`} />;
}

function Counts({ item }: { item: CallItem }) {
	const change = changeOf(item.tool, item.args);
	if (!change) return null;
	return (
		<span>
			<span className="text-good">+{change.added}</span> <span className="text-bad">−{change.removed}</span>
			<span className="sr-only"> lines added and removed</span>
		</span>
	);
}

interface ReadsProps {
	items: CallItem[];
	thread: string;
	open: boolean;
	rowKey: string;
	opened: ReadonlySet<string>;
	fold: RunFold;
	onToggle(key: string): void;
}

/** ReadsRow is calls in a row that only look. */
export function ReadsRow({ items, thread, open, rowKey, opened, fold, onToggle }: ReadsProps) {
	const going = items.some((i) => !i.endedSeq);
	return (
		<div data-kind="reads" data-seq={items[0]!.seq} className={`px-3 ${items[0]!.rewound ? "opacity-60" : ""}`}>
			<button
				type="button"
				aria-expanded={open}
				onClick={() => onToggle(rowKey)}
				className="flex min-h-7 w-full items-center gap-2 text-left"
			>
				<ChevronRight size={14} aria-hidden className={`shrink-0 text-quiet ${open ? "rotate-90" : ""}`} />
				<FileSearch size={14} aria-hidden className="shrink-0 text-quiet" />
				<span className="min-w-0 flex-1 truncate">{readsTitle(items)}</span>
				{going && <State of="running" />}
			</button>
			{open && (
				<div className="gutter ml-1">
					{items.map((i) => (
						<ItemRow key={i.key} item={i} thread={thread} fold={fold} open={opened.has(i.key)} onToggle={onToggle} />
					))}
				</div>
			)}
		</div>
	);
}

/** GapRow is a time in which nothing happened. */
export function GapRow({ text }: { text: string }) {
	return (
		<div className="flex min-h-7 items-center gap-2 px-3 text-quiet">
			<span aria-hidden className="h-px flex-1 bg-line" />
			<span>{text}</span>
			<span aria-hidden className="h-px flex-1 bg-line" />
		</div>
	);
}
