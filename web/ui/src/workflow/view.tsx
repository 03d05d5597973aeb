// A workflow as a picture or as a table; which of them is in the address.

import { lazy, Suspense, useEffect, useMemo } from "react";
import type { Schemas } from "../api/types";
import { useParam } from "../ui/url";
import type { WorkflowRun } from "./api";
import { graphMax, rowsOf } from "./rows";
import { NodeTable } from "./table";

const GraphView = lazy(() => import("./graph").then((m) => ({ default: m.GraphView })));

const wide = 900;

const typing = (e: KeyboardEvent) =>
	e.ctrlKey || e.metaKey || e.altKey || (e.target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName));

/** shownAs decides between the two: of many nodes, and on a narrow page, the table says more. */
export function shownAs(wanted: string, nodes: number, width: number): "graph" | "table" {
	if (nodes > graphMax) return "table";
	if (wanted === "graph" || wanted === "table") return wanted;
	return width < wide ? "table" : "graph";
}

export function NodesView({ graph, run, name }: { graph: Schemas["WorkflowGraph"]; run?: WorkflowRun; name: string }) {
	const [wanted, setWanted] = useParam("view");
	const rows = useMemo(() => rowsOf(graph, run), [graph, run]);
	const many = (graph.vertices ?? []).length > graphMax;
	const as = shownAs(wanted, (graph.vertices ?? []).length, innerWidth);
	useEffect(() => {
		const on = (e: KeyboardEvent) => {
			if (e.key !== "t" || many || typing(e)) return;
			setWanted(as === "table" ? "graph" : "table");
		};
		addEventListener("keydown", on);
		return () => removeEventListener("keydown", on);
	}, [as, many, setWanted]);
	return (
		<section aria-labelledby="nodes" className="flex flex-col gap-2">
			<div className="flex flex-wrap items-center gap-2">
				<h2 id="nodes" className="font-semibold">
					Nodes
				</h2>
				{!many && (
					<fieldset className="flex gap-1">
						<legend className="sr-only">Show nodes as</legend>
						{(["graph", "table"] as const).map((v) => (
							<button
								key={v}
								type="button"
								className={`button ${as === v ? "border-accent bg-accent-ground" : ""}`}
								aria-pressed={as === v}
								onClick={() => setWanted(v)}
							>
								{v === "graph" ? "Picture" : "Table"}
							</button>
						))}
						<span className="self-center text-quiet">
							<kbd>t</kbd> changes
						</span>
					</fieldset>
				)}
			</div>
			{many && (
				<p className="text-quiet">
					It has {(graph.vertices ?? []).length} nodes; a picture is drawn of {graphMax} at most.
				</p>
			)}
			{as === "table" ? (
				<NodeTable rows={rows} withRun={!!run} />
			) : (
				<Suspense fallback={<NodeTable rows={rows} withRun={!!run} />}>
					<GraphView graph={graph} rows={rows} name={name} />
				</Suspense>
			)}
		</section>
	);
}
