// A run of a workflow.

import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { post } from "../api/http";
import { Dialog } from "../ui/dialog";
import { clock, count, duration, money } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { State } from "../ui/state";
import { Safe, visible } from "../ui/text";
import { useWorkflow, useWorkflowRun, type WorkflowNode, type WorkflowRun } from "./api";
import { NodesView } from "./view";

export function WorkflowRunView({ id }: { id: string }) {
	const run = useWorkflowRun(id);
	const r = run.data;
	return (
		<div className="flex w-full min-w-0 flex-col gap-4 p-4">
			<nav aria-label="Breadcrumb" className="text-quiet">
				<Link href="/workflows" className="underline">
					Workflows
				</Link>{" "}
				/{" "}
				{r && (
					<Link href={`/workflows/${encodeURIComponent(r.workflow)}`} className="underline">
						<Safe>{r.workflow}</Safe>
					</Link>
				)}
			</nav>
			{run.error && <ProblemBox of={run.error} again={() => void run.refetch()} />}
			{r && <Whole run={r} />}
		</div>
	);
}

function Whole({ run: r }: { run: WorkflowRun }) {
	const waiting = (r.nodes ?? []).filter((n) => n.state === "waiting");
	return (
		<>
			<Head run={r} />
			{waiting.map((n) => (
				<AnswerCard key={n.label} run={r.id} node={n} />
			))}
			{r.text && (
				<p className={`break-words ${r.state === "failed" ? "text-bad" : ""}`}>
					<Safe>{r.text}</Safe>
				</p>
			)}
			{r.graph && <NodesView graph={r.graph} run={r} name={r.workflow} />}
			{r.result !== undefined && r.result !== null && (
				<section aria-labelledby="result">
					<h2 id="result" className="font-semibold">
						Result
					</h2>
					<pre className="max-h-96 overflow-auto rounded-md bg-sunken p-2 break-words whitespace-pre-wrap">
						{visible(typeof r.result === "string" ? r.result : JSON.stringify(r.result, null, 2))}
					</pre>
				</section>
			)}
		</>
	);
}

function Head({ run: r }: { run: WorkflowRun }) {
	const [ending, setEnding] = useState(false);
	const until = r.ended_at ? Date.parse(r.ended_at) : Date.now();
	return (
		<header className="flex flex-col gap-1">
			<div className="flex flex-wrap items-center gap-3">
				<h1 className="text-base font-semibold">
					<Safe>{r.workflow}</Safe>
				</h1>
				<State of={r.state} />
				<span className="tabular-nums">{duration(until - Date.parse(r.created_at))}</span>
				<span>{r.steps ?? 0} steps</span>
				<span>{count(r.tokens ?? 0)} tokens</span>
				<span>{money(r.cost_usd ?? 0)}</span>
				<span className="flex-1" />
				{r.state === "running" && (
					<button type="button" className="button danger" onClick={() => setEnding(true)}>
						Cancel
					</button>
				)}
			</div>
			<p className="flex flex-wrap gap-x-3 text-quiet">
				<span>
					Began {clock(r.created_at)}
					{r.by && (
						<>
							{" "}
							by <Safe>{r.by}</Safe>
						</>
					)}
				</span>
				<VersionLine run={r} />
				{r.sandbox && (
					<Link href={`/vms/${r.sandbox}`} className="underline">
						shared machine {r.sandbox.slice(0, 12)}
					</Link>
				)}
			</p>
			{ending && <CancelDialog run={r} onClose={() => setEnding(false)} />}
		</header>
	);
}

/** VersionLine says with which content the run began, and whether that is the current one. */
function VersionLine({ run: r }: { run: WorkflowRun }) {
	const now = useWorkflow(r.workflow);
	const newest = now.data?.versions?.at(-1);
	const own = `version ${r.version ? `${r.version} ` : ""}(${r.hash.slice(0, 12)})`;
	const known = now.data?.versions?.some((v) => v.hash === r.hash);
	return (
		<span>
			{known ? (
				<Link href={`/workflows/${encodeURIComponent(r.workflow)}?version=${r.hash}`} className="underline">
					<Safe>{own}</Safe>
				</Link>
			) : (
				<Safe>{own}</Safe>
			)}
			{newest && newest.hash === r.hash && ", which is the current one"}
			{newest?.hash && newest.hash !== r.hash && (
				<span className="text-warn">
					; the current one is another: <Safe>{`${newest.version ? `${newest.version} ` : ""}(${newest.hash.slice(0, 12)})`}</Safe>
				</span>
			)}
			{now.error && ", which the server does not keep by name"}
		</span>
	);
}

function AnswerCard({ run, node }: { run: string; node: WorkflowNode }) {
	const [text, setText] = useState("");
	const [busy, setBusy] = useState("");
	const [problem, setProblem] = useState<unknown>(null);
	const client = useQueryClient();
	const choose = async (choice: string) => {
		setBusy(choice);
		setProblem(null);
		try {
			await post(`/v1/workflow-runs/${run}/answer`, { node: node.node, choice, text: text || undefined });
		} catch (err) {
			setProblem(err);
		}
		await client.invalidateQueries({ queryKey: ["workflows"] });
		setBusy("");
	};
	return (
		<section
			id={`ask-${node.node}`}
			aria-label={`${node.label} asks you`}
			className="flex flex-col gap-2 rounded-md border border-warn bg-warn-ground p-3"
		>
			<p>
				<strong className="text-warn">
					<Safe>{node.label}</Safe> needs you:
				</strong>{" "}
				<span className="break-words whitespace-pre-wrap">
					<Safe>{node.ask ?? ""}</Safe>
				</span>
			</p>
			<label className="flex flex-col gap-1">
				What else is to be said (not needed)
				<textarea className="field" rows={2} maxLength={16_384} value={text} onChange={(e) => setText(e.target.value)} />
			</label>
			<div className="flex flex-wrap gap-2">
				{(node.choices ?? []).map((c) => (
					<button key={c} type="button" className="button min-h-11 sm:min-h-7" disabled={busy !== ""} onClick={() => void choose(c)}>
						{busy === c ? "Sending " : ""}
						<Safe>{c}</Safe>
					</button>
				))}
			</div>
			{problem !== null && <ProblemBox of={problem} />}
		</section>
	);
}

function CancelDialog({ run, onClose }: { run: WorkflowRun; onClose(): void }) {
	const [problem, setProblem] = useState<unknown>(null);
	const [busy, setBusy] = useState(false);
	const client = useQueryClient();
	const end = async () => {
		setBusy(true);
		setProblem(null);
		try {
			await post(`/v1/workflow-runs/${run.id}/cancel`);
			await client.invalidateQueries({ queryKey: ["workflows"] });
			onClose();
		} catch (err) {
			setProblem(err);
			setBusy(false);
		}
	};
	return (
		<Dialog
			open
			onClose={onClose}
			title={`Cancel this run of ${visible(run.workflow)}?`}
			text="It ends with all that is under way in it. What its nodes have done stays in their machines."
		>
			{problem !== null && <ProblemBox of={problem} />}
			<div className="flex justify-end gap-2">
				<button type="button" className="button" data-first onClick={onClose}>
					Keep it running
				</button>
				<button type="button" className="button danger" disabled={busy} onClick={() => void end()}>
					Cancel the run
				</button>
			</div>
		</Dialog>
	);
}
