// One workflow that can be run by its name.

import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { call } from "../api/http";
import { Dialog } from "../ui/dialog";
import { clock } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Safe, visible } from "../ui/text";
import { useParam } from "../ui/url";
import { useWorkflow, useWorkflowRuns, type Workflow } from "./api";
import { mistakesOf } from "./rows";
import { WorkflowRunTable } from "./runs";
import { StartForm } from "./start";
import { TextEditor } from "./text";
import { NodesView } from "./view";

export function DefinitionView({ name }: { name: string }) {
	const [version, setVersion] = useParam("version");
	const found = useWorkflow(name, version);
	const w = found.data;
	return (
		<div className="flex w-full min-w-0 flex-col gap-4 p-4">
			<nav aria-label="Breadcrumb" className="text-quiet">
				<Link href="/workflows" className="underline">
					Workflows
				</Link>{" "}
				/ <Safe>{name}</Safe>
			</nav>
			{found.error && <ProblemBox of={found.error} again={() => void found.refetch()} />}
			{w && (
				<>
					<Head workflow={w} version={version} setVersion={setVersion} />
					{w.errors?.length ? (
						<p role="alert" className="text-bad">
							This file cannot be run: it has mistakes, which are shown below.
						</p>
					) : (
						<StartForm key={`${w.name}@${version}`} workflow={w} version={version} />
					)}
					{w.graph && <NodesView graph={w.graph} name={w.name} />}
					<TextEditor
						key={w.text}
						file={w.versions?.at(-1)?.file ?? `${name}.yaml`}
						initial={w.text ?? ""}
						folder={w.folder}
						errors={mistakesOf(w.errors ?? [])}
					/>
					<Runs name={name} />
				</>
			)}
		</div>
	);
}

function Head({ workflow: w, version, setVersion }: { workflow: Workflow; version: string; setVersion(v: string): void }) {
	const [removing, setRemoving] = useState(false);
	const versions = [...(w.versions ?? [])].reverse();
	return (
		<header className="flex flex-col gap-1">
			<div className="flex flex-wrap items-center gap-3">
				<h1 className="text-base font-semibold">
					<Safe>{w.name}</Safe>
				</h1>
				{w.topology && <span className="rounded border border-line px-1 text-quiet">{w.topology}</span>}
				{w.folder && <span className="text-quiet">of the server&apos;s folder</span>}
				{versions.length > 1 && (
					<label className="flex items-center gap-1">
						Version
						<select className="field max-w-56" value={version} onChange={(e) => setVersion(e.target.value)}>
							{versions.map((v, i) => (
								<option key={v.hash} value={i ? v.hash : ""}>
									{visible(
										`${v.version ? `${v.version} ` : ""}${v.hash?.slice(0, 12)}${v.at ? `, ${clock(v.at)}` : ""}${i ? "" : ", newest"}`,
									)}
								</option>
							))}
						</select>
					</label>
				)}
				<span className="flex-1" />
				{!w.folder && (
					<button type="button" className="button danger" onClick={() => setRemoving(true)}>
						Forget
					</button>
				)}
			</div>
			{w.description && (
				<p>
					<Safe>{w.description}</Safe>
				</p>
			)}
			{version && version !== versions[0]?.hash && (
				<p className="text-warn">This is an older version. A run that is started here gets it; by name alone it gets the newest.</p>
			)}
			{removing && <RemoveDialog name={w.name} onClose={() => setRemoving(false)} />}
		</header>
	);
}

function Runs({ name }: { name: string }) {
	const runs = useWorkflowRuns();
	const own = (runs.data?.items ?? []).filter((r) => r.workflow === name);
	return (
		<section aria-labelledby="runs" className="flex flex-col gap-2">
			<h2 id="runs" className="font-semibold">
				Its runs
			</h2>
			{runs.error && <ProblemBox of={runs.error} />}
			{runs.data &&
				(own.length ? <WorkflowRunTable runs={own} /> : <p className="text-quiet">None of the newest 50 runs of workflows is of it.</p>)}
		</section>
	);
}

function RemoveDialog({ name, onClose }: { name: string; onClose(): void }) {
	const [problem, setProblem] = useState<unknown>(null);
	const client = useQueryClient();
	const [, go] = useLocation();
	const remove = async () => {
		setProblem(null);
		try {
			await call(`/v1/workflows/${encodeURIComponent(name)}`, { method: "DELETE" });
			await client.invalidateQueries({ queryKey: ["workflows", "list"] });
			go("/workflows");
		} catch (err) {
			setProblem(err);
		}
	};
	return (
		<Dialog
			open
			onClose={onClose}
			title={`Forget the workflow ${visible(name)}?`}
			text="All its versions go. Runs keep what they began with."
		>
			{problem !== null && <ProblemBox of={problem} />}
			<div className="flex justify-end gap-2">
				<button type="button" className="button" data-first onClick={onClose}>
					Keep it
				</button>
				<button type="button" className="button danger" onClick={() => void remove()}>
					Forget {visible(name)}
				</button>
			</div>
		</Dialog>
	);
}
