// What runs used, put together by day, agent or model.

import type { Run, Sandbox } from "../api/types";

export interface Sum {
	name: string;
	runs: number;
	steps: number;
	input: number;
	output: number;
	cached: number;
	usd: number;
	/** estimated: some of the tokens were not told by a model's server. */
	estimated: boolean;
}

export const ways = ["day", "agent", "model"] as const;
export type Way = (typeof ways)[number];

/** dayOf is the day of a time here, as 2026-11-28. */
export function dayOf(at: string): string {
	const t = new Date(at);
	const two = (n: number) => String(n).padStart(2, "0");
	return `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())}`;
}

const nothing = (name: string): Sum => ({ name, runs: 0, steps: 0, input: 0, output: 0, cached: 0, usd: 0, estimated: false });

function add(s: Sum, r: Run): void {
	s.runs++;
	s.steps += r.steps;
	s.input += r.usage.input + (r.usage.cache_write ?? 0);
	s.output += r.usage.output;
	s.cached += r.usage.cache_read ?? 0;
	s.usd += r.cost_usd;
	s.estimated ||= !!r.usage.estimated;
}

/** fold sums runs up; days are in order, the rest by cost. */
export function fold(runs: Run[], by: Way): Sum[] {
	const sums = new Map<string, Sum>();
	for (const r of runs) {
		const name = by === "day" ? dayOf(r.created_at) : r[by] || "not known";
		let s = sums.get(name);
		if (!s) {
			s = nothing(name);
			sums.set(name, s);
		}
		add(s, r);
	}
	const list = [...sums.values()];
	if (by === "day") return list.sort((a, b) => a.name.localeCompare(b.name));
	return list.sort((a, b) => b.usd - a.usd || b.input + b.output - a.input - a.output || a.name.localeCompare(b.name));
}

export function total(runs: Run[]): Sum {
	const s = nothing("all");
	for (const r of runs) add(s, r);
	return s;
}

/** wholeDays puts days without a run between those that have some, at most so many days. */
export function wholeDays(sums: Sum[], most = 92): Sum[] {
	const first = sums[0];
	const last = sums.at(-1);
	if (!first || !last) return sums;
	const have = new Map(sums.map((s) => [s.name, s]));
	const out: Sum[] = [];
	const day = new Date(`${last.name}T12:00:00`);
	for (let i = 0; i < most; i++, day.setDate(day.getDate() - 1)) {
		const name = dayOf(day.toISOString());
		out.unshift(have.get(name) ?? nothing(name));
		if (name <= first.name) break;
	}
	return out;
}

/** hours is how long a machine has run since it was last started; 0 = it does not run. */
export function hours(s: Sandbox, now: number): number {
	return s.state === "running" && s.started_at ? Math.max(0, now - Date.parse(s.started_at)) / 3_600_000 : 0;
}
