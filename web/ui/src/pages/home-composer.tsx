import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useRef, useState } from "react";
import { Link, useLocation } from "wouter";
import { call, get, key } from "../api/http";
import { type Page, useAgents, useModels } from "../api/queries";
import type { Run, Schemas } from "../api/types";
import { useLive } from "../live";
import { ProblemBox } from "../ui/problem";
import { type Draft, forgetDraft, keepDraft, readDraft, startOf } from "./home-draft";
import { keyLike } from "./home-keys";

const useTemplates = () =>
	useQuery({ queryKey: ["templates"], queryFn: () => get<Page<Schemas["Template"]>>("/v1/templates"), staleTime: 300_000 });

/** Composer starts a run. */
export function Composer() {
	const [draft, setDraft] = useState<Draft>(() => readDraft());
	const [problem, setProblem] = useState<unknown>(null);
	const [wrong, setWrong] = useState("");
	const [busy, setBusy] = useState(false);
	const client = useQueryClient();
	const [, go] = useLocation();
	const lost = useLive().state === "lost";
	// A start that is sent again is the same run, until something else is asked for.
	const once = useRef("");
	const found = keyLike(draft.task);
	const write = (part: Partial<Draft>) => {
		const next = { ...draft, ...part };
		setDraft(next);
		keepDraft(next);
		once.current = "";
		setWrong("");
	};
	const start = async () => {
		if (busy || lost) return;
		const body = startOf(draft);
		if (typeof body === "string") {
			setWrong(body);
			return;
		}
		setBusy(true);
		setProblem(null);
		once.current ||= key();
		try {
			const run = await call<Run>("/v1/runs", { method: "POST", body, headers: { "Idempotency-Key": once.current } });
			forgetDraft();
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
			aria-label="Start a run"
			onSubmit={(e) => {
				e.preventDefault();
				void start();
			}}
			onKeyDown={(e) => {
				if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) {
					e.preventDefault();
					void start();
				}
			}}
		>
			<label htmlFor="task" className="font-medium">
				What should an agent do?
			</label>
			<textarea
				id="task"
				rows={3}
				value={draft.task}
				onChange={(e) => write({ task: e.target.value })}
				aria-describedby={found ? "task-key" : undefined}
				placeholder="It works in a machine of its own, and you can take back what it does."
				className="field w-full resize-y"
			/>
			{found && <KeyFound what={found} />}
			<Choices draft={draft} write={write} />
			<div className="flex flex-wrap items-center gap-2">
				<span className="text-quiet">
					{draft.task.trim() && (found ? "This draft is not kept." : "This draft is kept in this browser.")}
				</span>
				<span className="flex-1" />
				<button
					type="submit"
					className="button main"
					disabled={!draft.task.trim() || busy || lost}
					title={lost ? "The connection is lost" : undefined}
				>
					{busy ? "Starting" : "Start"} <kbd className="text-[11px]">Ctrl Enter</kbd>
				</button>
			</div>
			{wrong && (
				<p role="alert" className="text-bad">
					{wrong}
				</p>
			)}
			{problem !== null && <ProblemBox of={problem} />}
		</form>
	);
}

function KeyFound({ what }: { what: string }) {
	return (
		<p id="task-key" role="status" className="rounded-md border border-warn bg-warn-ground p-2">
			<strong className="text-warn">This looks like {what}.</strong> The agent, its model and the log of the run would have it.{" "}
			<Link href="/secrets" className="underline">
				Save it as a secret
			</Link>{" "}
			instead: then a program in the machine can use it for the hosts that you name, and sees a placeholder.
		</p>
	);
}

function Choices({ draft, write }: { draft: Draft; write(part: Partial<Draft>): void }) {
	const agents = useAgents();
	const models = useModels();
	const templates = useTemplates();
	const chosen = [draft.template, draft.network, draft.steps, draft.cost].filter(Boolean).length + Number(draft.plan) + Number(draft.keep);
	return (
		<>
			<div className="flex flex-wrap items-center gap-2">
				<Pick
					label="Agent"
					value={draft.agent}
					onChange={(agent) => write({ agent })}
					names={(agents.data?.items ?? []).map((a) => a.name)}
				/>
				<Pick
					label="Model"
					value={draft.model}
					onChange={(model) => write({ model })}
					names={(models.data?.items ?? []).map((m) => m.name)}
				/>
			</div>
			<details open={chosen > 0 || undefined}>
				<summary className="w-fit text-quiet">Machine, budget and more{chosen > 0 && ` (${chosen} set)`}</summary>
				<div className="mt-2 flex flex-wrap items-end gap-3">
					<Pick
						label="Template"
						value={draft.template}
						onChange={(template) => write({ template })}
						names={(templates.data?.items ?? []).map((t) => t.name)}
					/>
					<Pick label="Network" value={draft.network} onChange={(network) => write({ network })} names={["none", "default", "open"]} />
					<Typed label="Steps at most" value={draft.steps} onChange={(steps) => write({ steps })} mode="numeric" />
					<Typed label="Dollars at most" value={draft.cost} onChange={(cost) => write({ cost })} mode="decimal" />
					<Check label="Plan first" value={draft.plan} onChange={(plan) => write({ plan })}>
						Until you accept a plan, it can only read.
					</Check>
					<Check label="Keep the machine" value={draft.keep} onChange={(keep) => write({ keep })}>
						It is left as it is when the run is over.
					</Check>
				</div>
				{(draft.template || draft.network) && (
					<p className="mt-1 text-quiet">
						The machine is made as is said here, in place of what the agent&apos;s own definition says of it.
					</p>
				)}
			</details>
		</>
	);
}

interface FieldProps {
	label: string;
	value: string;
	onChange(v: string): void;
}

export function Pick({ label, value, onChange, names, none = "default" }: FieldProps & { names: string[]; none?: string }) {
	const all = value && !names.includes(value) ? [value, ...names] : names;
	return (
		<label className="flex min-w-0 items-center gap-1 text-quiet">
			{label}
			<select className="field min-w-0 max-w-48" value={value} onChange={(e) => onChange(e.target.value)}>
				<option value="">{none}</option>
				{all.map((n) => (
					<option key={n}>{n}</option>
				))}
			</select>
		</label>
	);
}

function Typed({ label, value, onChange, mode }: FieldProps & { mode: "numeric" | "decimal" }) {
	return (
		<label className="flex items-center gap-1 text-quiet">
			{label}
			<input className="field w-20" inputMode={mode} autoComplete="off" value={value} onChange={(e) => onChange(e.target.value)} />
		</label>
	);
}

function Check({ label, value, onChange, children }: { label: string; value: boolean; onChange(v: boolean): void; children: ReactNode }) {
	return (
		<label className="flex min-h-7 items-center gap-1" title={typeof children === "string" ? children : undefined}>
			<input type="checkbox" checked={value} onChange={(e) => onChange(e.target.checked)} />
			{label}
			<span className="sr-only">. {children}</span>
		</label>
	);
}
