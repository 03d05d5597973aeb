import { PanelRight, Square } from "lucide-react";
import { useState } from "react";
import { post } from "../api/http";
import { useLive } from "../live";
import { clock, money, plural } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { State } from "../ui/state";
import { clip, Safe } from "../ui/text";
import type { RunView } from "./store";

/** RunHeader is what the run is, and what can be done with all of it. */
export function RunHeader({ view, workspace, onWorkspace }: { view: RunView; workspace: boolean; onWorkspace(): void }) {
	const t = view.fold.thread(view.run.thread);
	const live = useLive();
	const [problem, setProblem] = useState<unknown>(null);
	const stop = () => post(`/v1/runs/${view.run.id}/cancel`).catch(setProblem);
	const unknown = live.state === "lost" && !t.over();
	return (
		<div className="flex flex-col border-line border-b">
			<div className="flex min-h-10 flex-wrap items-center gap-x-3 gap-y-1 px-3 py-1">
				<h1 className="min-w-0 flex-1 truncate font-semibold">
					<Safe>{clip(view.run.title || view.run.id, 200)}</Safe>
				</h1>
				<span data-state={unknown ? "unknown" : t.state}>
					{unknown ? <span className="text-warn">unknown since {clock(live.lastAt || live.since)}</span> : <State of={t.state} />}
				</span>
				<span className="text-quiet">{plural(t.step, "step")}</span>
				<span className="text-quiet">{money(t.costUSD)}</span>
				<button type="button" className="button" onClick={() => void stop()} disabled={t.over() || t.cancelling}>
					<Square size={14} aria-hidden /> {t.cancelling && !t.over() ? "Stopping" : "Stop"}
				</button>
				<button
					type="button"
					className="button icon plain"
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
