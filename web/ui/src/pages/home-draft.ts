// What is written into the composer outlives a reload, but never with a key in it.

import { keyLike } from "./home-keys";

/** Draft is what the composer has. Numbers are as they were typed. */
export interface Draft {
	task: string;
	agent: string;
	model: string;
	template: string;
	network: string;
	steps: string;
	cost: string;
	plan: boolean;
	keep: boolean;
}

export const empty: Draft = { task: "", agent: "", model: "", template: "", network: "", steps: "", cost: "", plan: false, keep: false };

const at = "skete.draft";

/** readDraft returns what was kept; what does not fit is left out. */
export function readDraft(store: Storage = localStorage): Draft {
	const draft = { ...empty };
	let kept: unknown;
	try {
		kept = JSON.parse(store.getItem(at) ?? "{}");
	} catch {
		return draft;
	}
	for (const [k, v] of Object.entries(kept ?? {}))
		if (k in empty && typeof v === typeof empty[k as keyof Draft]) Object.assign(draft, { [k]: v });
	return draft;
}

/** keepDraft keeps a draft and says whether it did: one with a key in it is forgotten instead. */
export function keepDraft(d: Draft, store: Storage = localStorage): boolean {
	if (keyLike(d.task)) {
		store.removeItem(at);
		return false;
	}
	store.setItem(at, JSON.stringify(d));
	return true;
}

export const forgetDraft = (store: Storage = localStorage) => store.removeItem(at);

interface StartBody {
	task: string;
	agent?: string;
	model?: string;
	spec?: Record<string, unknown>;
	budget?: { steps?: number; cost_usd?: number };
	plan?: boolean;
	keep?: boolean;
}

/** startOf is what the server is asked for; a text is what is wrong. */
export function startOf(d: Draft): StartBody | string {
	if (!d.task.trim()) return "Write what is to be done.";
	const steps = d.steps.trim() ? Number(d.steps) : 0;
	if (!Number.isInteger(steps) || steps < 0) return "The budget of steps is a whole number, such as 40.";
	const cost = d.cost.trim() ? Number(d.cost) : 0;
	if (!Number.isFinite(cost) || cost < 0) return "The budget of money is a number of dollars, such as 2.50.";
	const spec = { template: d.template || undefined, network: d.network || undefined };
	return {
		task: d.task,
		agent: d.agent || undefined,
		model: d.model || undefined,
		spec: spec.template || spec.network ? spec : undefined,
		budget: steps || cost ? { steps: steps || undefined, cost_usd: cost || undefined } : undefined,
		plan: d.plan || undefined,
		keep: d.keep || undefined,
	};
}
