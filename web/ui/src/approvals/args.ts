// Arguments of a call as a person looks at them and changes them. A model wrote them.

/** Args are the arguments of a call when they are an object, which they are unless a model errs. */
export type Args = Record<string, unknown>;

export function isArgs(v: unknown): v is Args {
	return typeof v === "object" && v !== null && !Array.isArray(v);
}

/** canonical is JSON with its keys in order: equal texts are equal values. */
export function canonical(v: unknown): string {
	if (Array.isArray(v)) return `[${v.map(canonical).join(",")}]`;
	if (!isArgs(v)) return JSON.stringify(v) ?? "null";
	const keys = Object.keys(v).sort();
	return `{${keys.map((k) => `${JSON.stringify(k)}:${canonical(v[k])}`).join(",")}}`;
}

/** Change is a field whose value differs; undefined = it is not there. */
export interface Change {
	name: string;
	before: unknown;
	after: unknown;
}

/** changes compares arguments field by field. */
export function changes(before: unknown, after: unknown): Change[] {
	const b = isArgs(before) ? before : {};
	const a = isArgs(after) ? after : {};
	const names = [...new Set([...Object.keys(b), ...Object.keys(a)])];
	return names
		.filter((n) => Object.hasOwn(b, n) !== Object.hasOwn(a, n) || canonical(b[n]) !== canonical(a[n]))
		.map((name) => ({ name, before: own(b, name), after: own(a, name) }));
}

const own = (of: Args, name: string) => (Object.hasOwn(of, name) ? of[name] : undefined);

/** Kind is how a value is changed: as text, a number, a tick, lines, or as JSON. */
export type Kind = "text" | "number" | "flag" | "lines" | "json";

export function kindOf(v: unknown): Kind {
	if (typeof v === "string") return "text";
	if (typeof v === "number") return "number";
	if (typeof v === "boolean") return "flag";
	if (Array.isArray(v) && v.length > 0 && v.every((s) => typeof s === "string" && s !== "" && !/[\r\n]/.test(s))) return "lines";
	return "json";
}

/** textOf writes a value as the field of its kind holds it, and as it is shown. */
export function textOf(v: unknown): string {
	const kind = kindOf(v);
	if (kind === "text") return v as string;
	if (kind === "lines") return (v as string[]).join("\n");
	return JSON.stringify(v, null, kind === "json" ? 2 : 0) ?? "";
}

export type Parsed = { value: unknown } | { error: string };

const number = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

/** parseField reads what a field holds. */
export function parseField(kind: Kind, text: string): Parsed {
	switch (kind) {
		case "text":
			return { value: text };
		case "flag":
			return { value: text === "true" };
		case "lines":
			return { value: text.split("\n").filter((s) => s !== "") };
		case "number":
			return number.test(text.trim()) ? { value: Number(text) } : { error: "Write a number, such as 30 or 0.5" };
		default:
			return parseJSON(text);
	}
}

export function parseJSON(text: string): Parsed {
	try {
		return { value: JSON.parse(text) };
	} catch (err) {
		return { error: `This is no JSON: ${err instanceof Error ? err.message : String(err)}` };
	}
}

/** Draft is arguments that are being changed: field by field, or, when raw is a text, as JSON. */
export interface Draft {
	shape: Args;
	fields: Record<string, string>;
	raw: string | null;
}

export function draftOf(args: Args): Draft {
	return { shape: args, fields: Object.fromEntries(Object.entries(args).map(([k, v]) => [k, textOf(v)])), raw: null };
}

/** read returns the arguments of a draft, or what is wrong, by field; "" is the whole. */
export function read(d: Draft): { args: Args } | { errors: Record<string, string> } {
	if (d.raw !== null) {
		const p = parseJSON(d.raw);
		if ("error" in p) return { errors: { "": p.error } };
		return isArgs(p.value) ? { args: p.value } : { errors: { "": 'Arguments are a JSON object: {"name": value}' } };
	}
	const args: [string, unknown][] = [];
	const errors: Record<string, string> = {};
	for (const [name, was] of Object.entries(d.shape)) {
		const text = d.fields[name] ?? "";
		if (text === textOf(was)) args.push([name, was]);
		else {
			const p = parseField(kindOf(was), text);
			if ("error" in p) errors[name] = p.error;
			else args.push([name, p.value]);
		}
	}
	return Object.keys(errors).length ? { errors } : { args: Object.fromEntries(args) };
}

/** rounded reports whether a number has more digits than JavaScript keeps: what is shown is then not exact. */
export function rounded(v: unknown): boolean {
	if (typeof v === "number") return Math.abs(v) > Number.MAX_SAFE_INTEGER;
	if (Array.isArray(v)) return v.some(rounded);
	return isArgs(v) && Object.values(v).some(rounded);
}

const address = /\b[a-z][a-z0-9+.-]*:\/\/[^\s'"<>|;()`\\]+/giu;

/** hosts are those of the addresses in any text of a value, as punycode, so that no letter passes for another. */
export function hosts(v: unknown): string[] {
	const found = new Set<string>();
	const look = (at: unknown): void => {
		if (typeof at === "string") for (const m of at.matchAll(address)) note(found, m[0]);
		else if (Array.isArray(at)) at.forEach(look);
		else if (isArgs(at)) Object.values(at).forEach(look);
	};
	look(v);
	return [...found];
}

function note(found: Set<string>, url: string): void {
	try {
		const host = new URL(url.replace(/^[^:]+/, "http")).hostname;
		if (host) found.add(host);
	} catch {
		// It is no address.
	}
}
