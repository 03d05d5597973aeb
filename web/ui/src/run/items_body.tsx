// What a row holds when it is open.

import { Check, Circle, CircleDot } from "lucide-react";
import { lazy, Suspense, useState } from "react";
import { get } from "../api/http";
import { Decision } from "../approvals/decision";
import { clock, money, plural } from "../ui/format";
import { Markdown } from "../ui/md";
import { ProblemBox } from "../ui/problem";
import { State } from "../ui/state";
import { clip, Flat, Safe, visible } from "../ui/text";
import { useScene } from "./context";
import { type Change, changeOf, type DiffLine } from "./diff";
import type { Block, TodoData } from "./events";
import { type CallItem, type InputItem, type Item, type RunFold, type ThreadFold, textOf } from "./fold";
import { argsOf, childOf, ItemRow, stringArg } from "./items";
import { OutputText, Whole } from "./items_output";
import { readTools } from "./rows";

const Refusal = lazy(() => import("../pages/network-refusal"));

interface BodyProps {
	item: Exclude<Item, { kind: "text" }>;
	thread: string;
	fold: RunFold;
	tick?: number;
}

export function ItemBody({ item, thread, fold, tick }: BodyProps) {
	switch (item.kind) {
		case "input":
			return <Input item={item} />;
		case "call":
			return <Call item={item} thread={thread} fold={fold} tick={tick} />;
		case "failure":
			return (
				<>
					<p className="text-quiet">
						{item.trouble.replaceAll("_", " ")}
						{item.waitMS > 0 && `, tried again after ${item.waitMS} ms`}
					</p>
					<Plain text={item.text || item.trouble} bad />
				</>
			);
		case "end":
			return (
				<>
					<p className="text-quiet">
						{item.reason.replaceAll("_", " ")}, {clock(item.at)}
					</p>
					{item.state === "succeeded" ? <Markdown text={item.text} /> : <Plain text={item.text} bad={item.state === "failed"} />}
				</>
			);
		case "note":
			if (item.refused)
				return (
					<Suspense fallback={<p>{visible(item.detail)}</p>}>
						<Refusal of={item.refused} at={item.at} />
					</Suspense>
				);
			return <Plain text={item.detail || item.text} />;
		default:
			return <Plain text={item.text} />;
	}
}

/** Plain is text with what is hidden in it written out. */
function Plain({ text, bad }: { text: string; bad?: boolean }) {
	return (
		// biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls needs the keys.
		<pre tabIndex={0} className={`max-h-96 overflow-auto whitespace-pre-wrap break-words ${bad ? "text-bad" : ""}`}>
			{visible(text)}
		</pre>
	);
}

function Input({ item }: { item: InputItem }) {
	return (
		<>
			<p className="text-quiet">
				{item.from}
				{item.name && (
					<>
						, <Safe>{item.name}</Safe>
					</>
				)}
				, {clock(item.at)}
			</p>
			<Plain text={item.text} />
			<Media list={item.media} />
			{item.blob && <Shown blob={item.blob} />}
		</>
	);
}

/** Media names pictures and documents; they are opened as files, and not drawn. */
function Media({ list }: { list: { type: string; hash: string }[] }) {
	return list.map((m, i) => (
		<p key={i} className="text-quiet">
			{m.hash ? (
				<a className="underline" href={`/v1/blobs/${encodeURIComponent(m.hash)}`} download>
					<Safe>{clip(m.type, 80)}</Safe>
				</a>
			) : (
				<Safe>{clip(m.type, 80)}</Safe>
			)}
		</p>
	));
}

/** Shown loads all that the model was shown, where the log has the beginning of it. */
function Shown({ blob }: { blob: string }) {
	const [text, setText] = useState<string | null>(null);
	const [problem, setProblem] = useState<unknown>(null);
	const load = () =>
		get<Block[]>(`/v1/blobs/${encodeURIComponent(blob)}`).then(
			(blocks) => setText(textOf(blocks)),
			(err: unknown) => setProblem(err),
		);
	if (text !== null) return <OutputText text={text} />;
	return (
		<>
			<button type="button" className="button mt-1 self-start" onClick={() => void load()}>
				Show all
			</button>
			{problem !== null && <ProblemBox of={problem} />}
		</>
	);
}

function Call({ item, fold, tick }: BodyProps & { item: CallItem }) {
	const child = childOf(item, fold);
	const { root } = useScene();
	return (
		<div className="flex min-w-0 flex-col gap-1">
			<CallArgs item={item} />
			<Decision item={item} />
			{child && <Child of={child} depth={depthOf(child.id, root)} fold={fold} tick={tick} />}
			{(item.output || item.live) && item.tool !== "write_todos" && <OutputText text={item.output || item.live} />}
			{item.code && <p className="text-bad">failed: {item.code.replaceAll("_", " ")}</p>}
			<Media list={item.media} />
			{item.shownBlob && <Shown blob={item.shownBlob} />}
			{item.kept && item.bytes > 0 && <Whole blob={item.kept} size={item.bytes} />}
		</div>
	);
}

const depthOf = (id: string, root: string) => id.slice(root.length).split("/").length - 1;

