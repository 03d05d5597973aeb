// What is asked that is no permission: a question of the agent, its plan, a form of a program.

import { useId, useState } from "react";
import { Markdown } from "../ui/md";
import { Safe, visible } from "../ui/text";
import { isArgs } from "./args";
import { Whole } from "./fields";
import { answer, type Field, type Filled, fieldsOf, formOf } from "./form";

const strings = (v: unknown) => (Array.isArray(v) ? v.filter((s): s is string => typeof s === "string") : []);

/** Plan shows the plan of an agent, as Markdown or as it is written. */
export function Plan({ args }: { args: unknown }) {
	const [raw, setRaw] = useState(false);
	const a = isArgs(args) ? args : {};
	const plan = typeof a.plan === "string" ? a.plan : "";
	return (
		<div className="flex min-w-0 flex-col gap-2">
			{raw ? (
				<Whole name="The plan as it is written">{plan}</Whole>
			) : (
				<div className="max-h-80 overflow-auto">
					<Markdown text={visible(plan)} />
				</div>
			)}
			<p className="text-quiet">Its steps become the list of what is to do:</p>
			<ol className="list-decimal pl-6" aria-label="Steps">
				{strings(a.steps).map((s, i) => (
					<li key={i} className="break-words">
						<Safe>{s}</Safe>
					</li>
				))}
			</ol>
			<button type="button" className="min-h-6 self-start text-quiet underline underline-offset-2" onClick={() => setRaw(!raw)}>
				{raw ? "formatted" : "as it is written"}
			</button>
		</div>
	);
}

interface QuestionProps {
	args: unknown;
	/** onAnswer takes the option that is chosen; without it they are not offered. */
	onAnswer?(option: string): void;
	disabled: boolean;
}

/** Question shows what an agent wants to know. What it suggests is answered by one press. */
export function Question({ args, onAnswer, disabled }: QuestionProps) {
	const a = isArgs(args) ? args : {};
	const list = onAnswer ? optionsOf(args) : [];
	return (
		<>
			<p className="break-words whitespace-pre-wrap">{visible(typeof a.question === "string" ? a.question : JSON.stringify(args))}</p>
			{list.length > 0 && (
				<fieldset className="flex min-w-0 flex-wrap gap-2">
					<legend className="text-quiet">Answer with</legend>
					{list.map((o, i) => (
						<button
							key={i}
							type="button"
							data-option
							disabled={disabled}
							className="button h-auto max-w-full text-left break-words whitespace-normal max-[899px]:min-h-11"
							onClick={() => onAnswer?.(o)}
						>
							<Safe>{o}</Safe>
						</button>
					))}
				</fieldset>
			)}
		</>
	);
}

export const optionsOf = (args: unknown): string[] => (isArgs(args) ? strings(args.options) : []);

/** FormWords shows who asks, and what, marked as words that are none of skete's. */
export function FormWords({ args }: { args: unknown }) {
	const f = formOf(args);
	return (
		<div className="flex flex-col gap-1">
			<p>
				<strong>
					<Safe>{f.from}</Safe>
				</strong>{" "}
				asks, in its own words:
			</p>
			<blockquote className="border-line border-l-4 pl-2 break-words whitespace-pre-wrap">{visible(f.message)}</blockquote>
			{f.warning && (
				<p role="note" className="rounded border border-bad bg-bad-ground p-2 text-bad">
					{visible(f.warning)}
				</p>
			)}
			<p className="text-quiet">The answer goes to that program and into the log of the run. Answer no secret.</p>
		</div>
	);
}

interface SchemaProps {
	args: unknown;
	verb: string;
	disabled: boolean;
	onSend(text: string): void;
	onCancel(): void;
}

