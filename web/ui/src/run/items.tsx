// One row an item: 28 px when it is closed.

import { ChevronRight, type LucideIcon, MessageSquare, SquareTerminal, StickyNote, TriangleAlert, Wrench } from "lucide-react";
import { memo, type ReactNode } from "react";
import { duration } from "../ui/format";
import { Markdown } from "../ui/md";
import { State } from "../ui/state";
import { clip, Safe, visible } from "../ui/text";
import type { CallItem, Item } from "./fold";

interface RowProps {
	item: Item;
	open: boolean;
	onToggle(key: string): void;
}

export const ItemRow = memo(function ItemRow({ item, open, onToggle }: RowProps) {
	const toggle = () => onToggle(item.key);
	return (
		<div data-kind={item.kind} data-seq={item.seq} className={`px-3 ${item.rewound ? "opacity-50" : ""}`}>
			{item.kind === "text" ? <Text item={item} /> : <Row item={item} open={open} toggle={toggle} />}
		</div>
	);
});

function Text({ item }: { item: Extract<Item, { kind: "text" }> }) {
	return (
		<div className="py-1" data-streaming={item.streaming || undefined}>
			<Markdown text={item.text} />
		</div>
	);
}

function Row({ item, open, toggle }: { item: Item; open: boolean; toggle(): void }) {
	const [Icon, line, side] = summary(item);
	return (
		<>
			<button type="button" aria-expanded={open} onClick={toggle} className="flex min-h-7 w-full items-center gap-2 text-left">
				<ChevronRight size={14} aria-hidden className={`shrink-0 text-quiet ${open ? "rotate-90" : ""}`} />
				<Icon size={14} aria-hidden className="shrink-0 text-quiet" />
				<span className="min-w-0 flex-1 truncate">{line}</span>
				{side}
			</button>
			{open && <div className="pb-2 pl-9">{body(item)}</div>}
		</>
	);
}

function summary(item: Item): [LucideIcon, ReactNode, ReactNode] {
	switch (item.kind) {
		case "input":
			return [
				MessageSquare,
				<Safe key="t">{clip(item.text, 300)}</Safe>,
				<span key="s" className="text-quiet">
					{item.name || item.from}
				</span>,
			];
		case "call":
			return [item.tool === "execute" ? SquareTerminal : Wrench, <CallLine key="t" item={item} />, <CallSide key="s" item={item} />];
		case "failure":
			return [
				TriangleAlert,
				<Safe key="t">{clip(item.text || item.trouble, 300)}</Safe>,
				<span key="s" className="text-bad">
					attempt {item.attempt}
				</span>,
			];
		case "end":
			return [StickyNote, <Safe key="t">{clip(item.text || item.reason || item.state, 300)}</Safe>, <State key="s" of={item.state} />];
		case "note":
			return [StickyNote, <Safe key="t">{item.text}</Safe>, null];
		default:
			return [StickyNote, <Safe key="t">{clip(item.text, 300)}</Safe>, null];
	}
}

function CallLine({ item }: { item: CallItem }) {
	const args = item.args as Record<string, unknown> | undefined;
	if (item.tool === "execute" && typeof args?.command === "string")
		return (
			<code>
				$ <Safe>{clip(args.command, 300)}</Safe>
			</code>
		);
	const text = args ? JSON.stringify(args) : item.argsText;
	return (
		<>
			<span className="font-medium">
				<Safe>{item.tool}</Safe>
			</span>{" "}
			<code className="text-quiet">
				<Safe>{clip(text, 300)}</Safe>
			</code>
		</>
	);
}

function CallSide({ item }: { item: CallItem }) {
	return (
		<span className="flex shrink-0 items-center gap-2">
			{item.exit !== undefined && <span className={item.exit ? "text-bad" : "text-quiet"}>exit {item.exit}</span>}
			{item.endedSeq > 0 && <span className="text-quiet">{duration(item.tookMS)}</span>}
			<State of={item.state} />
		</span>
	);
}

function body(item: Item): ReactNode {
	if (item.kind === "call")
		return (
			<>
				<pre className="max-h-60 overflow-auto whitespace-pre-wrap break-words text-quiet">
					{visible(JSON.stringify(item.args, null, 1) ?? item.argsText)}
				</pre>
				<pre className="max-h-96 overflow-auto whitespace-pre-wrap break-words">{visible(item.output || item.live)}</pre>
			</>
		);
	const text = item.kind === "note" ? item.detail || item.text : item.text;
	return <pre className="max-h-96 overflow-auto whitespace-pre-wrap break-words">{visible(text)}</pre>;
}
