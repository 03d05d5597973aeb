import { useQuery } from "@tanstack/react-query";
import { GitFork, ListTree, PanelRight, Square } from "lucide-react";
import { useEffect, useState } from "react";
import { Link } from "wouter";
import { get, post, query } from "../api/http";
import { type Page, useSandbox } from "../api/queries";
import type { Run, Schemas } from "../api/types";
import { useLive } from "../live";
import { clock, duration, money, plural } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Isolation, State } from "../ui/state";
import { clip, Safe } from "../ui/text";
import type { ThreadFold } from "./fold";
import type { RunView } from "./store";

type Fork = Schemas["Fork"];

interface Props {
	view: RunView;
	machine: string;
	/** past: what is shown was so once; nothing is done to the run from here. */
	past: boolean;
	workspace: boolean;
	outline: boolean;
	onWorkspace(): void;
	onOutline(): void;
	onFork(): void;
	onShare(): void;
}

/** RunHeader is what the run is, and what can be done with all of it. */
export function RunHeader({ view, machine, past, workspace, outline, onWorkspace, onOutline, onFork, onShare }: Props) {
	const t = view.fold.thread(view.run.thread);
	const [problem, setProblem] = useState<unknown>(null);
	const stop = () => {
		setProblem(null);
		return post(`/v1/runs/${encodeURIComponent(view.run.id)}/cancel`).catch(setProblem);
	};
	return (
		<div className="flex flex-col border-line border-b">
			<div className="flex min-h-10 flex-wrap items-center gap-x-3 gap-y-1 px-3 py-1">
				<button
					type="button"
					className="button icon plain max-[899px]:hidden min-[1200px]:hidden"
					aria-expanded={outline}
					aria-label="Plan and agents"
					title="Plan and agents"
					onClick={onOutline}
				>
					<ListTree size={16} aria-hidden />
				</button>
				<h1 className="min-w-40 flex-1 truncate font-semibold">
					<Safe>{clip(view.run.title || view.run.id, 200)}</Safe>
				</h1>
				<RunState of={t} past={past} />
				<span className="text-quiet">{plural(t.step, "step")}</span>
				<span className="text-quiet">{money(t.costUSD)}</span>
				{machine && <Machine id={machine} />}
				{view.run.fork && <Origin run={view.run.id} fork={view.run.fork} />}
				<button type="button" className="button" onClick={() => void stop()} disabled={past || t.over() || t.cancelling}>
					<Square size={14} aria-hidden /> {t.cancelling && !t.over() ? "Stopping" : "Stop"}
				</button>
				<button type="button" className="button" onClick={onFork}>
					<GitFork size={14} aria-hidden /> Fork
				</button>
				<button type="button" className="button" onClick={onShare}>
					Share
				</button>
				<button
					type="button"
					className="button icon plain max-[899px]:hidden"
					aria-pressed={workspace}
					aria-label="Workspace"
					title="Workspace (Ctrl \)"
					onClick={onWorkspace}
				>
					<PanelRight size={16} aria-hidden />
				</button>
			</div>
			{problem !== null && <ProblemBox of={problem} />}
		</div>
	);
}

/** RunState tells the state that the log tells. A lost connection says that it does not know. */
function RunState({ of: t, past }: { of: ThreadFold; past: boolean }) {
	const live = useLive();
	const unknown = live.state === "lost" && !t.over() && !past;
	return (
		<span className="flex items-center gap-2" data-state={unknown ? "unknown" : t.state}>
			{unknown ? <span className="text-warn">unknown since {clock(live.lastAt || live.since)}</span> : <State of={t.state} />}
			<Elapsed of={t} still={unknown || past} />
		</span>
	);
}

function Elapsed({ of: t, still }: { of: ThreadFold; still: boolean }) {
	const [now, setNow] = useState(Date.now);
	const going = !still && !t.over();
	useEffect(() => {
		if (!going) return;
		setNow(Date.now());
		const timer = setInterval(() => setNow(Date.now()), 1000);
		return () => clearInterval(timer);
	}, [going]);
	if (!t.startedAt) return null;
	const end = going ? now : Date.parse(t.endedAt || t.lastAt || t.startedAt);
	const ms = Math.max(0, end - Date.parse(t.startedAt));
	return <span className="text-quiet tabular-nums">{duration(going ? Math.floor(ms / 1000) * 1000 : ms)}</span>;
}

function Machine({ id }: { id: string }) {
	const sandbox = useSandbox(id).data;
	return (
		<Link href={`/vms/${encodeURIComponent(id)}`} className="flex items-center gap-1 text-quiet underline-offset-2 hover:underline">
			{sandbox && <Isolation of={sandbox.isolation} />}
			<code>{clip(sandbox?.name || id, 14)}</code>
		</Link>
	);
}

/** Origin leads from a fork to what became of it and of the run that it was made of. */
function Origin({ run, fork }: { run: string; fork: Fork }) {
	const of = useQuery({
		queryKey: ["runs", "of", fork.thread],
		queryFn: () => get<Page<Run>>(`/v1/runs${query({ thread: fork.thread, page_size: 1000 })}`),
	});
	const items = of.data?.items ?? [];
	const origin = items.find((r) => r.first_seq <= fork.seq && fork.seq <= r.last_seq) ?? items.at(-1);
	if (!origin) return <span className="text-quiet">a fork</span>;
	return (
		<Link href={`/runs/${run}/compare?a=${origin.id}&b=${run}`} className="text-accent underline underline-offset-2">
			Compare with what it was forked from
		</Link>
	);
}
