// One call that waits, with its own decision.

import { useQueryClient } from "@tanstack/react-query";
import { type KeyboardEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { Problem, post } from "../api/http";
import type { Approval, Schemas } from "../api/types";
import { useLive } from "../live";
import { ago } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { State } from "../ui/state";
import { Safe, visible } from "../ui/text";
import { isArgs } from "./args";
import { Effect, shownByEffect } from "./effect";
import { Arguments, EditForm } from "./fields";
import { FormWords, optionsOf, Plan, Question, SchemaForm } from "./inquiry";
import { useNow } from "./now";
import { type AskKind, type Decide, decidedWords, left, type Verb, wordsOf } from "./words";

/** Ask is a call that a person was asked about. */
export interface Ask {
	key: string;
	/** run is the one that decisions are sent to. */
	run: string;
	/** thread of the call, its own name of the agent, and where it comes from: "lead / reviewer". */
	thread: string;
	agent: string;
	tool: string;
	at: string;
	/** seq of the event that asked, in its thread. */
	seq: number;
	/** approval is what the server says would run; undefined = it was not heard yet. */
	approval: Approval | undefined;
	writes: string[];
	reads: string[];
	machine: string;
	decided?: { decision: string; by: string; by_name?: string; text: string; at: string };
	/** gone: it does not wait any more, and who decided is not known. */
	gone?: boolean;
	/** link leads to its run, where that is another page. */
	link?: ReactNode;
}

/** byAge orders calls, the oldest first. Times have as many digits as they need, so that their texts have no order. */
export function byAge(a: Ask, b: Ask): number {
	return Date.parse(a.at) - Date.parse(b.at) || a.seq - b.seq;
}

interface Props {
	ask: Ask;
	/** place says which it is: "2 of 4". */
	place: string;
	/** onSent is told when the server has taken a decision of this page. */
	onSent(key: string): void;
}

type Mode = "" | "edit" | "reject" | "respond";

const acts: Record<string, Verb> = { a: "approve", e: "edit", x: "reject", r: "respond" };

/** pressed does what a key means for the call that has the focus; false: nothing. */
export function pressed(call: Element, key: string): boolean {
	const verb = acts[key];
	const button = verb && call.querySelector<HTMLButtonElement>(`button[data-act="${verb}"]`);
	if (!button || button.disabled) return false;
	button.click();
	return true;
}

export function CallCard({ ask, place, onSent }: Props) {
	const id = useId();
	const box = useRef<HTMLElement>(null);
	const over = ask.decided || ask.gone;
	const decide = useDecide(ask, onSent);
	const words = wordsOf((ask.approval?.ask ?? "") as AskKind);
	return (
		<article
			ref={box}
			tabIndex={-1}
			data-call={ask.key}
			data-open={over ? undefined : true}
			aria-labelledby={id}
			className="flex min-w-0 flex-col gap-2 border-line border-t p-3 outline-offset-[-2px] focus:outline-2 focus:outline-accent"
		>
			<h3 id={id} className="flex flex-wrap items-center gap-x-2 gap-y-1">
				{place && <span className="text-quiet">{place}</span>}
				<span className="break-words">
					<Safe>{ask.agent || "The agent"}</Safe> {words.title}{" "}
					{(!ask.approval?.ask || ask.approval.ask === "form") && (
						<strong>
							<Safe>{ask.tool}</Safe>
						</strong>
					)}
					{words.after}
				</span>
				{ask.link}
				<time dateTime={ask.at} className="text-quiet">
					{ago(ask.at)}
				</time>
			</h3>
			{over ? (
				<Over ask={ask} refused={decide.problem !== null} />
			) : ask.approval ? (
				<Open ask={ask} approval={ask.approval} box={box} {...decide} />
			) : (
				<p className="text-quiet">Asking the server what exactly would run.</p>
			)}
		</article>
	);
}

function Over({ ask, refused }: { ask: Ask; refused: boolean }) {
	const now = useNow(1000);
	const d = ask.decided;
	const late = refused && <strong className="text-warn">What you decided came later and does not count.</strong>;
	if (!d) return <p className="text-quiet">It does not wait any more. {late}</p>;
	return (
		<p className="flex flex-wrap items-center gap-2" data-decision={d.decision}>
			<State of={d.decision === "reject" || d.decision === "dismiss" ? "rejected" : "done"} word={visible(decidedWords(d))} />
			<span className="text-quiet">{ago(d.at, now)}</span>
			{d.text && <span className="line-clamp-2 min-w-0 break-words text-quiet">{visible(d.text)}</span>}
			{late}
		</p>
	);
}

type Decision = Pick<Decide, "decision" | "args" | "text" | "always">;

interface Deciding {
	/** sent is what is on its way. */
	sent: Verb | null;
	problem: unknown;
	decide(a: Approval, d: Decision): Promise<void>;
}

interface OpenProps extends Deciding {
	ask: Ask;
	approval: Approval;
	box: React.RefObject<HTMLElement | null>;
}

/** useDecide sends a decision. It stays sent until the log, or the list, has it. */
function useDecide(ask: Ask, onSent: (key: string) => void): Deciding {
	const client = useQueryClient();
	const [sent, setSent] = useState<Verb | null>(null);
	const [problem, setProblem] = useState<unknown>(null);
	const decide = async (approval: Approval, d: Decision) => {
		setSent(d.decision);
		setProblem(null);
		const whole: Decide = { ...d, call: approval.call, thread: approval.thread, args_hash: approval.args_hash };
		try {
			const res = await post<Schemas["DecidedList"]>(`/v1/runs/${encodeURIComponent(ask.run)}/decisions`, { decisions: [whole] });
			const p = res.items?.[0];
			if (p?.ok) onSent(ask.key);
			else {
				setSent(null);
				setProblem(refusal(p?.problem));
			}
		} catch (err) {
			setSent(null);
			setProblem(err);
		}
		void client.invalidateQueries({ queryKey: ["approvals"] });
	};
	return { sent, problem, decide };
}

function refusal(p: Schemas["Problem"] | undefined): Problem {
	return new Problem(p?.status ?? 409, p?.title ?? "It was not decided", p?.detail ?? "", p?.hint ?? "", "");
}

function Open({ ask, approval, box, sent, problem, decide }: OpenProps) {
	const [mode, setMode] = useState<Mode>("");
	const [always, setAlways] = useState(false);
	const lost = useLive().state === "lost";
	const stuck = sent !== null || lost;
	const words = wordsOf((approval.ask ?? "") as AskKind);
	const allowed = approval.allowed ?? [];
	const toBox = () => box.current?.focus({ preventScroll: true });
	const send = (d: Decision) => {
		toBox();
		void decide(approval, d);
	};
	const close = () => {
		setMode("");
		toBox();
	};
	useEffect(() => {
		const first = mode ? box.current?.querySelector<HTMLElement>("[data-first]") : null;
		first?.focus();
		first?.closest("form")?.scrollIntoView({ block: "nearest" });
	}, [mode, box]);
	const leave = (e: KeyboardEvent) => {
		if (e.key !== "Escape" || !mode) return;
		e.stopPropagation();
		close();
	};
	return (
		// biome-ignore lint/a11y/noStaticElementInteractions: Esc leaves the form that is open within.
		<div className="flex min-w-0 flex-col gap-2" onKeyDown={leave}>
			{approval.reason && <p className="break-words text-quiet">Because: {visible(approval.reason)}</p>}
			{mode !== "edit" && (
				<Subject
					ask={ask}
					approval={approval}
					disabled={stuck}
					onAnswer={!mode && allowed.includes("respond") ? (text) => send({ decision: "respond", text }) : undefined}
				/>
			)}
			{approval.expires_at && <Expiry at={approval.expires_at} form={approval.ask === "form"} />}
			{problem !== null && <ProblemBox of={problem} />}
			{mode === "edit" && isArgs(approval.args) && (
				<EditForm
					args={approval.args}
					verb={approval.ask === "plan" ? "Accept with the changes" : "Approve with the changes"}
					disabled={stuck}
					onSend={(args) => send({ decision: "edit", args })}
					onCancel={close}
				/>
			)}
			{mode === "reject" && (
				<Say
					label={words.why}
					verb={words.reject}
					optional
					disabled={stuck}
					onSend={(text) => send({ decision: "reject", text: text || undefined })}
					onCancel={close}
				/>
			)}
			{mode === "respond" && approval.ask === "form" && (
				<SchemaForm
					args={approval.args}
					verb="Send the answer"
					disabled={stuck}
					onSend={(text) => send({ decision: "respond", text })}
					onCancel={close}
				/>
			)}
			{mode === "respond" && approval.ask !== "form" && (
				<Say
					label={words.say}
					verb={words.respond}
					options={approval.ask === "question" ? optionsOf(approval.args) : []}
					disabled={stuck}
					onSend={(text) => send({ decision: "respond", text })}
					onCancel={close}
				/>
			)}
			{!mode && !approval.ask && allowed.includes("approve") && (
				<Always approval={approval} on={always} set={setAlways} disabled={stuck} reads={ask.reads} writes={ask.writes} />
			)}
			<Buttons
				hidden={mode !== ""}
				allowed={isArgs(approval.args) ? allowed : allowed.filter((v) => v !== "edit")}
				names={words}
				sent={sent}
				disabled={stuck}
				lost={lost}
				onVerb={(v) => {
					if (v === "approve") send({ decision: "approve", always: always || undefined });
					else if (v === "dismiss") send({ decision: "dismiss" });
					else setMode(v);
				}}
			/>
		</div>
	);
}

interface SubjectProps {
	ask: Ask;
	approval: Approval;
	disabled: boolean;
	onAnswer?(text: string): void;
}

function Subject({ ask, approval, disabled, onAnswer }: SubjectProps) {
	if (approval.ask === "question") return <Question args={approval.args} onAnswer={onAnswer} disabled={disabled} />;
	if (approval.ask === "plan") return <Plan args={approval.args} />;
	if (approval.ask === "form") return <FormWords args={approval.args} />;
	return (
		<>
			<Effect tool={approval.tool} args={approval.args} writes={ask.writes} reads={ask.reads} machine={ask.machine} />
			<Arguments args={approval.args} skip={shownByEffect(approval.tool, approval.args)} />
		</>
	);
}

function Expiry({ at, form }: { at: string; form: boolean }) {
	const time = left(at, useNow(1000));
	return (
		<p className="text-quiet">
			{time ? (
				<>
					<time dateTime={at}>Expires in {time}</time>: without a decision it is then {form ? "dismissed" : "rejected"}.
				</>
			) : (
				<span className="text-warn">The time to decide is over.</span>
			)}
		</p>
	);
}

const verbs: Verb[] = ["approve", "edit", "reject", "respond", "dismiss"];
const answerVerbs: Verb[] = ["respond", "reject", "dismiss"];
const keyOf: Partial<Record<Verb, string>> = { approve: "a", edit: "e", reject: "x", respond: "r" };

interface ButtonsProps {
	hidden: boolean;
	allowed: string[];
	names: Record<Verb, string>;
	sent: Verb | null;
	disabled: boolean;
	lost: boolean;
	onVerb(v: Verb): void;
}

function Buttons({ hidden, allowed, names, sent, disabled, lost, onVerb }: ButtonsProps) {
	const list = (allowed.includes("approve") ? verbs : answerVerbs).filter((v) => allowed.includes(v));
	const main = list.includes("approve") ? "approve" : "respond";
	return (
		<div
			className={`flex-wrap gap-2 ${hidden ? "hidden" : "flex"} max-[899px]:sticky max-[899px]:bottom-0 max-[899px]:bg-ground max-[899px]:py-2`}
		>
			{list.map((v) => (
				<button
					key={v}
					type="button"
					data-act={v}
					disabled={disabled || hidden}
					title={lost ? "The connection is lost" : undefined}
					aria-keyshortcuts={keyOf[v]}
					className={`button max-[899px]:min-h-11 ${v === main ? "main" : ""} ${v === "reject" ? "danger" : ""}`}
					onClick={() => onVerb(v)}
				>
					{sent === v ? "Sending" : names[v]} {keyOf[v] && <kbd className="text-[11px] max-[899px]:hidden">{keyOf[v]}</kbd>}
				</button>
			))}
			<span role="status" className="self-center text-quiet">
				{sent && "Sent; it counts when the log has it."}
			</span>
		</div>
	);
}

interface AlwaysProps {
	approval: Approval;
	on: boolean;
	set(to: boolean): void;
	disabled: boolean;
	writes: string[];
	reads: string[];
}

/** Always widens an approval. It says what for, and is never on by itself. */
function Always({ approval, on, set, disabled, writes, reads }: AlwaysProps) {
	const id = useId();
	return (
		<div className="flex flex-col">
			<label className="flex min-h-6 items-center gap-2">
				<input type="checkbox" checked={on} disabled={disabled} aria-describedby={id} onChange={(e) => set(e.target.checked)} />
				Allow the same from now on in this conversation
			</label>
			<p id={id} className={on ? "rounded border border-warn bg-warn-ground p-2 break-words" : "sr-only"}>
				{alwaysWords(approval, [...writes, ...reads])}
			</p>
		</div>
	);
}

function alwaysWords(a: Approval, paths: string[]): string {
	const tool = visible(a.tool);
	if (isArgs(a.args) && typeof a.args.command === "string")
		return `${tool} will not ask again for exactly the commands of this line, each of them also on its own, in this conversation only. Other commands ask as before.`;
	if (paths.length)
		return `${tool} will not ask again for exactly ${visible(paths.slice(0, 5).join(", "))}${paths.length > 5 ? ` and ${paths.length - 5} more` : ""}, whatever it does there, in this conversation only.`;
	return `${tool} will not ask again for what it names here. If it names neither a path nor a command, that is all of its calls, with any arguments, in this conversation only.`;
}

interface SayProps {
	label: string;
	verb: string;
	optional?: boolean;
	options?: string[];
	disabled: boolean;
	onSend(text: string): void;
	onCancel(): void;
}

const textMax = 65_536;

/** Say asks for the text of a decision, or for one of the options of a question. */
function Say({ label, verb, optional, options = [], disabled, onSend, onCancel }: SayProps) {
	const id = useId();
	const [text, setText] = useState("");
	const long = new TextEncoder().encode(text).length > textMax;
	const ready = (optional || text.trim() !== "") && !long && !disabled;
	return (
		<form
			className="flex flex-col gap-2"
			onSubmit={(e) => {
				e.preventDefault();
				if (ready) onSend(text);
			}}
			onKeyDown={(e) => {
				if (e.key === "Enter" && (e.ctrlKey || e.metaKey) && ready) onSend(text);
			}}
		>
			{options.length > 0 && (
				<fieldset className="flex flex-col gap-1">
					<legend className="text-quiet">Choose, or write below</legend>
					{options.map((o, i) => (
						<label key={i} className="flex min-h-6 items-center gap-2 break-words">
							<input type="radio" name={id} data-first={i === 0 || undefined} checked={text === o} onChange={() => setText(o)} />
							<Safe>{o}</Safe>
						</label>
					))}
				</fieldset>
			)}
			<label htmlFor={`${id}t`}>{label}</label>
			<textarea
				id={`${id}t`}
				data-first={!options.length || undefined}
				rows={3}
				className="field w-full resize-y"
				value={text}
				onChange={(e) => setText(e.target.value)}
			/>
			{long && (
				<p role="alert" className="text-bad">
					A text has at most 64 KiB.
				</p>
			)}
			<div className="flex flex-wrap gap-2">
				<button type="submit" className={`button max-[899px]:min-h-11 ${optional ? "danger" : "main"}`} disabled={!ready}>
					{verb}
				</button>
				<button type="button" className="button max-[899px]:min-h-11" onClick={onCancel}>
					Cancel
				</button>
			</div>
		</form>
	);
}
