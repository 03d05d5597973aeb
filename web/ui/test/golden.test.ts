// The fold of the screen and that of the server make the same of a run's events. The server's
// test writes the outlines that are read here; how a title is made is not promised.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { RunEvent } from "../src/api/types";
import { beginning, type CallItem, type InputItem, RunFold, type StepFold, type ThreadFold } from "../src/run/fold";

const dir = join(import.meta.dirname, "../../../server/transcript/testdata/fold");
const names = readdirSync(dir)
	.filter((n) => n.endsWith(".events.json"))
	.map((n) => n.replace(".events.json", ""));

interface Call {
	call: string;
	tool: string;
	state: string;
	took_ms?: number;
	exit?: number;
	started_seq?: number;
	ended_seq?: number;
	ask?: string;
	asked_seq?: number;
	decision?: string;
	title?: string;
}

interface Input {
	seq: number;
	from: string;
	name?: string;
	text?: string;
}

interface Outline {
	state: string;
	reason?: string;
	started_at?: string;
	ended_at?: string;
	last_seq: number;
	total: number;
	steps: {
		step: number;
		seq: number;
		at: string;
		took_ms: number;
		text?: string;
		inputs?: Input[];
		calls?: Call[];
		calls_total?: number;
		failures?: number;
		tokens: number;
		cost_usd: number;
		rewound?: boolean;
	}[];
	inputs?: Input[];
	todos?: unknown[];
	waiting?: string[];
	usage: Record<string, number | boolean>;
	cost_usd: number;
}

const callsMax = 32;

/** some leaves out what is empty, as the server does. */
function some<T extends object>(o: T): T {
	const full = Object.entries(o).filter(([, v]) => v !== undefined && v !== "" && v !== false && !(Array.isArray(v) && !v.length));
	return Object.fromEntries(full) as T;
}

function callOf(t: ThreadFold, id: string): Call {
	const c = t.callItem(id) as CallItem;
	return some({
		call: c.call,
		tool: c.tool,
		state: c.state,
		took_ms: c.tookMS || undefined,
		exit: c.exit,
		started_seq: c.startedSeq || undefined,
		ended_seq: c.endedSeq || undefined,
		ask: c.asked && (c.asked.ask || "approval"),
		asked_seq: c.asked?.seq,
		decision: c.asked?.decided?.decision,
	});
}

function inputsOf(t: ThreadFold): Map<StepFold | undefined, Input[]> {
	const by = new Map<StepFold | undefined, Input[]>();
	for (const i of t.items.filter((i): i is InputItem => i.kind === "input")) {
		const step = t.steps.find((s) => s.through >= i.seq);
		by.set(step, [...(by.get(step) ?? []), some({ seq: i.seq, from: i.from, name: i.name, text: beginning(i.text) })]);
	}
	return by;
}

function outlineOf(t: ThreadFold): Outline {
	const inputs = inputsOf(t);
	return some({
		state: t.state,
		reason: t.over() ? t.reason : "",
		started_at: t.startedAt,
		ended_at: t.endedAt,
		last_seq: t.seq,
		total: t.step,
		steps: t.steps.map((s) =>
			some({
				step: s.step,
				seq: s.seq,
				at: s.at,
				took_ms: s.tookMS,
				text: s.text,
				inputs: inputs.get(s)?.slice(0, 8),
				calls: s.calls.slice(0, callsMax).map((c) => callOf(t, c)),
				calls_total: s.calls.length > callsMax ? s.calls.length : undefined,
				failures: s.failures || undefined,
				tokens: s.tokens,
				cost_usd: s.costUSD,
				rewound: s.rewound,
			}),
		),
		inputs: inputs.get(undefined)?.slice(0, 8),
		todos: t.todos,
		waiting: t.waiting().map((w) => w.call),
		usage: t.usage as unknown as Outline["usage"],
		cost_usd: t.costUSD,
	});
}

/** comparable leaves out of the server's outline what the screen does not fold. */
function comparable(o: Outline): Outline {
	const { state, reason, started_at, ended_at, last_seq, total, inputs, todos, waiting, usage, cost_usd } = o;
	const steps = o.steps.map((s) => {
		const { kind: _, ...rest } = s as typeof s & { kind: string };
		return some({ ...rest, calls: s.calls?.map(({ title: _, ...c }) => c) });
	});
	return some({ state, reason, started_at, ended_at, last_seq, total, steps, inputs, todos, waiting, usage, cost_usd });
}

function rounded(o: Outline): Outline {
	const round = (n: number) => Math.round(n * 1e9) / 1e9;
	const used = Object.fromEntries(Object.entries(o.usage).filter(([, v]) => v));
	return { ...o, usage: used, cost_usd: round(o.cost_usd), steps: o.steps.map((s) => ({ ...s, cost_usd: round(s.cost_usd) })) };
}

test("there are golden files", () => expect(names.length).toBeGreaterThanOrEqual(10));

test.each(names)("%s: the same as the server's", (name) => {
	const events = JSON.parse(readFileSync(join(dir, `${name}.events.json`), "utf8")) as RunEvent[];
	const want = JSON.parse(readFileSync(join(dir, `${name}.outline.json`), "utf8")) as Outline & { thread: string };
	const f = new RunFold(want.thread);
	for (const e of events) f.apply("", e);
	expect(rounded(outlineOf(f.thread(want.thread)))).toEqual(rounded(comparable(want)));
});
