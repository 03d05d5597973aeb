import { Link } from "wouter";
import { ago, duration } from "../ui/format";
import { State } from "../ui/state";
import { clip, Safe } from "../ui/text";
import type { WorkflowRun } from "./api";

export function WorkflowRunTable({ runs }: { runs: WorkflowRun[] }) {
	return (
		// biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys.
		<section className="relative overflow-x-auto" aria-label="Table of runs" tabIndex={0}>
			<table className="table">
				<thead>
					<tr>
						{["State", "Workflow", "Run", "Version", "By", "Time", "Began"].map((h) => (
							<th key={h} scope="col">
								{h}
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{runs.map((r) => (
						<tr key={r.id}>
							<td>
								<State of={r.state} />
								{r.text && r.state !== "succeeded" && (
									<span className="block min-w-40 break-words text-quiet">
										<Safe>{clip(r.text, 160)}</Safe>
									</span>
								)}
							</td>
							<td>
								<Link href={`/workflows/${encodeURIComponent(r.workflow)}`} className="underline-offset-2 hover:underline">
									<Safe>{r.workflow}</Safe>
								</Link>
							</td>
							<td>
								<Link href={`/workflow-runs/${r.id}`} className="text-accent underline-offset-2 hover:underline">
									{r.id.slice(0, 16)}
								</Link>
							</td>
							<td className="whitespace-nowrap">
								<Safe>{r.version ?? ""}</Safe> <code className="text-quiet">{r.hash.slice(0, 8)}</code>
							</td>
							<td>
								<Safe>{r.by ?? ""}</Safe>
							</td>
							<td className="whitespace-nowrap">
								{duration((r.ended_at ? Date.parse(r.ended_at) : Date.now()) - Date.parse(r.created_at))}
							</td>
							<td className="whitespace-nowrap text-quiet">
								<time dateTime={r.created_at} title={r.created_at}>
									{ago(r.created_at)}
								</time>
							</td>
						</tr>
					))}
				</tbody>
			</table>
		</section>
	);
}
