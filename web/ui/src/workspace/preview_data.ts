// What runs inside a machine. Nothing tells of it, so it is asked for: while the pane is seen,
// the machine runs and a person is there. To ask keeps a machine from being paused.

import { useQuery } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { get, look } from "../api/http";
import type { Schemas } from "../api/types";
import type { Port, Service } from "./preview_state";

const everyMS = 3000;
const attendedMS = 5 * 60_000;

let attended = true;
let timer: ReturnType<typeof setTimeout> | undefined;
const watchers = new Set<() => void>();

function attend(to: boolean): void {
	clearTimeout(timer);
	if (to) timer = setTimeout(() => attend(false), attendedMS);
	if (to === attended) return;
	attended = to;
	for (const on of watchers) on();
}
for (const sign of ["pointerdown", "pointermove", "keydown", "focus", "visibilitychange"]) {
	addEventListener(sign, () => attend(true), { passive: true, capture: true });
}
attend(true);

function watch(on: () => void): () => void {
	watchers.add(on);
	return () => watchers.delete(on);
}

/** useAttended reports whether a person gave a sign in the last minutes. */
const useAttended = () => useSyncExternalStore(watch, () => attended);

const base = (sandbox: string) => `/v1/sandboxes/${encodeURIComponent(sandbox)}`;

/** insideKey is none of those that an event of the machine makes stale: to ask again because it was paused would wake it. */
export const insideKey = (sandbox: string, what: "services" | "ports") => ["inside", sandbox, what];

export function useInside(sandbox: string, wanted: boolean) {
	const on = useAttended() && wanted;
	const services = useQuery({
		queryKey: insideKey(sandbox, "services"),
		queryFn: ({ signal }) => look<{ items: Service[] | null }>(`${base(sandbox)}/services`, signal),
		enabled: on,
		refetchInterval: everyMS,
		refetchOnWindowFocus: true,
		retry: false,
	});
	const ports = useQuery({
		queryKey: insideKey(sandbox, "ports"),
		queryFn: ({ signal }) => look<{ items: Port[] | null }>(`${base(sandbox)}/ports`, signal),
		enabled: on,
		refetchInterval: everyMS,
		refetchOnWindowFocus: true,
		retry: false,
	});
	return {
		services: services.data?.items ?? [],
		ports: ports.data?.items ?? [],
		known: services.isSuccess && ports.isSuccess,
		error: services.error ?? ports.error,
	};
}

export const linksKey = (sandbox: string) => ["sandboxes", sandbox, "previews"];

export const useLinks = (sandbox: string, on: boolean) =>
	useQuery({
		queryKey: linksKey(sandbox),
		queryFn: ({ signal }) => get<Schemas["PreviewList"]>(`${base(sandbox)}/previews`, signal),
		enabled: on,
	});
