// Arguments to look at, and arguments to change.

import { useId, useState } from "react";
import { Safe, visible } from "../ui/text";
import { type Args, type Change, canonical, changes, type Draft, draftOf, isArgs, kindOf, read, rounded, textOf } from "./args";

const boxStyle = "max-h-60 overflow-auto rounded border border-line bg-sunken p-2";

/** Text shows a text of a model whole, with what it hides. */
export function Whole({ children, name }: { children: string; name: string }) {
	return (
		// biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls needs the keys.
		<section className={boxStyle} tabIndex={0} aria-label={name}>
			<pre className="break-words whitespace-pre-wrap">{visible(children)}</pre>
		</section>
	);
}

/** Arguments shows each argument by its name, or all as JSON. skip are those that are shown elsewhere already. */
export function Arguments({ args, skip = [] }: { args: unknown; skip?: string[] }) {
	const [raw, setRaw] = useState(false);
	const list = isArgs(args) ? Object.entries(args).filter(([k]) => !skip.includes(k)) : [];
	const json = raw || !isArgs(args);
	if (!list.length && !json)
		return (
			<div className="flex items-center gap-2 text-quiet">
				{skip.length ? null : "It has no arguments."}
				<RawToggle on={raw} set={setRaw} />
			</div>
		);
	return (
		<div className="flex flex-col gap-1">
			{json ? (
				<Whole name="Arguments as JSON">{JSON.stringify(args, null, 2) ?? ""}</Whole>
			) : (
				<dl className="grid gap-x-3 gap-y-1 sm:grid-cols-[minmax(80px,auto)_minmax(0,1fr)]">
					{list.map(([name, v]) => (
						<Pair key={name} name={name} value={v} />
					))}
				</dl>
			)}
			{rounded(args) && <p className="text-warn">A number here has more digits than this page keeps: it is shown rounded.</p>}
			{isArgs(args) && <RawToggle on={raw} set={setRaw} />}
		</div>
	);
}

function Pair({ name, value }: { name: string; value: unknown }) {
	const text = textOf(value);
	const long = text.length > 100 || text.includes("\n");
	return (
		<>
			<dt className="text-quiet">
				<Safe>{name}</Safe>
			</dt>
			<dd className="min-w-0 break-words">
				{long ? <Whole name={`Argument ${visible(name)}`}>{text}</Whole> : <code className="break-all">{visible(text) || "(empty)"}</code>}
			</dd>
		</>
	);
}

function RawToggle({ on, set }: { on: boolean; set(to: boolean): void }) {
	return (
		<button type="button" className="self-start text-quiet underline underline-offset-2 min-h-6" onClick={() => set(!on)}>
			{on ? "as fields" : "as JSON"}
		</button>
	);
}

interface EditProps {
	args: Args;
	verb: string;
	disabled: boolean;
	onSend(args: Args): void;
	onCancel(): void;
}

/** EditForm changes arguments. What differs is marked; nothing is sent that differs in nothing. */
export function EditForm({ args, verb, disabled, onSend, onCancel }: EditProps) {
	const [draft, setDraft] = useState<Draft>(() => draftOf(args));
	const got = read(draft);
	const errors = "errors" in got ? got.errors : {};
	const differs = "args" in got ? changes(args, got.args) : [];
	const ready = "args" in got && differs.length > 0 && !disabled;
	const send = () => ready && onSend(got.args);
	const toggle = () => {
		if (!("args" in got)) return;
		setDraft(draft.raw === null ? { ...draft, raw: JSON.stringify(got.args, null, 2) } : draftOf(got.args));
	};
	return (
		<form
			aria-label="Change the arguments"
			className="flex flex-col gap-2"
			onSubmit={(e) => {
				e.preventDefault();
				send();
			}}
			onKeyDown={(e) => {
				if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) send();
			}}
		>
			{draft.raw !== null ? (
				<RawField text={draft.raw} error={errors[""]} onText={(raw) => setDraft({ ...draft, raw })} />
			) : (
				Object.entries(draft.shape).map(([name, was], i) => (
					<Field
						key={name}
						name={name}
						first={i === 0}
						was={was}
						before={Object.hasOwn(args, name) ? args[name] : undefined}
						text={draft.fields[name] ?? ""}
						error={errors[name]}
						onText={(text) => setDraft({ ...draft, fields: { ...draft.fields, [name]: text } })}
					/>
				))
			)}
			{rounded(args) && <p className="text-warn">A number here has more digits than this page keeps: an edit would send it rounded.</p>}
			<div className="flex flex-wrap items-center gap-2">
				<button type="submit" className="button main max-[899px]:min-h-11" disabled={!ready}>
					{verb}
				</button>
				<button type="button" className="button max-[899px]:min-h-11" onClick={onCancel}>
					Cancel
				</button>
				<button
					type="button"
					className="button plain"
					onClick={toggle}
					disabled={"errors" in got}
					title={"errors" in got ? "First mend what is wrong" : undefined}
				>
					{draft.raw === null ? "as JSON" : "as fields"}
				</button>
				<span role="status" className="text-quiet">
					{"args" in got &&
						(differs.length ? `${differs.length} changed: ${differs.map((c) => visible(c.name)).join(", ")}` : "nothing is changed")}
				</span>
			</div>
		</form>
	);
}

