// The workspace of a machine: panes that are loaded when they are first opened, and then stay.

import { lazy, Suspense, useState } from "react";
import { useParam } from "../ui/url";
import { UndoHost } from "../undo/host";
import type { PaneProps } from "./pane";

const panes = {
	changes: { title: "Changes", Pane: lazy(() => import("./changes")) },
	files: { title: "Files", Pane: lazy(() => import("./files")) },
	terminal: { title: "Terminal", Pane: lazy(() => import("./terminal")) },
	preview: { title: "Preview", Pane: lazy(() => import("./preview")) },
};

type Name = keyof typeof panes;
const names = Object.keys(panes) as Name[];

export function Workspace({ sandbox, run, past }: Omit<PaneProps, "hidden">) {
	const [param, setParam] = useParam("pane");
	const shown = names.find((n) => n === param) ?? "changes";
	const [opened, setOpened] = useState<ReadonlySet<Name>>(new Set());
	if (!opened.has(shown)) setOpened(new Set([...opened, shown]));
	if (!sandbox) return <p className="p-3 text-quiet">There is no machine yet.</p>;
	return (
		<section aria-label="Workspace" className="flex min-h-0 min-w-0 flex-1 flex-col">
			<div role="tablist" aria-label="Panes" className="flex shrink-0 gap-1 overflow-x-auto border-line border-b px-2">
				{names.map((n) => (
					<button
						key={n}
						type="button"
						role="tab"
						id={`tab-${n}`}
						aria-selected={n === shown}
						aria-controls={`pane-${n}`}
						className={`min-h-8 px-2 ${n === shown ? "border-accent border-b-2 text-text" : "text-quiet"}`}
						onClick={() => setParam(n === "changes" ? "" : n)}
					>
						{panes[n].title}
					</button>
				))}
			</div>
			<UndoHost sandbox={sandbox} past={past} />
			{names
				.filter((n) => opened.has(n))
				.map((n) => {
					const { Pane } = panes[n];
					return (
						<div
							key={n}
							role="tabpanel"
							id={`pane-${n}`}
							aria-labelledby={`tab-${n}`}
							hidden={n !== shown}
							className={n === shown ? "flex min-h-0 min-w-0 flex-1 flex-col overflow-auto" : "hidden"}
						>
							<Suspense fallback={null}>
								<Pane sandbox={sandbox} run={run} past={past} hidden={n !== shown} />
							</Suspense>
						</div>
					);
				})}
		</section>
	);
}
