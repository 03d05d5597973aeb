// What the pages of workflows ask of the server. All keys begin with "workflows": events of
// runs make the answers stale.

import { useQuery } from "@tanstack/react-query";
import { get, query } from "../api/http";
import type { Page } from "../api/queries";
import type { Schemas } from "../api/types";

export type Workflow = Schemas["Workflow"];
export type WorkflowRun = Schemas["WorkflowRun"];
export type WorkflowNode = Schemas["WorkflowNode"];
export type WorkflowGraph = Schemas["WorkflowGraph"];
export type WorkflowPlan = Schemas["WorkflowPlan"];

const path = encodeURIComponent;

export const useWorkflows = () => useQuery({ queryKey: ["workflows", "list"], queryFn: () => get<Page<Workflow>>("/v1/workflows") });

export const useWorkflow = (name: string, version = "") =>
	useQuery({
		queryKey: ["workflows", "one", name, version],
		queryFn: () => get<Workflow>(`/v1/workflows/${path(name)}${query({ version })}`),
		enabled: !!name,
	});

export const useWorkflowRuns = (page_token = "") =>
	useQuery({
		queryKey: ["workflows", "runs", page_token],
		queryFn: () => get<Page<WorkflowRun>>(`/v1/workflow-runs${query({ page_size: 50, page_token })}`),
		placeholderData: (old) => old,
	});

const freshMS = 2000;

/** useWorkflowRun is asked anew while the run works and the page is looked at: not each change of it has an event. */
export const useWorkflowRun = (id: string) =>
	useQuery({
		queryKey: ["workflows", "run", id],
		queryFn: () => get<WorkflowRun>(`/v1/workflow-runs/${path(id)}`),
		refetchInterval: (q) => (q.state.data?.state === "running" ? freshMS : false),
		refetchIntervalInBackground: false,
	});