interface FieldProps {
	name: string;
	first: boolean;
	was: unknown;
	before: unknown;
	text: string;
	error?: string;
	onText(to: string): void;
}

function Field({ name, first, was, before, text, error, onText }: FieldProps) {
	const id = useId();
	const kind = kindOf(was);
	const changed = text !== textOf(before);
	const shared = {
		id,
		"data-first": first || undefined,
		"aria-invalid": error ? true : undefined,
		"aria-describedby": error || changed ? `${id}-about` : undefined,
	};
	const look = `field w-full font-mono text-[12px] ${changed ? "border-warn border-2" : ""}`;
	const rows = Math.min(14, Math.max(1, text.split("\n").length, Math.ceil(text.length / 90)));
	return (
		<div className="flex flex-col gap-1" data-changed={changed || undefined}>
			<label htmlFor={id} className="flex items-center gap-2">
				<Safe>{name}</Safe>
				{kind === "lines" && <span className="text-quiet">one a line</span>}
				{kind === "json" && <span className="text-quiet">JSON</span>}
				{changed && <strong className="text-warn">changed</strong>}
			</label>
			{kind === "flag" && (
				<input
					type="checkbox"
					className="size-6 self-start"
					{...shared}
					checked={text === "true"}
					onChange={(e) => onText(String(e.target.checked))}
				/>
			)}
			{kind === "number" && (
				<input className={look} inputMode="decimal" {...shared} value={text} onChange={(e) => onText(e.target.value)} />
			)}
			{kind !== "flag" && kind !== "number" && (
				<textarea
					className={`${look} resize-y`}
					rows={rows}
					spellCheck={false}
					{...shared}
					value={text}
					onChange={(e) => onText(e.target.value)}
				/>
			)}
			<div id={`${id}-about`}>
				{error && (
					<p role="alert" className="text-bad">
						{visible(error)}
					</p>
				)}
				{visible(text) !== text && (
					<p className="text-warn">
						It has characters that are not seen: <code className="break-all">{visible(text).slice(0, 2000)}</code>
					</p>
				)}
				{changed && (
					<p className="flex flex-wrap items-center gap-2 text-quiet">
						<span>was</span>{" "}
						<code className="line-clamp-3 min-w-0 break-all whitespace-pre-wrap">{visible(textOf(before)) || "(empty)"}</code>
						<button type="button" className="button plain" onClick={() => onText(textOf(before))}>
							Take back
						</button>
					</p>
				)}
			</div>
		</div>
	);
}

function RawField({ text, error, onText }: { text: string; error?: string; onText(to: string): void }) {
	const id = useId();
	return (
		<div className="flex flex-col gap-1">
			<label htmlFor={id}>Arguments as JSON</label>
			<textarea
				id={id}
				className="field w-full resize-y font-mono text-[12px]"
				rows={Math.min(20, text.split("\n").length + 1)}
				spellCheck={false}
				value={text}
				aria-invalid={error ? true : undefined}
				aria-describedby={error ? `${id}-error` : undefined}
				onChange={(e) => onText(e.target.value)}
			/>
			{error && (
				<p id={`${id}-error`} role="alert" className="text-bad">
					{visible(error)}
				</p>
			)}
		</div>
	);
}

/** Changes shows arguments before and after an edit, field by field. */
export function Changes({ of }: { of: Change[] }) {
	const show = (v: unknown) => (v === undefined ? "(not there)" : visible(textOf(v)) || "(empty)");
	return (
		<ul className="flex flex-col gap-1" aria-label="Changed arguments">
			{of.map((c) => (
				<li key={`${c.name} ${canonical(c.after)}`} className="flex min-w-0 flex-col">
					<span className="text-quiet">
						<Safe>{c.name}</Safe>
					</span>
					<pre className="max-h-40 overflow-auto bg-removed px-1 break-words whitespace-pre-wrap">
						<span className="sr-only">before: </span>
						<span aria-hidden>− </span>
						{show(c.before)}
					</pre>
					<pre className="max-h-40 overflow-auto bg-added px-1 break-words whitespace-pre-wrap">
						<span className="sr-only">after: </span>
						<span aria-hidden>+ </span>
						{show(c.after)}
					</pre>
				</li>
			))}
		</ul>
	);
}
