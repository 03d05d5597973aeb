// What the data of events holds, as package thread of the server documents it. Only what
// the UI reads is here.

export interface Block {
	kind: string; // text, reasoning, call, result, media, vendor
	text?: string;
	call?: { id: string; name: string; args: unknown; raw?: boolean };
	media?: { type: string; hash?: string };
}

export interface EventData {
	"thread.opened": { name: string; title?: string; fork?: { thread: string; seq: number } };
	"run.started": { by?: string; by_name?: string; model?: string; budget?: BudgetData; planning?: boolean };
	"run.ended": { state: string; reason?: string; text?: string; result?: unknown };
	input: {
		id?: string;
		from: string;
		name?: string;
		blocks: Block[] | null;
		shown_blob?: string;
		spent?: { usage?: UsageData; cost_usd?: number; steps?: number };
	};
	"model.completed": {
		message: { role: string; blocks: Block[] | null };
		blob?: string;
		usage: UsageData;
		cost_usd?: number;
		model: string;
		stop: string;
		took_ns?: number;
		through: number;
	};
	"model.failed": { attempt: number; trouble: string; text?: string; wait_ns?: number; model?: string };
	"tool.started": { call: string; tool: string; args?: unknown; machine?: string };
	"tool.completed": {
		call: string;
		tool?: string;
		blocks: Block[] | null;
		failed?: boolean;
		code?: string;
		exit?: number;
		blob?: string;
		bytes?: number;
		file?: string;
		shown_blob?: string;
		took_ns?: number;
		usage?: UsageData;
		cost_usd?: number;
		steps?: number;
		todos?: TodoData[];
	};
	"approval.asked": {
		ask?: string;
		call: string;
		tool: string;
		reason?: string;
		allowed: string[];
		expires?: string;
		args?: unknown;
		writes?: string[];
		reads?: string[];
	};
	"approval.decided": { call: string; decision: string; args?: unknown; text?: string; by: string; by_name?: string };
	"context.compacted": { through: number; summary?: string; file?: string; bytes?: number; cost_usd?: number; usage?: UsageData };
	"compact.asked": { by?: string; by_name?: string; focus?: string };
	"check.started": { key: string };
	"check.ended": { passed?: boolean; text?: string; exit?: number; code?: string; cost_usd?: number; usage?: UsageData };
	"thread.rewound": { to: number; by?: string; by_name?: string };
	"cancel.asked": { by?: string; by_name?: string; reason?: string };
	"budget.changed": { budget: BudgetData; by?: string; by_name?: string };
	"policy.changed": { rules: unknown; by?: string; by_name?: string };
	"machine.bound": { machine: string; why?: string; own?: boolean };
	"network.refused": RefusedData;
	"thread.claimed": { node: string; term: number };
}

/** RefusedData is what a machine wanted to send and was not let out. All of it but why is the guest's. */
export interface RefusedData {
	machine: string;
	host: string;
	port: number;
	method?: string;
	path?: string;
	why: string;
	last?: boolean;
}

export interface UsageData {
	input: number;
	output: number;
	reasoning?: number;
	cache_read?: number;
	cache_write?: number;
	estimated?: boolean;
}

export interface BudgetData {
	steps?: number;
	tokens?: number;
	cost_usd?: number;
	wall_ns?: number;
}

export interface TodoData {
	content: string;
	status: string; // pending, in_progress, completed
}
