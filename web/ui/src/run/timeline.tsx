// The timeline: a virtual list of the rows of one thread. It stays at the newest row while the
// reader is there, and where the reader is otherwise.

import { useVirtualizer } from "@tanstack/react-virtual";
import { lazy, type RefObject, Suspense, useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import { plural } from "../ui/format";
import { useParam } from "../ui/url";
import { askWayBack } from "../undo/store";
import { Composer } from "./composer";
import { useScene } from "./context";
import { changeOf } from "./diff";
import { FilterBar, useFilter } from "./filter";
import type { Item, ThreadFold } from "./fold";
import { childOf, GapRow, ItemRow, ReadsRow } from "./items";
import { useKeys } from "./keys";
import { foundIn, kindOf, RowBuilder, type RowData, seqOf } from "./rows";
import type { RunStore, RunView } from "./store";

interface Props {
	store: RunStore;
	/** view is what is shown: of now, or of the past. */
	view: RunView;
	thread: ThreadFold;
	past: boolean;
	keys: RefObject<TimelineKeys | null>;
}

/** TimelineKeys is what keys of the page do in the timeline. */
// Most runs never ask.
const ApprovalCard = lazy(() => import("./approvals").then((m) => ({ default: m.ApprovalCard })));

export interface TimelineKeys {
	toEnd(): void;
}

const nearEnd = 24;

/** pageRows is how many rows are drawn at once when all is read as a page. */
const pageRows = 2000;

const firstOf = (r: RowData): Item | undefined => (r.kind === "item" ? r.item : r.kind === "reads" ? r.items[0] : undefined);

export function Timeline({ store, view, thread, past, keys }: Props) {
	const { openFile, focus, act } = useScene();
	const [filter, setFilter] = useFilter();
	const [words, setWords] = useParam("find");
	const [find, setFind] = useState(words !== "");
	const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
	const [follow, setFollow] = useState(true);
	const [cursor, setCursor] = useState("");
	const [page, setPage] = useParam("page");
	const asPage = page === "1";
	const box = useRef<HTMLDivElement>(null);
	const findBox = useRef<HTMLInputElement>(null);
	// biome-ignore lint/correctness/useExhaustiveDependencies: a builder is for one thread of one fold.
	const builder = useMemo(() => new RowBuilder(filter), [thread, filter]);
	// biome-ignore lint/correctness/useExhaustiveDependencies: the thread changes in place, with the version.
	const { rows, hidden } = useMemo(() => builder.build(thread.items), [builder, view.version]);
	const wanted = useDeferredValue(words);
	const found = useMemo(() => (find ? foundIn(rows, wanted) : []), [rows, wanted, find]);
	const search = useSearch(store);
	const list = useVirtualizer({
		count: rows.length,
		getScrollElement: () => box.current,
		estimateSize: () => 28,
		getItemKey: (i) => rows[i]!.key,
		overscan: 12,
		anchorTo: "end",
		followOnAppend: follow && !past,
		scrollEndThreshold: nearEnd,
	});
	const unread = useUnread(thread, follow);
	useOpening(rows, thread, (n, align) => list.scrollToIndex(n, { align }));

	const toggle = useMemo(
		() => (key: string) =>
			setOpen((old) => {
				const to = new Set(old);
				if (!to.delete(key)) to.add(key);
				return to;
			}),
		[],
	);
	const at = cursor ? rows.findIndex((r) => r.key === cursor) : -1;
	const go = (n: number) => {
		const to = Math.max(0, Math.min(n, rows.length - 1));
		const row = rows[to];
		if (!row) return;
		setCursor(row.key);
		list.scrollToIndex(to, { align: "auto" });
		focusRow(box, to);
	};
	const here = () => (at >= 0 ? at : (list.getVirtualItems().find((v) => v.end > (list.scrollOffset ?? 0))?.index ?? 0));
	const step = (by: 1 | -1) => {
		const from = firstOf(rows[here()]!)?.step ?? 0;
		for (let n = here() + by; n >= 0 && n < rows.length; n += by) {
			const item = firstOf(rows[n]!);
			if (item && item.step !== from) return go(n);
		}
	};
	const [asks, setAsks] = useState(false); // it stays, for it tells who decided
	if (!asks && view.fold.waiting().length > 0) setAsks(true);
	const toEnd = () => {
		setFollow(true);
		list.scrollToEnd();
		unread.read();
	};
	keys.current = { toEnd };
	const sameKind = () => {
		const item = firstOf(rows[here()]!);
		if (!item) return;
		const kind = kindOf(item);
		const of = rows.filter((r) => r.kind !== "gap" && kindOf(firstOf(r)!) === kind).map((r) => r.key);
		setOpen((old) => {
			const to = new Set(old);
			const close = of.some((k) => old.has(k));
			for (const k of of) close ? to.delete(k) : to.add(k);
			return to;
		});
	};
	/** undoStep shows what it would do to go back to before a step; nothing is done by the key. */
	const undoStep = (item: Item | undefined) => {
		const machine = view.fold.thread(view.run.thread).machine || view.run.sandbox;
		if (past || !item?.step || !machine) return false;
		askWayBack(machine, { do: "undo", scope: "step", thread: thread.id, run: thread.run || view.run.id, step: item.step });
	};
	const acts = (revert?: boolean) => {
		const item = firstOf(rows[here()]!);
		if (item) act(item, thread.id, revert);
	};
	const nextFound = (by: 1 | -1) => {
		if (!found.length) return;
		const before = found.filter((n) => n < at);
		go((by > 0 ? (found.find((n) => n > at) ?? found[0]) : (before.at(-1) ?? found.at(-1)))!);
	};
	useKeys([
		["j", () => go(at < 0 ? here() : at + 1)],
		["k", () => go(at < 0 ? here() : at - 1)],
		["J", () => step(1)],
		["K", () => step(-1)],
		["e", sameKind],
		[
			"o",
			() => {
				const item = firstOf(rows[here()]!);
				const change = item?.kind === "call" ? changeOf(item.tool, item.args) : null;
				if (change) openFile(change.path);
			},
		],
		[".", () => acts()],
		["R", () => acts(true)],
		["u", () => undoStep(firstOf(rows[here()]!))],
		["f", () => (follow ? setFollow(false) : toEnd())],
		["n", () => nextFound(1)],
		["N", () => nextFound(-1)],
		[
			"/",
			() => {
				setFind(true);
				requestAnimationFrame(() => findBox.current?.focus());
			},
		],
		[
			"Enter",
			() => {
				const row = rows[at];
				if (!row || row.kind === "gap" || document.activeElement?.closest("button, a")) return false;
				const child = row.kind === "item" ? childOf(row.item, view.fold) : undefined;
				if (child) focus(child.id);
				else toggle(row.key);
			},
		],
	]);
	const onScroll = (e: React.UIEvent<HTMLDivElement>) => {
		if (e.currentTarget.scrollTop < 400 && view.before) void store.older();
		unread.scrolled(e.currentTarget);
	};
	const hits = useMemo(() => new Set(found), [found]);
	const article = (row: RowData, n: number, start?: number) => (
		<article
			key={row.key}
			data-index={n}
			ref={start === undefined ? undefined : list.measureElement}
			tabIndex={-1}
			aria-posinset={n + 1}
			aria-setsize={view.before ? -1 : rows.length}
			className={`focus-visible:outline-offset-[-2px] ${row.key === cursor ? "shadow-[inset_3px_0_0_var(--accent)]" : hits.has(n) ? "bg-warn-ground" : ""}`}
			style={start === undefined ? undefined : { position: "absolute", top: 0, left: 0, right: 0, transform: `translateY(${start}px)` }}
			onFocus={() => setCursor(row.key)}
		>
			<RowOf row={row} view={view} thread={thread} open={open} toggle={toggle} />
		</article>
	);
	return (
		<section aria-label="Timeline" className="flex min-h-0 min-w-0 flex-1 flex-col">
			<FilterBar
				filter={filter}
				onFilter={setFilter}
				hidden={hidden}
				find={find}
				findBox={findBox}
				words={words}
				onWords={setWords}
				found={found.length}
				place={found.indexOf(at) + 1}
				onNext={nextFound}
				onFind={(to) => {
					setFind(to);
					if (!to) setWords("");
				}}
				asPage={asPage}
				onPage={() => setPage(asPage ? "" : "1")}
				before={view.before > 0}
				searching={search.says}
				onSearch={() => search.turn(wanted)}
			/>
			<div className="relative flex min-h-0 flex-1 flex-col">
				<div
					ref={box}
					role="feed"
					aria-label="What happened"
					aria-busy={view.loadingOlder}
					// biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls needs the keys.
					tabIndex={0}
					data-region
					className="min-h-0 flex-1 overflow-auto [overflow-anchor:none]"
					onScroll={onScroll}
				>
					{view.loadingOlder && (
						<div className="sticky top-0 z-10 h-0">
							<p className="bg-ground px-3 text-quiet">loading what was before</p>
						</div>
					)}
					{asPage ? (
						rows.slice(-pageRows).map((row, n) => article(row, Math.max(0, rows.length - pageRows) + n))
					) : (
						<div style={{ height: list.getTotalSize(), position: "relative" }}>
							{list.getVirtualItems().map((v) => rows[v.index] && article(rows[v.index]!, v.index, v.start))}
						</div>
					)}
					{!rows.length && <p className="p-3 text-quiet">{hidden ? "The filter hides all items." : "Nothing has happened yet."}</p>}
				</div>
				{(unread.away || !follow) && !past && (
					<button type="button" className="button main absolute right-3 bottom-3" onClick={toEnd}>
						Jump to latest{unread.count > 0 && `, ${unread.count} new`}
					</button>
				)}
			</div>
			{view.gap > 0 && (
				<p className="px-3 text-quiet">{plural(view.gap, "live piece")} left out: this page was too slow. The log has all.</p>
			)}
			{!past && asks && (
				<Suspense fallback={null}>
					<ApprovalCard view={view} />
				</Suspense>
			)}
			<Composer view={view} past={past} />
			<Spoken thread={thread} />
		</section>
	);
}

interface RowOfProps {
	row: RowData;
	view: RunView;
	thread: ThreadFold;
	open: ReadonlySet<string>;
	toggle(key: string): void;
}

function RowOf({ row, view, thread, open, toggle }: RowOfProps) {
	if (row.kind === "gap") return <GapRow text={row.text} />;
	if (row.kind === "reads")
		return (
			<ReadsRow
				items={row.items}
				thread={thread.id}
				fold={view.fold}
				rowKey={row.key}
				open={open.has(row.key)}
				opened={open}
				onToggle={toggle}
			/>
		);
	const tick = childOf(row.item, view.fold) ? view.version : undefined;
	return <ItemRow item={row.item} thread={thread.id} fold={view.fold} tick={tick} open={open.has(row.key)} onToggle={toggle} />;
}

/** useSearch looks for words in events that are not loaded yet, page by page, until a person stops it. */
function useSearch(store: RunStore) {
	const [says, setSays] = useState("");
	const stop = useRef<AbortController | null>(null);
	useEffect(() => () => stop.current?.abort(), []);
	const turn = (words: string) => {
		if (stop.current) return stop.current.abort();
		const mine = new AbortController();
		stop.current = mine;
		setSays(", searching");
		void store
			.findOlder(words, mine.signal, (before) => !mine.signal.aborted && setSays(`, searching before event ${before}`))
			.finally(() => {
				stop.current = null;
				setSays("");
			});
	};
	return { says, turn };
}

/** focusRow focuses a row that may not be drawn yet. */
function focusRow(box: RefObject<HTMLElement | null>, n: number, tries = 5): void {
	requestAnimationFrame(() => {
		const row = box.current?.querySelector<HTMLElement>(`[data-index="${n}"]`);
		if (row) {
			row.focus({ preventScroll: true });
			row.scrollIntoView({ block: "nearest" });
		}
		if (!row && tries) focusRow(box, n, tries - 1);
	});
}

/** useOpening shows the newest row first, or the call that waits for a person. */
function useOpening(rows: readonly RowData[], thread: ThreadFold, show: (n: number, align: "end" | "center") => void): void {
	const opened = useRef("");
	useEffect(() => {
		if (opened.current === thread.id || !rows.length) return;
		opened.current = thread.id;
		const waiting = thread.waiting()[0]?.seq;
		const n = waiting ? rows.findIndex((r) => seqOf(r) === waiting) : -1;
		if (n >= 0) show(n, "center");
		else show(rows.length - 1, "end");
	});
}

/** useUnread counts what came while the reader was elsewhere. */
function useUnread(thread: ThreadFold, follow: boolean) {
	const [away, setAway] = useState(false);
	const [from, setFrom] = useState(0);
	const seq = thread.items.at(-1)?.seq ?? 0;
	const read = () => {
		setAway(false);
		setFrom(0);
	};
	const scrolled = (el: HTMLElement) => {
		const end = el.scrollHeight - el.scrollTop - el.clientHeight <= nearEnd;
		if (end && follow) read();
		else if (!away) {
			setAway(true);
			setFrom(seq);
		}
	};
	let count = 0;
	if (from) for (let i = thread.items.length - 1; i >= 0 && thread.items[i]!.seq > from; i--) count++;
	return { away, count, read, scrolled };
}

/** Spoken tells screen readers of a step that is over, once and politely; of errors at once. */
function Spoken({ thread }: { thread: ThreadFold }) {
	const says = thread.over() ? `The run ${thread.state.replaceAll("_", " ")}` : stepSummary(thread);
	const bad = thread.over() && thread.state === "failed";
	return (
		<>
			<p role="status" className="sr-only">
				{bad ? "" : says}
			</p>
			<p role="alert" className="sr-only">
				{bad ? `The run failed: ${thread.reason.replaceAll("_", " ")}` : ""}
			</p>
		</>
	);
}

/** stepSummary says what the step before the newest did; the newest still goes on. */
function stepSummary(t: ThreadFold): string {
	if (t.step < 2) return "";
	let calls = 0;
	let failed = 0;
	for (let i = t.items.length - 1; i >= 0; i--) {
		const item = t.items[i]!;
		if (item.step < t.step - 1) break;
		if (item.step !== t.step - 1 || item.kind !== "call") continue;
		calls++;
		if (item.state === "failed" || item.exit) failed++;
	}
	return `Step ${t.step - 1}: ${plural(calls, "call")}${failed ? `, ${failed} failed` : ""}`;
}