/** SchemaForm asks for what a program's schema wants, and hands it on as JSON. */
export function SchemaForm({ args, verb, disabled, onSend, onCancel }: SchemaProps) {
	const fields = fieldsOf(formOf(args).schema);
	const [filled, setFilled] = useState<Filled>({});
	const [tried, setTried] = useState(false);
	const got = answer(fields, filled);
	const errors = tried && "errors" in got ? got.errors : {};
	return (
		<form
			noValidate
			aria-label="Answer"
			className="flex flex-col gap-2"
			onSubmit={(e) => {
				e.preventDefault();
				setTried(true);
				if ("value" in got) onSend(JSON.stringify(got.value));
				else e.currentTarget.querySelector<HTMLElement>(`[name="${CSS.escape(Object.keys(got.errors)[0] ?? "")}"]`)?.focus();
			}}
		>
			{fields.map((f, i) => (
				<SchemaField
					key={f.name}
					field={f}
					first={i === 0}
					value={filled[f.name] ?? f.first}
					error={errors[f.name]}
					onValue={(v) => setFilled({ ...filled, [f.name]: v })}
				/>
			))}
			<div className="flex flex-wrap gap-2">
				<button
					type="submit"
					data-first={fields.length ? undefined : true}
					className="button main max-[899px]:min-h-11"
					disabled={disabled}
				>
					{verb}
				</button>
				<button type="button" className="button max-[899px]:min-h-11" onClick={onCancel}>
					Cancel
				</button>
			</div>
		</form>
	);
}

interface SchemaFieldProps {
	field: Field;
	first: boolean;
	value: Field["first"];
	error?: string;
	onValue(v: Field["first"]): void;
}

function SchemaField({ field, first, value, error, onValue }: SchemaFieldProps) {
	const id = useId();
	const shared = {
		id,
		name: field.name,
		"data-first": first || undefined,
		"aria-required": field.required || undefined,
		"aria-invalid": error ? true : undefined,
		"aria-describedby": `${id}-about`,
		className: "field w-full max-w-xl",
	};
	const text = typeof value === "string" ? value : "";
	const list = Array.isArray(value) ? value : [];
	const label = (
		<>
			<Safe>{field.title}</Safe> {field.required && <span className="text-quiet">(needed)</span>}
		</>
	);
	const about = (
		<div id={`${id}-about`}>
			{field.about && (
				<p className="break-words text-quiet">
					<Safe>{field.about}</Safe>
				</p>
			)}
			{error && (
				<p role="alert" className="text-bad">
					{error}
				</p>
			)}
		</div>
	);
	if (field.kind === "choices")
		return (
			<fieldset className="flex flex-col gap-1" aria-describedby={`${id}-about`}>
				<legend>{label}</legend>
				{field.choices.map((c, i) => (
					<label key={c.value} className="flex min-h-6 items-center gap-2">
						<input
							type="checkbox"
							name={field.name}
							data-first={(first && i === 0) || undefined}
							checked={list.includes(c.value)}
							onChange={(e) => onValue(e.target.checked ? [...list, c.value] : list.filter((v) => v !== c.value))}
						/>
						<Safe>{c.title}</Safe>
					</label>
				))}
				{about}
			</fieldset>
		);
	if (field.kind === "flag")
		return (
			<div className="flex flex-col">
				<label className="flex min-h-6 items-center gap-2">
					<input {...shared} className="size-4" type="checkbox" checked={value === true} onChange={(e) => onValue(e.target.checked)} />
					<span>{label}</span>
				</label>
				{about}
			</div>
		);
	return (
		<div className="flex flex-col gap-1">
			<label htmlFor={id}>{label}</label>
			{field.kind === "choice" ? (
				<select {...shared} value={text} onChange={(e) => onValue(e.target.value)}>
					<option value="">Choose</option>
					{field.choices.map((c) => (
						<option key={c.value} value={c.value}>
							{visible(c.title)}
						</option>
					))}
				</select>
			) : (
				<input
					{...shared}
					type={field.input}
					autoComplete="off"
					inputMode={field.kind === "number" || field.kind === "integer" ? "decimal" : undefined}
					value={text}
					onChange={(e) => onValue(e.target.value)}
				/>
			)}
			{about}
		</div>
	);
}
