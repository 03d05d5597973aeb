// What is asked of the server beside the logs of runs. Events of the tenant say when an answer
// is stale; nothing is asked again by a clock.

import { QueryClient, useQuery } from "@tanstack/react-query";
import { get, Problem, query } from "./http";
import type { Approval, Info, Login, Run, Sandbox, Schemas } from "./types";

export const client = new QueryClient({
	defaultOptions: {
		queries: {
			staleTime: 30_000,
			refetchOnWindowFocus: false,
			retry: (n, err) => n < 2 && err instanceof Problem && (err.status === 0 || err.status >= 500),
		},
	},
});

export interface Page<T> {
	items: T[] | null;
	next_page_token?: string;
}

export interface RunFilter {
	state?: string;
	agent?: string;
	page_token?: string;
}

export const useInfo = () => useQuery({ queryKey: ["info"], queryFn: () => get<Info>("/v1/info") });
export const useLogin = () =>
	useQuery({ queryKey: ["login"], queryFn: () => get<Login>("/v1/login"), staleTime: Number.POSITIVE_INFINITY });
export const useRuns = (f: RunFilter = {}) =>
	useQuery({
		queryKey: ["runs", f],
		queryFn: () => get<Page<Run>>(`/v1/runs${query({ page_size: 50, ...f })}`),
		placeholderData: (old) => old,
	});
export const useApprovals = () => useQuery({ queryKey: ["approvals"], queryFn: () => get<{ items: Approval[] | null }>("/v1/approvals") });
export const useSandboxes = () => useQuery({ queryKey: ["sandboxes"], queryFn: () => get<Page<Sandbox>>("/v1/sandboxes?page_size=200") });
export const useSandbox = (id: string) =>
	useQuery({ queryKey: ["sandboxes", id], queryFn: () => get<Sandbox>(`/v1/sandboxes/${encodeURIComponent(id)}`), enabled: !!id });
export const useModels = () => useQuery({ queryKey: ["models"], queryFn: () => get<Page<Schemas["Model"]>>("/v1/models") });
export const useAgents = () => useQuery({ queryKey: ["agents"], queryFn: () => get<Page<Schemas["Agent"]>>("/v1/agents") });
