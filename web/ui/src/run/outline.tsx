import { useMemo } from "react";
import { plural } from "../ui/format";
import { useSlow } from "../ui/slow";
import { State } from "../ui/state";
import { clip, Flat, Safe } from "../ui/text";
import type { RunFold, ThreadFold } from "./fold";
import { Todos } from "./items_body";
import type { RunView } from "./store";

interface Props {
	view: RunView;
	/** thread whose timeline is shown. */
	thread: string;
	onFocus(thread: string): void;
	onFile(path: string): void;
}

const filesMax = 100;
const filesMS = 500; // all items are looked through: not in each frame

/** Outline is the agent's plan, the tree of its sub-agents, and the files that its tools named. */
export function Outline({ view, thread, onFocus, onFile }: Props) {
	const root = view.fold.thread(view.run.thread);
	const done = root.todos.filter((t) => t.status === "completed").length;
	const slow = useSlow(view.version, filesMS);
	// biome-ignore lint/correctness/useExhaustiveDependencies: the fold changes in place, with the version.
	const files = useMemo(() => touched(view.fold), [view.fold, slow]);
	return (
		<div className="flex min-w-0 flex-1 flex-col gap-3 p-3">
			<section aria-label="Plan">
				<h2 className="text-quiet">Plan {root.todos.length > 0 && `${done}/${root.todos.length}`}</h2>
				{root.todos.length ? <Todos todos={root.todos} /> : <p className="text-quiet">none</p>}
			</section>
			<section aria-label="Agents">
				<h2 className="text-quiet">Agents</h2>
				<ul>
					<Agent of={root} view={view} thread={thread} onFocus={onFocus} />
				</ul>
			</section>
			<section aria-label="Files">
				<h2 className="text-quiet">Files written: {files.length}</h2>
				<ul>
					{files.slice(0, filesMax).map((path) => (
						<li key={path}>
							<button type="button" className="block min-h-6 w-full truncate text-left hover:underline" onClick={() => onFile(path)}>
								<Flat>{path}</Flat>
							</button>
						</li>
					))}
				</ul>
				{files.length > filesMax && <p className="text-quiet">and {plural(files.length - filesMax, "more", "more")}</p>}
			</section>
		</div>
	);
}

/** touched are the files that calls of file tools wrote; what commands did, Changes shows. */
function touched(fold: RunFold): string[] {
	const paths = new Set<string>();
	for (const t of fold.threads.values())
		for (const i of t.items) {
			if (i.kind !== "call" || i.state !== "done" || i.rewound) continue;
			if (i.tool !== "write_file" && i.tool !== "edit_file") continue;
			const path = (i.args as { file_path?: unknown } | null)?.file_path;
			if (typeof path === "string") paths.add(path);
		}
	return [...paths].sort();
}

function Agent({ of, view, thread, onFocus }: { of: ThreadFold; view: RunView; thread: string; onFocus(thread: string): void }) {
	const beneath = view.fold.children(of.id);
	const here = of.id === thread;
	return (
		<li>
			<button
				type="button"
				aria-current={here ? "true" : undefined}
				onClick={() => onFocus(of.id)}
				className={`flex min-h-7 w-full items-center justify-between gap-1 text-left ${here ? "font-semibold text-accent" : ""}`}
			>
				<span className="truncate">
					<Safe>{clip(of.agent || "agent", 60)}</Safe>
				</span>
				<State of={of.state} />
			</button>
			{beneath.length > 0 && (
				<ul className="border-line border-l pl-2">
					{beneath.map((t) => (
						<Agent key={t.id} of={t} view={view} thread={thread} onFocus={onFocus} />
					))}
				</ul>
			)}
		</li>
	);
}
