// A server for tests: answers by method and path, and remembers what it was asked.

import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import type { ReactNode } from "react";
import { vi } from "vitest";
import type { Schemas } from "../src/api/types";

export interface Call {
	method: string;
	path: string;
	query: URLSearchParams;
	body: unknown;
	headers: Headers;
}

export type Answer = unknown | ((c: Call) => unknown);

/** Refusal is an answer with a status. */
export class Refusal {
	constructor(
		readonly status: number,
		readonly detail: string,
		readonly hint = "",
	) {}
}

/** Lost is no answer: the connection broke. */
export class Lost {}

/** serve answers fetch; the first path that fits counts. */
export function serve(answers: Record<string, Answer>): Call[] {
	const calls: Call[] = [];
	vi.stubGlobal("fetch", async (input: string, init: RequestInit = {}) => {
		const url = new URL(input, "http://localhost");
		const method = init.method ?? "GET";
		const body = typeof init.body === "string" ? JSON.parse(init.body) : init.body;
		const c: Call = { method, path: url.pathname, query: url.searchParams, body, headers: new Headers(init.headers) };
		calls.push(c);
		const found = answers[`${method} ${c.path}`];
		const a = await (typeof found === "function" ? (found as (c: Call) => unknown)(c) : found);
		if (a instanceof Lost) throw new TypeError("network");
		if (a instanceof Response) return a;
		if (a instanceof Refusal)
			return new Response(JSON.stringify({ title: "Refused", status: a.status, detail: a.detail, hint: a.hint, request_id: "req_7" }), {
				status: a.status,
			});
		if (a === undefined) return new Response(JSON.stringify({ title: "Not Found", detail: `no ${method} ${c.path}` }), { status: 404 });
		return new Response(JSON.stringify(a), { status: 200 });
	});
	return calls;
}

/** show renders with a client of its own. */
export function show(what: ReactNode) {
	const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
	const within = (of: ReactNode) => <QueryClientProvider client={client}>{of}</QueryClientProvider>;
	const r = render(within(what));
	return { ...r, again: (of: ReactNode) => r.rerender(within(of)), client };
}

/** layOut gives elements a size, which virtual lists ask for. */
export function layOut(): void {
	for (const [side, size] of Object.entries({ clientHeight: 600, clientWidth: 600, offsetHeight: 20, offsetWidth: 600 })) {
		let proto: object = document.createElement("div"); // whose class has it depends on the DOM
		while (!Object.hasOwn(proto, side)) proto = Object.getPrototypeOf(proto);
		Object.defineProperty(proto, side, { configurable: true, get: () => size });
	}
}

export const rev = (n: number, more: Partial<Schemas["Revision"]> = {}): Schemas["Revision"] => ({
	n,
	root: `root${n}`,
	time: "2026-01-01T00:00:00Z",
	files: n,
	bytes: 10 * n,
	title: `change ${n}`,
	who: "the agent",
	state: "durable",
	...more,
});

export const change = (path: string, action: Schemas["PathChange"]["action"] = "change", more: Partial<Schemas["PathChange"]> = {}) => ({
	path,
	action,
	...(action === "add" ? {} : { before: { type: "file" as const, size: 1, mode: 420 } }),
	...(action === "remove" ? {} : { after: { type: "file" as const, size: 2, mode: 420 } }),
	...more,
});

export const plan = (id: string, files: ReturnType<typeof change>[], more: Partial<Schemas["ChangePlan"]> = {}): Schemas["ChangePlan"] => ({
	id,
	do: "undo",
	n: 5,
	files,
	total: files.length,
	conflicts: [],
	...more,
});
