// What runs used, as the server sums it up, and what machines hold.

import type { Sandbox, Schemas } from "../api/types";

export type Row = Schemas["UsageRow"];
export type Report = Schemas["UsageReport"];

export const ways = ["day", "agent", "model", "run"] as const;
export type Way = (typeof ways)[number];

export const spans = { "7": "7 days", "30": "30 days", "90": "90 days", "365": "a year" } as const;

const day = 86_400_000;

/** since is the beginning of the day, in UTC, so many days before now: days are the server's. */
export function since(days: number, now: number): string {
	return new Date(Math.floor(now / day) * day - (days - 1) * day).toISOString();
}

/** tokensIn are those that were not read from a cache. */
export const tokensIn = (r: Row) => r.usage.input + (r.usage.cache_write ?? 0);

/** wholeDays puts days without a run between those that have some, at most so many days. */
export function wholeDays(rows: Row[], most = 92): Row[] {
	const sorted = [...rows].sort((a, b) => (a.key ?? "").localeCompare(b.key ?? ""));
	const first = sorted[0]?.key;
	const last = sorted.at(-1)?.key;
	if (!first || !last) return sorted;
	const have = new Map(sorted.map((r) => [r.key, r]));
	const out: Row[] = [];
	for (let t = Date.parse(`${last}T00:00:00Z`); out.length < most && t >= Date.parse(`${first}T00:00:00Z`); t -= day) {
		const key = new Date(t).toISOString().slice(0, 10);
		out.unshift(have.get(key) ?? { key, runs: 0, steps: 0, tokens: 0, cost_usd: 0, usage: { input: 0, output: 0 } });
	}
	return out;
}

/** hours is how long a machine has run since it was last started; 0 = it does not run. */
export function hours(s: Sandbox, now: number): number {
	return s.state === "running" && s.started_at ? Math.max(0, now - Date.parse(s.started_at)) / 3_600_000 : 0;
}
