// The form of a run, from the JSON Schema of what it is started with.

export interface Field {
	name: string;
	kind: "text" | "number" | "integer" | "boolean" | "choice" | "json";
	choices: string[];
	required: boolean;
	about: string;
	initial: string;
}

const object = (v: unknown): Record<string, unknown> =>
	v && typeof v === "object" && !Array.isArray(v) ? (v as Record<string, unknown>) : {};
const text = (v: unknown): string => (typeof v === "string" ? v : v === undefined ? "" : JSON.stringify(v));

function kindOf(p: Record<string, unknown>): Field["kind"] {
	if (Array.isArray(p.enum) && p.enum.every((e) => typeof e === "string")) return "choice";
	switch (p.type) {
		case "string":
			return "text";
		case "integer":
		case "number":
		case "boolean":
			return p.type;
	}
	return "json";
}

/** fieldsOf names the properties of a schema of an object, those that are required first. */
export function fieldsOf(schema: unknown): Field[] {
	const s = object(schema);
	const required = new Set(Array.isArray(s.required) ? s.required : []);
	return Object.entries(object(s.properties))
		.map(([name, p]) => {
			const o = object(p);
			const kind = kindOf(o);
			return {
				name,
				kind,
				choices: kind === "choice" ? (o.enum as string[]) : [],
				required: required.has(name),
				about: text(o.description),
				initial: text(o.default),
			};
		})
		.sort((a, b) => Number(b.required) - Number(a.required));
}

function parsed(f: Field, typed: string): unknown {
	switch (f.kind) {
		case "boolean":
			return typed === "true";
		case "number":
		case "integer": {
			const n = Number(typed);
			if (!Number.isFinite(n) || (f.kind === "integer" && !Number.isInteger(n)))
				throw new Error(`${f.name} is a ${f.kind === "integer" ? "whole number" : "number"}.`);
			return n;
		}
		case "json":
			try {
				return JSON.parse(typed);
			} catch {
				throw new Error(`${f.name} is written as JSON: a text stands in double quotes, a list in [ ].`);
			}
	}
	return typed;
}

/** inputOf makes the input of what was typed; what is wrong is by the names of fields. */
export function inputOf(fields: Field[], typed: Record<string, string>): { input: Record<string, unknown>; wrong: Record<string, string> } {
	const input: Record<string, unknown> = {};
	const wrong: Record<string, string> = {};
	for (const f of fields) {
		const value = typed[f.name] ?? f.initial;
		if (value.trim() === "") {
			if (f.required) wrong[f.name] = `${f.name} is needed.`;
			continue;
		}
		try {
			input[f.name] = parsed(f, value);
		} catch (err) {
			wrong[f.name] = (err as Error).message;
		}
	}
	return { input, wrong };
}

export const filesMax = 100;
export const bytesMax = 8 << 20;

/** filesWrong says why files cannot be sent; "" = they can. */
export function filesWrong(files: { name: string; size: number }[]): string {
	if (files.length > filesMax) return `${files.length} files; at most ${filesMax} can be given.`;
	const sum = files.reduce((n, f) => n + f.size, 0);
	if (sum > bytesMax) return `The files have ${Math.ceil(sum / (1 << 20))} MiB together, at most 8.`;
	const names = files.map((f) => f.name);
	const twice = names.find((n, i) => names.indexOf(n) !== i);
	return twice ? `${twice} is there twice.` : "";
}