function CallArgs({ item }: { item: CallItem }) {
	if (item.tool === "execute" && item.args !== undefined)
		return (
			<pre className="overflow-x-auto whitespace-pre-wrap break-words rounded border border-line p-2">
				$ {visible(stringArg(item, "command"))}
			</pre>
		);
	if (item.tool === "task" && stringArg(item, "description")) return <Plain text={stringArg(item, "description")} />;
	if (item.todos) return <Plan todos={item.todos} before={item.before ?? []} />;
	const change = changeOf(item.tool, item.args);
	if (change) return <Diff of={change} />;
	if (readTools.has(item.tool) && item.args && typeof item.args === "object")
		return (
			<dl className="flex flex-wrap gap-x-3 text-quiet">
				{Object.entries(item.args as object).map(([k, v]) => (
					<div key={k} className="flex min-w-0 gap-1">
						<dt>
							<Safe>{clip(k, 60)}</Safe>
						</dt>
						<dd className="min-w-0 break-all text-text">
							<code>{visible(typeof v === "string" ? v : JSON.stringify(v))}</code>
						</dd>
					</div>
				))}
			</dl>
		);
	return <Json text={argsOf(item)} value={item.args} />;
}

function Json({ text, value }: { text: string; value: unknown }) {
	const long = value && typeof value === "object" ? JSON.stringify(value, null, 1) : text;
	if (!long) return null;
	return <OutputText text={long} />;
}

const marks = {
	completed: [Check, "done", "text-good"],
	in_progress: [CircleDot, "under way", "text-accent"],
	pending: [Circle, "to do", "text-quiet"],
} as const;

/** Todos is a plan as a list; changed says of an entry that it is new or another than before. */
export function Todos({ todos, changed }: { todos: TodoData[]; changed?: (t: TodoData) => string }) {
	return (
		<ul>
			{todos.map((t, i) => {
				const [Icon, word, colour] = marks[t.status as keyof typeof marks] ?? marks.pending;
				const says = changed?.(t) ?? "";
				return (
					<li key={i} className="flex items-start gap-1">
						<Icon size={14} aria-label={word} className={`mt-0.5 shrink-0 ${colour}`} />
						<span className="min-w-0 break-words">
							<Safe>{clip(t.content, 500)}</Safe>
							{says && <span className="text-quiet"> ({says})</span>}
						</span>
					</li>
				);
			})}
		</ul>
	);
}

const words: Record<string, string> = { completed: "done", in_progress: "begun", pending: "put back" };

function Plan({ todos, before }: { todos: TodoData[]; before: TodoData[] }) {
	const old = new Map(before.map((t) => [t.content, t.status]));
	const now = new Set(todos.map((t) => t.content));
	const gone = before.filter((t) => !now.has(t.content));
	return (
		<>
			<Todos
				todos={todos}
				changed={(t) =>
					!before.length ? "" : !old.has(t.content) ? "new" : old.get(t.content) !== t.status ? (words[t.status] ?? "") : ""
				}
			/>
			{gone.length > 0 && (
				<p className="text-quiet">
					No longer in it: <Safe>{clip(gone.map((t) => t.content).join("; "), 500)}</Safe>
				</p>
			)}
		</>
	);
}

const diffLooks: Record<DiffLine["kind"], [string, string, string]> = {
	added: ["+", "bg-added", "added: "],
	removed: ["−", "bg-removed", "removed: "],
	same: [" ", "", ""],
	head: [" ", "text-quiet", ""],
};

const diffMax = 300;

/** Diff is what a call writes, as far as its arguments tell. */
function Diff({ of }: { of: Change }) {
	const { openFile } = useScene();
	const [most, setMost] = useState(diffMax);
	return (
		<div className="min-w-0 rounded border border-line">
			<div className="flex flex-wrap items-center gap-2 border-line border-b px-2 py-1">
				<code className="min-w-0 flex-1 break-all">
					<Flat>{of.path}</Flat>
				</code>
				{of.whole && <span className="text-quiet">written whole</span>}
				<button type="button" className="button" onClick={() => openFile(of.path)}>
					Open in Changes
				</button>
			</div>
			{/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls needs the keys. */}
			<pre tabIndex={0} className="max-h-96 overflow-auto">
				{of.lines.slice(0, most).map((l, i) => {
					const [sign, ground, says] = diffLooks[l.kind];
					return (
						<div key={i} className={`min-w-max px-2 ${ground}`}>
							{says && <span className="sr-only">{says}</span>}
							<span aria-hidden className="inline-block w-4 text-quiet">
								{sign}
							</span>
							{visible(l.text.length > 2000 ? `${l.text.slice(0, 2000)}… ${l.text.length - 2000} more characters` : l.text)}
						</div>
					);
				})}
			</pre>
			{of.lines.length > most && (
				<button type="button" className="button m-1" onClick={() => setMost(most + 2000)}>
					Show {plural(Math.min(2000, of.lines.length - most), "more line")}
				</button>
			)}
		</div>
	);
}

const depthMax = 3;
const childItems = 20;

/** Child is the end of a sub-agent's timeline, within that of its parent. */
function Child({ of, depth, fold, tick }: { of: ThreadFold; depth: number; fold: RunFold; tick?: number }) {
	const { focus } = useScene();
	const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
	const toggle = (key: string) =>
		setOpened((old) => {
			const to = new Set(old);
			if (!to.delete(key)) to.add(key);
			return to;
		});
	const shown = depth <= depthMax ? of.items.slice(-childItems) : [];
	const before = of.items.length - shown.length;
	return (
		<section aria-label={`Agent ${visible(clip(of.agent, 60))}`} className="gutter min-w-0">
			<p className="flex flex-wrap items-center gap-2">
				<State of={of.state} />
				<span className="text-quiet">
					{plural(of.step, "step")}, {money(of.costUSD)}
				</span>
				<button type="button" className="button" onClick={() => focus(of.id)}>
					Open this agent
				</button>
			</p>
			{before > 0 && <p className="text-quiet">{plural(before, "item")} before these</p>}
			{shown.map((i) => (
				<ItemRow key={i.key} item={i} thread={of.id} fold={fold} tick={tick} open={opened.has(i.key)} onToggle={toggle} />
			))}
		</section>
	);
}
