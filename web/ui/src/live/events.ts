// Events of the tenant: they say which answers of the server are stale.

import type { QueryClient } from "@tanstack/react-query";
import type { FollowMessage } from "../api/types";
import { socket } from "./index";

const flushMS = 250;

type Domain = NonNullable<FollowMessage["domain"]>;
const listeners = new Set<(e: Domain) => void>();

/** onDomain calls for each event of the tenant until the function that it returns is called. */
export function onDomain(on: (e: Domain) => void): () => void {
	listeners.add(on);
	return () => listeners.delete(on);
}

/** stale names the queries that an event is about. */
export function stale(m: FollowMessage): string[] {
	if (m.domain?.resync) return ["runs", "approvals", "sandboxes", "history", "network", "workflows"];
	switch (m.domain?.type?.split(".")[0]) {
		case "run":
			return ["runs", "approvals", "workflows"];
		case "sandbox":
			return ["sandboxes"];
		case "workspace":
			return ["history"];
		case "network":
			return ["network"];
		case "models":
			return ["usage"];
	}
	return [];
}

/** followEvents keeps the answers in a client fresh; they are asked for again a few times a second at most. */
export function followEvents(client: QueryClient): () => void {
	let next = 0;
	let timer: ReturnType<typeof setTimeout> | undefined;
	const names = new Set<string>();
	const flush = () => {
		timer = undefined;
		for (const name of names) void client.invalidateQueries({ queryKey: [name], predicate: (q) => !q.meta?.fixed }); // what two revisions differ in stays
		names.clear();
	};
	const leave = socket.subscribe({
		name: "events",
		from: () => next,
		on: (m) => {
			if (!m.problem) next = (m.seq ?? 0) + 1;
			if (m.domain) for (const on of listeners) on(m.domain);
			for (const name of stale(m)) names.add(name);
			if (names.size && !timer) timer = setTimeout(flush, flushMS);
		},
	});
	return () => {
		clearTimeout(timer);
		leave();
	};
}
