// The screen of a run: outline, timeline, workspace, and the bar that leads into its past.

import { useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { useSandbox } from "../api/queries";
import { clock } from "../ui/format";
import { NoPage, ProblemBox } from "../ui/problem";
import { Skeleton } from "../ui/skeleton";
import { Split } from "../ui/split";
import { clip, Safe } from "../ui/text";
import { useNumber, useParam } from "../ui/url";
import { askWayBack } from "../undo/store";
import { Workspace } from "../workspace";
import type { Of } from "./actions";
import { type Scene, SceneContext } from "./context";
import type { RunFold, ThreadFold } from "./fold";
import { RunHeader } from "./header";
import { useKeys } from "./keys";
import { isLost } from "./lost";
import { Origin } from "./origin";
import { Outline } from "./outline";
import { Scrubber } from "./scrubber";
import { type RunStore, type RunView, useRun } from "./store";
import { Timeline, type TimelineKeys } from "./timeline";
import { trackOf } from "./track";

const Actions = lazy(() => import("./actions").then((m) => ({ default: m.Actions })));

const Beside = lazy(() => import("./beside"));
const Help = lazy(() => import("./help"));
const Halted = lazy(() => import("./halted")); // few runs need it

export default function RunPage({ id }: { id: string }) {
	const { store, view, error } = useRun(id);
	if (error) return <NoPage of={error} what="run" />;
	if (!view) return <Skeleton label="Loading the run" />;
	return <RunScreen key={view.run.id} store={store} now={view} />;
}

/** usePast is the fold that is shown: that of now, or that of an event. */
function usePast(store: RunStore, now: RunView, at: number): RunView {
	// biome-ignore lint/correctness/useExhaustiveDependencies: the past is another when older events, or those of sub-agents, come.
	const past = useMemo(() => (at ? store.past(at) : null), [store, at, now.fold, now.subEvents]);
	return useMemo(() => (past ? { ...now, fold: past } : now), [past, now]);
}

const commitMS = 250;

/** useAt is the event that is looked at; 0 = live. The address follows a drag at a distance: browsers
 * bound how often it may change. */
function useAt(): [number, (at: number) => void] {
	const [kept, keep] = useNumber("at");
	const [at, setAt] = useState(kept);
	const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
	useEffect(() => {
		if (!timer.current) setAt(kept);
	}, [kept]);
	useEffect(() => () => clearTimeout(timer.current), []);
	const set = useCallback(
		(to: number) => {
			setAt(to);
			clearTimeout(timer.current);
			timer.current = setTimeout(() => {
				timer.current = undefined;
				keep(to);
			}, commitMS);
		},
		[keep],
	);
	return [at, set];
}

const narrow = window.matchMedia("(max-width: 899px)");

function useNarrow(): boolean {
	return useSyncExternalStore(
		(on) => {
			narrow.addEventListener("change", on);
			return () => narrow.removeEventListener("change", on);
		},
		() => narrow.matches,
	);
}

/** Place is what a narrow screen shows of the three. */
type Place = "outline" | "timeline" | "workspace";

const panes = ["changes", "files", "terminal", "preview"] as const;
const hideKey = "skete.workspace.hidden";

function RunScreen({ store, now }: { store: RunStore; now: RunView }) {
	const root = now.run.thread;
	const [at, setAt] = useAt();
	const view = usePast(store, now, at);
	const [agent, setAgent] = useParam("agent");
	const [, setPane] = useParam("pane");
	const [, setFile] = useParam("file");
	const [, setPort] = useParam("port");
	const [hide, setHide] = useState(() => localStorage.getItem(hideKey) === "1");
	const [place, setPlace] = useState<Place>("timeline");
	const [drawer, setDrawer] = useState(false);
	const [help, setHelp] = useState(false);
	const helped = useRef(false);
	helped.current ||= help;
	const [forkAt, setForkAt] = useState(0);
	const [sharing, setSharing] = useState(false);
	const besides = useRef(false);
	besides.current ||= sharing || forkAt > 0;
	const [acting, setActing] = useState<Pick<Of, "item" | "thread" | "revert"> | null>(null);
	const acted = useRef(false); // most never ask
	if (acting) acted.current = true;
	const timeline = useRef<TimelineKeys | null>(null);
	const small = useNarrow();
	const past = at > 0;
	const still = past ? view.fold.thread(root).lastAt : "";
	const thread = threadOf(view.fold, root, agent);
	const ownMachine = now.fold.thread(root).machine || now.run.sandbox || "";
	// A machine that the run was given is in its record from the start, and not in its log.
	const given = past && now.fold.thread(root).machine ? "" : now.run.sandbox;
	const machine = view.fold.thread(root).machine || given || "";
	const fresh = useFresh(now, at);
	const end = now.fold.thread(root);
	const dead = isLost(useSandbox(machine).data);

	const focus = useCallback(
		(id: string) => {
			setAgent(id === root ? "" : id.slice(root.length + 1), true);
			setDrawer(false);
			setPlace("timeline");
		},
		[setAgent, root],
	);
	const show = useCallback((to: boolean) => {
		setHide(!to);
		if (to) localStorage.removeItem(hideKey);
		else localStorage.setItem(hideKey, "1");
	}, []);
	const openPane = useCallback(
		(pane: string) => {
			show(true);
			setPlace("workspace");
			setPane(pane === "changes" ? "" : pane);
		},
		[show, setPane],
	);
	const openFile = useCallback(
		(path: string) => {
			openPane("changes");
			setFile(path);
		},
		[openPane, setFile],
	);
	const openPreview = useCallback(
		(port: number) => {
			openPane("preview");
			setPort(String(port));
		},
		[openPane, setPort],
	);
	const scene = useMemo<Scene>(
		() => ({
			store,
			root,
			still,
			focus,
			openFile,
			openPreview,
			fork: setForkAt,
			act: (item, thread, revert) => setActing({ item, thread, revert }),
		}),
		[store, root, still, focus, openFile, openPreview],
	);
	const live = () => setAt(0);
	const client = useQueryClient();
	const [noWay, setNoWay] = useState<unknown>(null);
	/** undoHere asks for the files of the moment that is looked at, from what is live. */
	const undoHere = async () => {
		setNoWay(null);
		try {
			const { restoreAt } = await import("./actions");
			const request = await restoreAt(client, ownMachine, trackOf(now.fold.thread(root)).stops, at);
			live();
			askWayBack(ownMachine, request);
		} catch (err) {
			setNoWay(err);
		}
	};
	useKeys([
		["?", () => setHelp(true)],
		[
			"g l",
			() => {
				live();
				requestAnimationFrame(() => timeline.current?.toEnd());
			},
		],
		["Ctrl \\", () => show(hide)],
		["Ctrl `", () => openPane("terminal")],
		["Escape", () => (drawer ? setDrawer(false) : false)],
		["F6", nextRegion],
		...panes.map((p, n): [string, () => unknown] => [String(n + 1), () => openPane(p)]),
	]);
	const showOutline = small ? place === "outline" : drawer;
	return (
		<SceneContext.Provider value={scene}>
			<div className={`flex min-h-0 min-w-0 flex-1 flex-col ${past ? "border-4 border-accent" : ""}`} data-past={past || undefined}>
				<RunHeader
					view={view}
					machine={machine}
					past={past}
					workspace={!hide}
					outline={drawer}
					onWorkspace={() => show(hide)}
					onOutline={() => setDrawer(!drawer)}
					onFork={() => setForkAt(at || now.fold.thread(root).seq)}
					onShare={() => setSharing(true)}
				/>
				{(end.over() || dead) && !past && (
					<Suspense fallback={null}>
						<Halted run={now.run.id} thread={end} machine={machine} onFork={() => setForkAt(end.seq)} />
					</Suspense>
				)}
				{now.error && <ProblemBox of={now.error} />}
				{past && <PastBar view={view} root={root} fresh={fresh} onFork={() => setForkAt(at)} onUndo={() => undoHere()} onLive={live} />}
				<Origin run={now.run} />
				{past && noWay !== null && <ProblemBox of={noWay} />}
				{thread.id !== root && <Crumbs fold={view.fold} root={root} thread={thread} onFocus={focus} />}
				<div className="relative flex min-h-0 flex-1">
					<aside
						aria-label="Plan and agents"
						tabIndex={-1}
						data-region
						className={`overflow-auto border-line border-r bg-ground min-[1200px]:static min-[1200px]:flex min-[1200px]:w-56 min-[1200px]:shrink-0 ${
							showOutline ? (small ? "flex flex-1" : "absolute inset-y-0 left-0 z-30 flex w-72") : "hidden"
						}`}
					>
						<Outline view={view} thread={thread.id} onFocus={focus} onFile={openFile} />
					</aside>
					<div className={`min-h-0 min-w-0 flex-1 ${small && place === "outline" ? "hidden" : "flex"}`}>
						<Split
							name="the timeline"
							at={0.5}
							left={<Timeline store={store} view={view} thread={thread} past={past} keys={timeline} />}
							right={<Workspace sandbox={machine} run={now.run.id} past={past} />}
							hideLeft={small && place === "workspace"}
							hideRight={small ? place !== "workspace" : hide}
						/>
					</div>
				</div>
				<Scrubber thread={now.fold.thread(root)} machine={ownMachine} version={now.version} first={now.firstSeq} at={at} onAt={setAt} />
				{small && <PlaceBar place={place} onPlace={setPlace} onPane={openPane} />}
			</div>
			{acted.current && (
				<Suspense fallback={null}>
					<Actions
						of={acting && { ...acting, run: now.fold.thread(acting.thread).run || now.run.id, machine: ownMachine }}
						root={acting?.thread === root}
						past={past}
						onFork={setForkAt}
						onLook={setAt}
						onFile={openFile}
						onRevisions={() => openPane("changes")}
						onClose={() => setActing(null)}
					/>
				</Suspense>
			)}
			<Suspense fallback={null}>
				{helped.current && <Help open={help} onClose={() => setHelp(false)} />}
				{besides.current && (
					<Beside
						run={now.run.id}
						forkAt={forkAt}
						sharing={sharing}
						onClose={() => {
							setForkAt(0);
							setSharing(false);
						}}
					/>
				)}
			</Suspense>
		</SceneContext.Provider>
	);
}

/** threadOf is the thread that the address names, or the run's own. */
function threadOf(fold: RunFold, root: string, agent: string): ThreadFold {
	return (agent && fold.threads.get(`${root}/${agent}`)) || fold.thread(root);
}

/** useFresh counts the events that came since the past is looked at. */
function useFresh(now: RunView, at: number): number {
	const seq = now.fold.thread(now.run.thread).seq;
	const [from, setFrom] = useState(0);
	if (at && !from) setFrom(seq);
	if (!at && from) setFrom(0);
	return at && from ? seq - from : 0;
}

/** nextRegion moves the focus to the next part of the page. */
function nextRegion(): void {
	const all = [...document.querySelectorAll<HTMLElement>("[data-region], [aria-label='Workspace'] [role=tab][aria-selected=true]")].filter(
		(e) => e.offsetParent !== null,
	);
	const here = all.findIndex((e) => e.contains(document.activeElement));
	all[(here + 1) % all.length]?.focus();
}

interface PastProps {
	view: RunView;
	root: string;
	fresh: number;
	onFork(): void;
	onUndo(): void;
	onLive(): void;
}

/** PastBar says that what is shown was recorded, and that nothing is done by looking. */
function PastBar({ view, root, fresh, onFork, onUndo, onLive }: PastProps) {
	const t = view.fold.thread(root);
	return (
		<div className="flex flex-wrap items-center gap-2 bg-accent-ground px-3 py-1">
			<span role="status">
				You look at {t.lastAt ? clock(t.lastAt) : "the beginning"}. <strong>Nothing is executed.</strong>
			</span>
			<button type="button" className="button" onClick={onFork}>
				Fork from here
			</button>
			<button type="button" className="button" onClick={onUndo}>
				Undo to here
			</button>
			<button type="button" className="button main" onClick={onLive}>
				Back to live
			</button>
			{fresh > 0 && <span>{fresh} new</span>}
		</div>
	);
}

interface CrumbsProps {
	fold: RunFold;
	root: string;
	thread: ThreadFold;
	onFocus(thread: string): void;
}

/** Crumbs lead from a sub-agent back to those above it. */
function Crumbs({ fold, root, thread, onFocus }: CrumbsProps) {
	const parts = thread.id.slice(root.length + 1).split("/");
	const above = [root, ...parts.slice(0, -1).map((_, n) => `${root}/${parts.slice(0, n + 1).join("/")}`)];
	const name = (id: string) => clip(fold.threads.get(id)?.agent || "agent", 60);
	return (
		<nav aria-label="Agents above" className="flex flex-wrap items-center gap-1 border-line border-b px-3 py-1">
			{above.map((id) => (
				<span key={id} className="flex items-center gap-1">
					<button type="button" className="button" onClick={() => onFocus(id)}>
						<Safe>{name(id)}</Safe>
					</button>
					<span aria-hidden>/</span>
				</span>
			))}
			<strong aria-current="page">
				<Safe>{name(thread.id)}</Safe>
			</strong>
		</nav>
	);
}

interface PlaceProps {
	place: Place;
	onPlace(p: Place): void;
	onPane(pane: string): void;
}

/** PlaceBar is how a narrow screen gets from one part to another. */
function PlaceBar({ place, onPlace, onPane }: PlaceProps) {
	const [pane] = useParam("pane");
	const here = place === "workspace" ? pane || "changes" : place;
	const to: [string, string, () => void][] = [
		["timeline", "Timeline", () => onPlace("timeline")],
		["changes", "Changes", () => onPane("changes")],
		["preview", "Preview", () => onPane("preview")],
		["terminal", "Terminal", () => onPane("terminal")],
		["files", "Files", () => onPane("files")],
		["outline", "Plan", () => onPlace("outline")],
	];
	return (
		<nav aria-label="Parts of the run" className="flex shrink-0 border-line border-t bg-raised">
			{to.map(([id, name, go]) => (
				<button
					key={id}
					type="button"
					aria-current={id === here ? "true" : undefined}
					onClick={go}
					className={`min-h-11 min-w-0 flex-1 truncate px-0.5 text-[10px] sm:text-[12px] ${id === here ? "border-accent border-t-2 text-accent" : "text-quiet"}`}
				>
					{name}
				</button>
			))}
		</nav>
	);
}
