// Workflows: those that can be run by name, and their runs.

import { Link } from "wouter";
import { ago } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Safe } from "../ui/text";
import { useParam } from "../ui/url";
import { useWorkflowRuns, useWorkflows, type Workflow } from "../workflow/api";
import { DefinitionView } from "../workflow/definition";
import { WorkflowRunView } from "../workflow/run";
import { WorkflowRunTable } from "../workflow/runs";
import { TextEditor } from "../workflow/text";

export default function WorkflowsPage({ name, run }: { name?: string; run?: string }) {
	if (run) return <WorkflowRunView key={run} id={run} />;
	if (name) return <DefinitionView key={name} name={decodeURIComponent(name)} />;
	return <Overview />;
}

const first = `name: first
version: "1"
topology: sequential
nodes:
  - name: work
    agent: default
    task: Say hello.
`;

function Overview() {
	const [making, setMaking] = useParam("new");
	const [page, setPage] = useParam("page");
	const list = useWorkflows();
	const runs = useWorkflowRuns(page);
	return (
		<div className="mx-auto flex w-full max-w-6xl flex-col gap-6 p-4">
			<section aria-labelledby="workflows" className="flex flex-col gap-2">
				<div className="flex flex-wrap items-center gap-2">
					<h1 id="workflows" className="text-base font-semibold">
						Workflows
					</h1>
					<span className="flex-1" />
					<button type="button" className="button" aria-pressed={!!making} onClick={() => setMaking(making ? "" : "1")}>
						{making ? "Close the new one" : "New workflow"}
					</button>
				</div>
				{making && <TextEditor file="workflow.yaml" initial="" key="new" />}
				{making && (
					<details>
						<summary className="text-quiet">A workflow to begin with</summary>
						<pre className="overflow-x-auto rounded-md bg-sunken p-2">{first}</pre>
					</details>
				)}
				{list.error && <ProblemBox of={list.error} again={() => void list.refetch()} />}
				{list.data && <Table items={list.data.items ?? []} />}
			</section>
			<section aria-labelledby="runs" className="flex flex-col gap-2">
				<h2 id="runs" className="font-semibold">
					Runs
				</h2>
				{runs.error && <ProblemBox of={runs.error} again={() => void runs.refetch()} />}
				{runs.data && (runs.data.items?.length ? <WorkflowRunTable runs={runs.data.items} /> : <p className="text-quiet">No runs here.</p>)}
				<nav aria-label="Pages" className="flex gap-2">
					{page && (
						<button type="button" className="button" onClick={() => setPage("", true)}>
							Newest runs
						</button>
					)}
					{runs.data?.next_page_token && (
						<button type="button" className="button" onClick={() => setPage(runs.data?.next_page_token ?? "", true)}>
							Older runs
						</button>
					)}
				</nav>
			</section>
		</div>
	);
}

function Table({ items }: { items: Workflow[] }) {
	if (!items.length)
		return (
			<p className="text-quiet">
				There are none yet. Make one here, or <code>skete workflow put FILE</code>.
			</p>
		);
	return (
		// biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys.
		<section className="relative overflow-x-auto" aria-label="Table of workflows" tabIndex={0}>
			<table className="table">
				<thead>
					<tr>
						{["Name", "Version", "Versions kept", "From", "By", "Changed"].map((h) => (
							<th key={h} scope="col">
								{h}
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{items.map((w) => {
						const newest = w.versions?.at(-1);
						return (
							<tr key={w.name}>
								<td>
									<Link href={`/workflows/${encodeURIComponent(w.name)}`} className="text-accent underline-offset-2 hover:underline">
										<Safe>{w.name}</Safe>
									</Link>
								</td>
								<td className="whitespace-nowrap">
									<Safe>{newest?.version ?? ""}</Safe> <code className="text-quiet">{newest?.hash?.slice(0, 8)}</code>
								</td>
								<td>{w.folder ? "" : w.versions?.length}</td>
								<td>
									<Safe>{w.folder ? `the server's folder: ${newest?.file ?? ""}` : (newest?.file ?? "")}</Safe>
								</td>
								<td>
									<Safe>{newest?.by ?? ""}</Safe>
								</td>
								<td className="whitespace-nowrap text-quiet">{newest?.at && <time dateTime={newest.at}>{ago(newest.at)}</time>}</td>
							</tr>
						);
					})}
				</tbody>
			</table>
		</section>
	);
}
