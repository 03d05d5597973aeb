// Calls of the API by the browser's login.

/** FieldError is something that is wrong with a part of what was sent. */
export interface FieldError {
	location?: string;
	message: string;
}

/** Problem is a refusal by the server, as it says it. status 0 = the server was not reached. */
export class Problem extends Error {
	constructor(
		readonly status: number,
		readonly title: string,
		readonly detail: string,
		readonly hint: string,
		readonly request: string,
		/** errors are the fields that are wrong, where the server names them. */
		readonly errors: FieldError[] = [],
	) {
		super(detail || title);
	}
}

/** toLogin leads to the login, which comes back here. */
export function toLogin(): void {
	location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
}

interface WireProblem {
	title?: string;
	detail?: string;
	hint?: string;
	request_id?: string;
	errors?: FieldError[];
}

async function problemOf(res: Response): Promise<Problem> {
	const p = (await res.json().catch(() => ({}))) as WireProblem;
	return new Problem(
		res.status,
		p.title ?? `the server answered ${res.status}`,
		p.detail ?? "",
		p.hint ?? "",
		p.request_id ?? res.headers.get("X-Request-Id") ?? "",
		p.errors ?? [],
	);
}

export interface CallOptions {
	method?: string;
	body?: unknown;
	headers?: Record<string, string>;
	signal?: AbortSignal;
}

/** send makes a call and returns the answer, which is no refusal. A call without a session leads to the login. */
export async function send(path: string, o: CallOptions = {}): Promise<Response> {
	const headers: Record<string, string> = { Accept: "application/json", ...o.headers };
	let body: BodyInit | undefined;
	if (o.body instanceof Blob || typeof o.body === "string") body = o.body;
	else if (o.body !== undefined) {
		headers["Content-Type"] = "application/json";
		body = JSON.stringify(o.body);
	}
	let res: Response;
	try {
		res = await fetch(path, { method: o.method ?? "GET", headers, body, cache: "no-store", credentials: "same-origin", signal: o.signal });
	} catch (err) {
		if (err instanceof DOMException && err.name === "AbortError") throw err;
		throw new Problem(0, "The server cannot be reached", "", "", "");
	}
	if (res.status === 401) toLogin();
	if (!res.ok) throw await problemOf(res);
	return res;
}

/** call is send for JSON. */
export async function call<T>(path: string, o: CallOptions = {}): Promise<T> {
	const res = await send(path, o);
	return (res.status === 204 ? undefined : await res.json()) as T;
}

export const get = <T>(path: string, signal?: AbortSignal) => call<T>(path, { signal });
/** look is a get that wakes no machine: one that was paused meanwhile refuses it. */
export const look = <T>(path: string, signal?: AbortSignal) => call<T>(path, { signal, headers: { "Skete-Wake": "false" } });
export const post = <T>(path: string, body: unknown = {}) => call<T>(path, { method: "POST", body });

/** key makes an idempotency key. */
export const key = () => crypto.randomUUID();

/** query writes parameters; those that are empty are left out. */
export function query(params: Record<string, string | number | boolean | undefined | null>): string {
	const q = new URLSearchParams();
	for (const [k, v] of Object.entries(params)) if (v !== undefined && v !== null && v !== "" && v !== false) q.set(k, String(v));
	const s = q.toString();
	return s ? `?${s}` : "";
}
