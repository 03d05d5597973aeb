// The text of a definition, with the server's word on it.

import { useQueryClient } from "@tanstack/react-query";
import { type RefObject, useRef, useState } from "react";
import { useLocation } from "wouter";
import { Problem, post } from "../api/http";
import { ProblemBox } from "../ui/problem";
import { Safe } from "../ui/text";
import type { Workflow, WorkflowPlan } from "./api";
import { type Mistake, mistakesOf, offsetOf } from "./rows";
import { PlanView } from "./start";

interface Verdict {
	mistakes: Mistake[];
	plan?: WorkflowPlan;
	/** note is why no plan was made, though the text is good. */
	note?: string;
	problem?: unknown;
}

/** verdictOf sorts a refusal: mistakes in the text, an input that the text wants, or something else. */
export function verdictOf(err: unknown): Verdict {
	if (err instanceof Problem && err.errors.length) return { mistakes: mistakesOf(err.errors) };
	if (err instanceof Problem && err.status === 400 && err.detail.startsWith("the input")) return { mistakes: [], note: err.detail };
	return { mistakes: [], problem: err };
}

interface Props {
	file: string;
	initial: string;
	/** folder: of the server's folder; it is not changed here. */
	folder?: boolean;
	errors?: Mistake[];
}

export function TextEditor({ file, initial, folder, errors = [] }: Props) {
	const [text, setText] = useState(initial);
	const [verdict, setVerdict] = useState<Verdict>({ mistakes: errors });
	const [busy, setBusy] = useState(false);
	const area = useRef<HTMLTextAreaElement>(null);
	const client = useQueryClient();
	const [, go] = useLocation();
	const check = async () => {
		setBusy(true);
		try {
			const plan = await post<WorkflowPlan>("/v1/workflow-plans", { text, file });
			setVerdict({ mistakes: [], plan });
		} catch (err) {
			setVerdict(verdictOf(err));
		}
		setBusy(false);
	};
	const put = async () => {
		setBusy(true);
		try {
			const kept = await post<Workflow>("/v1/workflows", { text, file });
			await client.invalidateQueries({ queryKey: ["workflows"] });
			setVerdict({ mistakes: [] });
			go(`/workflows/${encodeURIComponent(kept.name)}`);
		} catch (err) {
			setVerdict(verdictOf(err));
		}
		setBusy(false);
	};
	const changed = text !== initial;
	return (
		<section aria-labelledby="text" className="flex flex-col gap-2">
			<h2 id="text" className="font-semibold">
				Definition
			</h2>
			<Lines area={area} text={text} onChange={setText} mistakes={verdict.mistakes} />
			<div className="flex flex-wrap items-center gap-2">
				<button type="button" className="button" disabled={busy || !text.trim()} onClick={() => void check()}>
					Check
				</button>
				<button type="button" className="button main" disabled={busy || !text.trim() || !changed} onClick={() => void put()}>
					{initial ? "Keep as a new version" : "Keep it"}
				</button>
				{folder && (
					<span className="text-quiet">It comes from the server&apos;s folder; one that is kept under its name goes before it.</span>
				)}
			</div>
			<VerdictView of={verdict} text={text} area={area} />
		</section>
	);
}

function Lines({
	area,
	text,
	onChange,
	mistakes,
}: {
	area: RefObject<HTMLTextAreaElement | null>;
	text: string;
	onChange(t: string): void;
	mistakes: Mistake[];
}) {
	const gutter = useRef<HTMLPreElement>(null);
	const bad = new Set(mistakes.map((m) => m.line));
	const lines = text.split("\n").length;
	return (
		<div className="flex h-96 resize-y overflow-hidden rounded-md border border-quiet">
			<pre
				ref={gutter}
				aria-hidden
				className="shrink-0 overflow-hidden bg-sunken px-2 py-1 text-right text-quiet leading-[18px] select-none"
			>
				{Array.from({ length: lines }, (_, i) => (
					<span key={i} className={`block ${bad.has(i + 1) ? "bg-bad-ground font-bold text-bad" : ""}`}>
						{bad.has(i + 1) ? `! ${i + 1}` : i + 1}
					</span>
				))}
			</pre>
			<textarea
				ref={area}
				aria-label="Text of the definition"
				aria-describedby="text-verdict"
				aria-invalid={mistakes.length > 0}
				spellCheck={false}
				wrap="off"
				className="min-w-0 flex-1 resize-none bg-ground px-2 py-1 font-mono text-[12px] leading-[18px] text-text"
				value={text}
				onChange={(e) => onChange(e.target.value)}
				onScroll={(e) => {
					if (gutter.current) gutter.current.scrollTop = e.currentTarget.scrollTop;
				}}
			/>
		</div>
	);
}

function VerdictView({ of: v, text, area }: { of: Verdict; text: string; area: RefObject<HTMLTextAreaElement | null> }) {
	const show = (m: Mistake) => {
		const el = area.current;
		if (!el || !m.line) return;
		const from = offsetOf(text, m.line, m.column);
		const end = text.indexOf("\n", from);
		el.focus();
		el.setSelectionRange(from, end < 0 ? text.length : end);
		el.scrollTop = Math.max(0, (m.line - 4) * 18);
	};
	return (
		<div id="text-verdict" role="status">
			{v.mistakes.length > 0 && (
				<ul className="flex flex-col gap-1">
					{v.mistakes.map((m, i) => (
						<li key={i} className="break-words text-bad">
							<button type="button" className="text-left underline" onClick={() => show(m)}>
								{m.line ? `line ${m.line}, column ${m.column}` : "the file"}
								{m.field && (
									<>
										{" "}
										<code>
											<Safe>{m.field}</Safe>
										</code>
									</>
								)}
							</button>
							: <Safe>{m.text}</Safe>
						</li>
					))}
				</ul>
			)}
			{v.plan && <PlanView plan={v.plan} />}
			{v.note && (
				<p className="text-good">
					The text is good. What a run of it needs: <Safe>{v.note}</Safe>
				</p>
			)}
			{v.problem !== undefined && <ProblemBox of={v.problem} />}
		</div>
	);
}
