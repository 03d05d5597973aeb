// The form that a program asks a person to fill in: a JSON schema of a flat object. The program
// wrote it, so what cannot be read is a field of text and never an error.

import { isArgs } from "./args";

export interface Choice {
	value: string;
	title: string;
}

export interface Field {
	name: string;
	title: string;
	about: string;
	kind: "text" | "number" | "integer" | "flag" | "choice" | "choices";
	required: boolean;
	input: "text" | "email" | "url" | "date" | "datetime-local";
	choices: Choice[];
	least?: number;
	most?: number;
	first: string | boolean | string[];
}

/** FormArgs is what the arguments of an approval with ask: form hold. */
export interface FormArgs {
	from: string;
	message: string;
	schema?: unknown;
	warning?: string;
}

export function formOf(args: unknown): FormArgs {
	const a = isArgs(args) ? args : {};
	const text = (v: unknown) => (typeof v === "string" ? v : "");
	return { from: text(a.from) || "a program", message: text(a.message), schema: a.schema, warning: text(a.warning) };
}

export function fieldsOf(schema: unknown): Field[] {
	if (!isArgs(schema) || !isArgs(schema.properties)) return [];
	const required = Array.isArray(schema.required) ? schema.required : [];
	return Object.entries(schema.properties).map(([name, p]) => fieldOf(name, isArgs(p) ? p : {}, required.includes(name)));
}

const inputs: Record<string, Field["input"]> = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

function fieldOf(name: string, p: Record<string, unknown>, required: boolean): Field {
	const items = isArgs(p.items) ? p.items : {};
	const choices = choicesOf(p.type === "array" ? items : p, p.enumNames);
	const kind = kindOf(p.type, choices.length > 0);
	const num = (v: unknown) => (typeof v === "number" ? v : undefined);
	const strings = kind === "text";
	return {
		name,
		title: typeof p.title === "string" && p.title ? p.title : name,
		about: typeof p.description === "string" ? p.description : "",
		kind,
		required,
		input: (strings && inputs[String(p.format)]) || "text",
		choices,
		least: num(kind === "choices" ? p.minItems : strings ? p.minLength : p.minimum),
		most: num(kind === "choices" ? p.maxItems : strings ? p.maxLength : p.maximum),
		first: firstOf(kind, p.default),
	};
}

function kindOf(type: unknown, choices: boolean): Field["kind"] {
	if (type === "array") return "choices";
	if (choices) return "choice";
	if (type === "boolean") return "flag";
	return type === "number" || type === "integer" ? type : "text";
}

function firstOf(kind: Field["kind"], v: unknown): Field["first"] {
	if (kind === "flag") return v === true;
	if (kind === "choices") return Array.isArray(v) ? v.map(String) : [];
	return typeof v === "string" || typeof v === "number" ? String(v) : "";
}

function choicesOf(p: Record<string, unknown>, names: unknown): Choice[] {
	const titled = p.oneOf ?? p.anyOf;
	if (Array.isArray(titled))
		return titled
			.filter((o) => isArgs(o) && typeof o.const === "string")
			.map((o) => ({ value: o.const, title: String(o.title ?? o.const) }));
	if (!Array.isArray(p.enum)) return [];
	const titles = Array.isArray(names) ? names : [];
	return p.enum.map((v, i) => ({ value: String(v), title: String(titles[i] ?? v) }));
}

export type Filled = Record<string, Field["first"]>;

/** answer makes the answer of what was filled in, or says what is wrong, by field. Empty fields that need not be there are left out. */
export function answer(fields: Field[], filled: Filled): { value: Record<string, unknown> } | { errors: Record<string, string> } {
	const value: [string, unknown][] = [];
	const errors: Record<string, string> = {};
	for (const f of fields) {
		const v = filled[f.name] ?? f.first;
		if ((v === "" || (Array.isArray(v) && !v.length)) && !f.required) continue;
		const wrong = wrongWith(f, v);
		if (wrong) errors[f.name] = wrong;
		else value.push([f.name, filledOf(f, v)]);
	}
	return Object.keys(errors).length ? { errors } : { value: Object.fromEntries(value) };
}

function filledOf(f: Field, v: Field["first"]): unknown {
	if (f.kind === "number" || f.kind === "integer") return Number(v);
	if (f.input === "datetime-local") return new Date(String(v)).toISOString();
	return v;
}

function wrongWith(f: Field, v: Field["first"]): string {
	if (typeof v === "boolean") return "";
	if (v === "" || (Array.isArray(v) && !v.length)) return "This is needed";
	if (f.kind === "choices") return between(v.length, f, "Choose", "of them");
	if (f.kind === "text") return between(v.length, f, "Write", "characters");
	if (f.kind !== "number" && f.kind !== "integer") return "";
	const n = Number(v);
	if (!Number.isFinite(n) || !String(v).trim()) return "Write a number";
	if (f.kind === "integer" && !Number.isInteger(n)) return "Write a whole number";
	return between(n, f, "Write a number of", "");
}

function between(n: number, f: Field, verb: string, unit: string): string {
	if (f.least !== undefined && n < f.least) return `${verb} at least ${f.least} ${unit}`.trim();
	if (f.most !== undefined && n > f.most) return `${verb} at most ${f.most} ${unit}`.trim();
	return "";
}
