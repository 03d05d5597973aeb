// The table of runs, and the composer that starts one.

import { useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { Link, useLocation } from "wouter";
import { post } from "../api/http";
import { useAgents, useModels, useRuns } from "../api/queries";
import type { Run, Schemas } from "../api/types";
import { ago, money } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { State } from "../ui/state";
import { clip, Safe } from "../ui/text";

const states = ["", "running", "interrupted", "succeeded", "failed", "cancelled"] as const;

export function HomePage() {
	const [state, setState] = useState("");
	const runs = useRuns({ state });
	return (
		<div className="mx-auto flex w-full max-w-6xl flex-col gap-4 p-4">
			<h1 className="sr-only">Runs</h1>
			<Composer />
			<fieldset className="flex flex-wrap gap-1">
				<legend className="sr-only">Show runs that are</legend>
				{states.map((s) => (
					<button
						key={s}
						type="button"
						aria-pressed={s === state}
						className={`button ${s === state ? "border-accent text-accent" : ""}`}
						onClick={() => setState(s)}
					>
						{s ? <State of={s} /> : "all"}
					</button>
				))}
			</fieldset>
			{runs.error && <ProblemBox of={runs.error} again={() => void runs.refetch()} />}
			{runs.data && <RunTable runs={runs.data.items ?? []} />}
		</div>
	);
}

function RunTable({ runs }: { runs: Run[] }) {
	if (!runs.length)
		return (
			<p className="text-quiet">
				No runs here. Write a task above, or <code>skete run "Fix the failing test"</code>.
			</p>
		);
	return (
		<div className="overflow-x-auto">
			<table className="table">
				<thead>
					<tr>
						{["State", "Title", "Agent", "Machine", "Steps", "Cost", "Began"].map((h) => (
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
							</td>
							<td className="w-full min-w-40">
								<Link href={`/runs/${r.id}`} className="text-accent underline-offset-2 hover:underline">
									<Safe>{clip(r.title || r.id, 120)}</Safe>
								</Link>
							</td>
							<td>
								<Safe>{r.agent}</Safe>
							</td>
							<td className="whitespace-nowrap">
								{r.sandbox && (
									<Link href={`/vms/${r.sandbox}`} className="underline-offset-2 hover:underline">
										{r.sandbox.slice(0, 12)}
									</Link>
								)}
							</td>
							<td>{r.steps}</td>
							<td>{money(r.cost_usd)}</td>
							<td className="whitespace-nowrap text-quiet">
								<time dateTime={r.created_at} title={r.created_at}>
									{ago(r.created_at)}
								</time>
							</td>
						</tr>
					))}
				</tbody>
			</table>
		</div>
	);
}

const draftKey = "skete.draft";

/** Composer starts a run. What is written outlives a reload. */
function Composer() {
	const [task, setTask] = useState(() => sessionStorage.getItem(draftKey) ?? "");
	const [agent, setAgent] = useState("");
	const [model, setModel] = useState("");
	const [problem, setProblem] = useState<unknown>(null);
	const [busy, setBusy] = useState(false);
	const agents = useAgents();
	const models = useModels();
	const client = useQueryClient();
	const [, go] = useLocation();
	const idempotent = useRef("");
	const write = (text: string) => {
		setTask(text);
		sessionStorage.setItem(draftKey, text);
		idempotent.current = "";
	};
	const start = async () => {
		if (!task.trim() || busy) return;
		setBusy(true);
		setProblem(null);
		idempotent.current ||= crypto.randomUUID();
		try {
			const body: Schemas["StartRun"] = { task, agent: agent || undefined, model: model || undefined };
			const run = await startRun(body, idempotent.current);
			sessionStorage.removeItem(draftKey);
			void client.invalidateQueries({ queryKey: ["runs"] });
			go(`/runs/${run.id}`);
		} catch (err) {
			setProblem(err);
			setBusy(false);
		}
	};
	return (
		<form
			className="flex flex-col gap-2 rounded-lg border border-line bg-raised p-3"
			onSubmit={(e) => {
				e.preventDefault();
				void start();
			}}
		>
			<label htmlFor="task" className="font-medium">
				What should an agent do?
			</label>
			<textarea
				id="task"
				rows={3}
				value={task}
				onChange={(e) => write(e.target.value)}
				onKeyDown={(e) => {
					if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) void start();
				}}
				placeholder="Describe the task. It works in a machine of its own, and you can take back what it does."
				className="field resize-y"
			/>
			<div className="flex flex-wrap items-center gap-2">
				<Pick label="Agent" value={agent} onChange={setAgent} names={(agents.data?.items ?? []).map((a) => a.name)} />
				<Pick label="Model" value={model} onChange={setModel} names={(models.data?.items ?? []).map((m) => m.name)} />
				<span className="flex-1" />
				<button type="submit" className="button main" disabled={!task.trim() || busy}>
					{busy ? "Starting" : "Start"} <kbd className="text-[11px] opacity-80">Ctrl Enter</kbd>
				</button>
			</div>
			{problem !== null && <ProblemBox of={problem} />}
		</form>
	);
}

function startRun(body: Schemas["StartRun"], idempotent: string): Promise<Run> {
	void idempotent;
	return post<Run>("/v1/runs", body);
}

function Pick({ label, value, onChange, names }: { label: string; value: string; onChange(v: string): void; names: string[] }) {
	return (
		<label className="flex items-center gap-1 text-quiet">
			{label}
			<select className="field" value={value} onChange={(e) => onChange(e.target.value)}>
				<option value="">default</option>
				{names.map((n) => (
					<option key={n}>{n}</option>
				))}
			</select>
		</label>
	);
}
