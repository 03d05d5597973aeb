import { Check, Circle, CircleDot } from "lucide-react";
import { State } from "../ui/state";
import { clip, Safe } from "../ui/text";
import type { ThreadFold } from "./fold";
import type { RunView } from "./store";

/** Outline is the agent's plan and the tree of its sub-agents, always in sight. */
export function Outline({ view }: { view: RunView }) {
	const root = view.fold.thread(view.run.thread);
	const done = root.todos.filter((t) => t.status === "completed").length;
	return (
		<aside aria-label="Plan and agents" className="hidden w-56 shrink-0 flex-col gap-3 overflow-auto border-line border-r p-3 lg:flex">
			<section aria-label="Plan">
				<h2 className="text-quiet">Plan {root.todos.length > 0 && `${done}/${root.todos.length}`}</h2>
				<ul>
					{root.todos.map((t, i) => (
						<li key={i} className="flex items-start gap-1">
							{t.status === "completed" ? <Check size={14} aria-label="done" className="mt-0.5 shrink-0 text-good" /> : null}
							{t.status === "in_progress" ? <CircleDot size={14} aria-label="under way" className="mt-0.5 shrink-0 text-accent" /> : null}
							{t.status === "pending" ? <Circle size={14} aria-label="to do" className="mt-0.5 shrink-0 text-quiet" /> : null}
							<span className="min-w-0 break-words">
								<Safe>{clip(t.content, 200)}</Safe>
							</span>
						</li>
					))}
				</ul>
			</section>
			<section aria-label="Agents">
				<h2 className="text-quiet">Agents</h2>
				<ul>
					<Agent of={root} view={view} />
				</ul>
			</section>
		</aside>
	);
}

function Agent({ of, view }: { of: ThreadFold; view: RunView }) {
	const beneath = view.fold.children(of.id);
	return (
		<li>
			<span className="flex items-center justify-between gap-1">
				<span className="truncate">
					<Safe>{of.agent || "agent"}</Safe>
				</span>
				<State of={of.state} />
			</span>
			{beneath.length > 0 && (
				<ul className="border-line border-l pl-2">
					{beneath.map((t) => (
						<Agent key={t.id} of={t} view={view} />
					))}
				</ul>
			)}
		</li>
	);
}
