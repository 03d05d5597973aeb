// The form that starts a run of a workflow.

import { useQueryClient } from "@tanstack/react-query";
import { useId, useRef, useState } from "react";
import { useLocation } from "wouter";
import { base64, bytesOf } from "../api/base64";
import { call, key } from "../api/http";
import { ProblemBox } from "../ui/problem";
import { Safe } from "../ui/text";
import type { Workflow, WorkflowPlan, WorkflowRun } from "./api";
import { fileButton } from "./file-button";
import { type Field, fieldsOf, filesWrong, inputOf } from "./input";

interface Body {
	workflow: string;
	version?: string;
	input: Record<string, unknown>;
	files?: { path: string; content: string }[];
}

export function StartForm({ workflow, version }: { workflow: Workflow; version: string }) {
	const fields = fieldsOf(workflow.input);
	const [typed, setTyped] = useState<Record<string, string>>({});
	const [files, setFiles] = useState<File[]>([]);
	const [wrong, setWrong] = useState<Record<string, string>>({});
	const [plan, setPlan] = useState<WorkflowPlan | null>(null);
	const [problem, setProblem] = useState<unknown>(null);
	const [busy, setBusy] = useState(false);
	const once = useRef("");
	const client = useQueryClient();
	const [, go] = useLocation();
	const change = () => {
		once.current = "";
		setPlan(null);
		setWrong({});
	};
	const ask = async (dry: boolean) => {
		const { input, wrong } = inputOf(fields, typed);
		const bad = filesWrong(files);
		if (bad) wrong[""] = bad;
		setWrong(wrong);
		setProblem(null);
		if (Object.keys(wrong).length) return;
		setBusy(true);
		try {
			const body: Body = { workflow: workflow.name, version: version || undefined, input };
			if (files.length) body.files = await Promise.all(files.map(async (f) => ({ path: f.name, content: base64(await bytesOf(f)) })));
			if (dry) {
				setPlan(await call<WorkflowPlan>("/v1/workflow-plans", { method: "POST", body }));
			} else {
				once.current ||= key();
				const run = await call<WorkflowRun>("/v1/workflow-runs", { method: "POST", body, headers: { "Idempotency-Key": once.current } });
				void client.invalidateQueries({ queryKey: ["workflows"] });
				go(`/workflow-runs/${run.id}`);
			}
		} catch (err) {
			setProblem(err);
		}
		setBusy(false);
	};
	return (
		<form
			aria-label={`Run ${workflow.name}`}
			className="flex flex-col gap-3 rounded-lg border border-line bg-raised p-3"
			onSubmit={(e) => {
				e.preventDefault();
				void ask(false);
			}}
		>
			<h2 className="font-semibold">Run it</h2>
			{!fields.length && <p className="text-quiet">It is started with nothing.</p>}
			{fields.map((f) => (
				<InputField
					key={f.name}
					field={f}
					value={typed[f.name] ?? f.initial}
					wrong={wrong[f.name]}
					onChange={(v) => {
						change();
						setTyped((t) => ({ ...t, [f.name]: v }));
					}}
				/>
			))}
			<label className="flex flex-col gap-1">
				Files for the workspace (not needed; 8 MiB together)
				<input
					type="file"
					multiple
					className={fileButton}
					onChange={(e) => {
						change();
						setFiles([...(e.target.files ?? [])]);
					}}
				/>
				{wrong[""] && (
					<span role="alert" className="text-bad">
						<Safe>{wrong[""]}</Safe>
					</span>
				)}
			</label>
			<div className="flex flex-wrap gap-2">
				<button type="submit" className="button main" disabled={busy}>
					Start
				</button>
				<button type="button" className="button" disabled={busy} onClick={() => void ask(true)}>
					Only say what would be started
				</button>
			</div>
			{plan && <PlanView plan={plan} />}
			{problem !== null && <ProblemBox of={problem} />}
		</form>
	);
}

function InputField({ field: f, value, wrong, onChange }: { field: Field; value: string; wrong?: string; onChange(v: string): void }) {
	const id = useId();
	const note = wrong || f.about ? `${id}-note` : undefined;
	const common = { id, "aria-describedby": note, "aria-invalid": wrong ? true : undefined, "aria-required": f.required };
	return (
		<div className="flex flex-col gap-1">
			<label htmlFor={id}>
				<Safe>{f.name}</Safe>
				<span className="text-quiet">
					{f.required ? " (needed)" : ""}
					{f.kind === "json" ? " as JSON" : ""}
				</span>
			</label>
			{f.kind === "boolean" ? (
				<input
					{...common}
					type="checkbox"
					className="self-start"
					checked={value === "true"}
					onChange={(e) => onChange(String(e.target.checked))}
				/>
			) : f.kind === "choice" ? (
				<select {...common} className="field" value={value} onChange={(e) => onChange(e.target.value)}>
					<option value="" />
					{f.choices.map((c) => (
						<option key={c}>{c}</option>
					))}
				</select>
			) : f.kind === "number" || f.kind === "integer" ? (
				<input {...common} inputMode="decimal" className="field w-40" value={value} onChange={(e) => onChange(e.target.value)} />
			) : (
				<textarea
					{...common}
					rows={f.kind === "json" ? 3 : 1}
					className="field resize-y"
					value={value}
					onChange={(e) => onChange(e.target.value)}
				/>
			)}
			{note && (
				<span id={note} className={wrong ? "text-bad" : "text-quiet"}>
					<Safe>{wrong || f.about}</Safe>
				</span>
			)}
		</div>
	);
}

export function PlanView({ plan }: { plan: WorkflowPlan }) {
	const bad = (plan.nodes ?? []).filter((n) => n.problem);
	return (
		<div role="status" className={`rounded-md border p-2 ${plan.ok ? "border-good" : "border-bad"}`}>
			<p className={plan.ok ? "text-good" : "text-bad"}>
				{plan.ok ? "It can be started." : "It cannot be started."} Nodes are started {plan.starts_max} times at most.
			</p>
			<ul className="list-disc pl-5">
				{bad.map((n) => (
					<li key={n.node} className="break-words">
						<Safe>{`${n.node}: ${n.problem}`}</Safe>
					</li>
				))}
			</ul>
		</div>
	);
}
