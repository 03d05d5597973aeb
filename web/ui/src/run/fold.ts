// The fold of a run's events: what the screen shows is a function of the log, and of live news
// on their way into it. One ThreadFold a thread: the run's own, and one for each sub-agent.
//
// Items are replaced and not changed, so that a row whose item is the same need not be drawn
// again; the list itself grows in place.

import type { Live, RunEvent } from "../api/types";
import type { Block, EventData, RefusedData, TodoData, UsageData } from "./events";

interface Base {
	/** key is the same for the item's life. */
	key: string;
	/** seq is of the event that began it. */
	seq: number;
	at: string;
	/** step counts answers of the model from 1; 0 = before the first. */
	step: number;
	/** rewound: no longer part of the conversation. */
	rewound?: boolean;
}

export interface InputItem extends Base {
	kind: "input";
	from: string;
	name: string;
	text: string;
	media: { type: string; hash: string }[];
	/** blob holds what the model was shown, where that was too large for the log. */
	blob?: string;
}

export interface TextItem extends Base {
	kind: "text";
	text: string;
	streaming: boolean;
	/** blob holds the answer, of which the log has only the shape. */
	blob?: string;
}

export interface ReasoningItem extends Base {
	kind: "reasoning";
	text: string;
	streaming: boolean;
	tookMS: number;
	blob?: string;
}

export type CallState = "streaming" | "pending" | "waiting" | "running" | "done" | "failed" | "rejected" | "answered";

export interface AskFold {
	ask: string;
	reason: string;
	allowed: string[];
	expires: string;
	args: unknown;
	seq: number;
	at: string;
	writes: string[];
	reads: string[];
	decided?: { decision: string; by: string; by_name?: string; text: string; args: unknown; at: string; seq: number };
}

export interface CallItem extends Base {
	kind: "call";
	call: string;
	tool: string;
	/** args are those that run: the model's, a hook's or a person's. */
	args: unknown;
	/** argsText grows while the model writes them. */
	argsText: string;
	state: CallState;
	startedAt: string;
	startedSeq: number;
	endedAt: string;
	endedSeq: number;
	tookMS: number;
	exit?: number;
	code: string;
	/** output is what the model sees of it. */
	output: string;
	/** bytes of the whole output, when output is a part of it. */
	bytes: number;
	/** kept is the blob that has all that is kept of the output; "" = it is here. */
	kept: string;
	/** live is the end of what it wrote so far. */
	live: string;
	asked?: AskFold;
	todos?: TodoData[];
	/** before is the plan that todos replaced. */
	before?: TodoData[];
	/** thread of the sub-agent that it started. */
	thread?: string;
	media: { type: string; hash: string }[];
	/** blob holds the answer that has the arguments, of which the log has only the shape. */
	blob?: string;
	/** shownBlob holds what the model was shown of the output, where that was too large for the log. */
	shownBlob?: string;
}

export interface NoteItem extends Base {
	kind: "note";
	note:
		| "compacted"
		| "rewound"
		| "bound"
		| "lost"
		| "cancel"
		| "budget"
		| "policy"
		| "check"
		| "refused"
		| "resumed"
		| "unknown"
		| "started";
	text: string;
	detail: string;
	failed?: boolean;
	refused?: RefusedData;
}

export interface FailureItem extends Base {
	kind: "failure";
	trouble: string;
	text: string;
	attempt: number;
	waitMS: number;
}

export interface EndItem extends Base {
	kind: "end";
	state: string;
	reason: string;
	text: string;
}

export type Item = InputItem | TextItem | ReasoningItem | CallItem | NoteItem | FailureItem | EndItem;

/** Seed is what a run's record says of events that were not loaded. */
export interface Seed {
	step: number;
	costUSD: number;
	agent: string;
	title: string;
	model: string;
	machine: string;
	startedAt: string;
	todos: TodoData[];
}

const liveBytesMax = 64 << 10;
const taskTool = "task";

/** textOf joins what blocks say. */
export function textOf(blocks: Block[] | null | undefined): string {
	return (blocks ?? [])
		.filter((b) => b.kind === "text" && b.text)
		.map((b) => b.text)
		.join("");
}

function mediaOf(blocks: Block[] | null | undefined) {
	return (blocks ?? []).filter((b) => b.media).map((b) => ({ type: b.media!.type, hash: b.media!.hash ?? "" }));
}

/** byWhom names who did something; older logs have only an id. */
const byWhom = (d: { by?: string; by_name?: string }) => (d.by ? ` by ${d.by_name || d.by}` : "");

/** ms are whole milliseconds; what is beyond is cut off, as the server does. */
const ms = (ns: number | undefined) => Math.trunc((ns ?? 0) / 1e6);

/** StepFold is one answer of the model; its calls are items. */
export interface StepFold {
	step: number;
	/** seq of model.completed. */
	seq: number;
	at: string;
	tookMS: number;
	/** through is the last event that its prompt knew. */
	through: number;
	/** text is the beginning of the answer. */
	text: string;
	calls: string[];
	tokens: number;
	costUSD: number;
	/** failures of the model call before it. */
	failures: number;
	rewound: boolean;
}

const textMax = 80;

/** beginning are the first code points of a text. */
export const beginning = (s: string) => [...s.slice(0, 2 * textMax)].slice(0, textMax).join("");

/** ThreadFold is the fold of one thread. */
export class ThreadFold {
	readonly items: Item[] = [];
	/** seq of the last event. */
	seq = 0;
	/** run whose events these are: a sub-agent has one of its own. */
	run = "";
	step = 0;
	state = "pending";
	reason = "";
	agent = "";
	title = "";
	model = "";
	machine = "";
	todos: TodoData[] = [];
	/** steps, those that were loaded. */
	readonly steps: StepFold[] = [];
	failures = 0;
	/** plans are the todos with the answers that wrote them: a rewind goes back to an older one. */
	private plans: { seq: number; todos: TodoData[] }[] = [];
	usage: UsageData = { input: 0, output: 0 };
	costUSD = 0;
	lastAt = "";
	startedAt = "";
	endedAt = "";
	cancelling = false;
	private at = new Map<string, number>(); // of items by their keys
	private live: { text: string; reasoning: string } = { text: "", reasoning: "" };
	private liveKeys: string[] = [];

	constructor(readonly id: string) {}

	item(key: string): Item | undefined {
		const i = this.at.get(key);
		return i === undefined ? undefined : this.items[i];
	}

	callItem(call: string): CallItem | undefined {
		return this.item(`c:${call}`) as CallItem | undefined;
	}

	/** waiting are the calls that a person has to decide. */
	waiting(): CallItem[] {
		return this.items.filter((i): i is CallItem => i.kind === "call" && !!i.asked && !i.asked.decided && !i.rewound && !this.over());
	}

	over(): boolean {
		return ["succeeded", "failed", "cancelled", "timed_out"].includes(this.state);
	}

	/** apply takes the next event; false: it was known already. */
	apply(e: RunEvent): boolean {
		if (e.seq <= this.seq) return false;
		this.seq = e.seq;
		this.run = e.run ?? this.run;
		this.lastAt = e.at;
		const handler = handlers[e.kind as keyof EventData] as ((t: ThreadFold, e: RunEvent, d: unknown) => void) | undefined;
		if (handler) handler(this, e, e.data);
		else if (!quietKinds.has(e.kind)) this.note(e, "unknown", e.kind, "");
		return true;
	}

	base(e: RunEvent, key: string): Base {
		return { key, seq: e.seq, at: e.at, step: this.step };
	}

	push(item: Item): void {
		this.at.set(item.key, this.items.length);
		this.items.push(item);
	}

	put(item: Item): void {
		const i = this.at.get(item.key);
		if (i === undefined) this.push(item);
		else this.items[i] = item;
	}

	change(call: string, with_: Partial<CallItem>): void {
		const item = this.callItem(call);
		if (item) this.put({ ...item, ...with_ });
	}

	note(e: RunEvent, note: NoteItem["note"], text: string, detail: string, failed = false): void {
		this.push({ ...this.base(e, `e:${e.seq}`), kind: "note", note, text, detail, failed });
	}

	spend(usage: UsageData | undefined, cost: number | undefined): void {
		const u = this.usage;
		this.usage = {
			input: u.input + (usage?.input ?? 0),
			output: u.output + (usage?.output ?? 0),
			reasoning: (u.reasoning ?? 0) + (usage?.reasoning ?? 0),
			cache_read: (u.cache_read ?? 0) + (usage?.cache_read ?? 0),
			cache_write: (u.cache_write ?? 0) + (usage?.cache_write ?? 0),
			estimated: u.estimated || usage?.estimated,
		};
		this.costUSD += cost ?? 0;
	}

	/** settle ends what streams: the event that was told has it all. */
	settle(): void {
		this.live = { text: "", reasoning: "" };
		if (!this.liveKeys.length) return;
		const gone = new Set(this.liveKeys);
		this.liveKeys = [];
		const from = Math.min(...[...gone].map((key) => this.at.get(key) ?? this.items.length));
		const tail = this.items.splice(from);
		for (const i of tail) this.at.delete(i.key);
		for (const i of tail) if (!gone.has(i.key)) this.push(i);
	}

	/** seed is what is known of a run whose first events are not here. */
	seed(from: Seed): void {
		this.step = from.step;
		this.costUSD = from.costUSD;
		this.agent = from.agent;
		this.title = from.title;
		this.model = from.model;
		this.machine = from.machine;
		this.startedAt = from.startedAt;
		this.todos = from.todos;
		this.plans = [{ seq: 0, todos: from.todos }];
		this.state = "running";
	}

	/** adopt takes over what was on its way when the log was folded anew. */
	adopt(old: ThreadFold): void {
		if (old.seq > this.seq) return;
		this.live = { ...old.live };
		for (const key of old.liveKeys) {
			const item = old.item(key);
			if (item) this.putLive(item);
		}
		for (const was of old.items) {
			if (was.kind !== "call" || !was.live) continue;
			const now = this.callItem(was.call);
			if (now && !now.endedSeq) this.put({ ...now, live: was.live });
		}
	}

	/** fill puts an answer whose blob was loaded in the place of its shapes. */
	fill(seq: number, blocks: Block[] | null): void {
		(blocks ?? []).forEach((b, n) => {
			const item = b.call ? this.callItem(b.call.id) : this.item(`e:${seq}.${n}`);
			if (!item) return;
			if (item.kind === "call") this.put({ ...item, args: item.args ?? b.call?.args, blob: undefined });
			else if (item.kind === "text" || item.kind === "reasoning") this.put({ ...item, text: b.text ?? "", blob: undefined });
		});
	}

	/** plan takes todos that an answer wrote. */
	plan(seq: number, todos: TodoData[]): void {
		this.plans.push({ seq, todos });
		this.todos = todos;
	}

	/** weigh says whether the run goes on: it does not when every call of the last step that has no
	 * result waits for a person. */
	weigh(): void {
		if (this.over() || !this.startedAt) return;
		let open = 0;
		for (let i = this.items.length - 1; i >= 0; i--) {
			const item = this.items[i]!;
			if (item.step < this.step) break;
			if (item.kind !== "call" || item.endedSeq || !item.call) continue;
			open++;
			if (!item.asked || item.asked.decided) {
				this.state = "running";
				return;
			}
		}
		this.state = open ? "interrupted" : "running";
	}

	/** rewind marks what is no longer part of the conversation. */
	rewind(to: number): void {
		for (const s of this.steps) if (s.seq > to) s.rewound = true;
		this.plans = this.plans.filter((p) => p.seq <= to);
		this.todos = this.plans.at(-1)?.todos ?? [];
		this.items.forEach((i, n) => {
			if (i.seq > to && !i.rewound) this.items[n] = { ...i, rewound: true };
		});
	}

	/** news takes what is on its way into the log. */
	news(l: Live, now: string): void {
		if (l.kind === "reset") this.settle();
		else if (l.kind === "output") this.output(l);
		else if (l.kind === "tool_call" || l.kind === "tool_args") this.streamCall(l, now);
		else this.stream(l, l.kind, now);
	}

	private stream(l: Live, kind: "text" | "reasoning", now: string): void {
		this.live[kind] = joined(this.live[kind], l);
		const base = { key: `l:${kind}`, seq: this.seq + 1, at: now, step: this.step + 1, streaming: true, text: this.live[kind] };
		this.putLive(kind === "text" ? { ...base, kind } : { ...base, kind, tookMS: 0 });
	}

	private streamCall(l: Live, now: string): void {
		const key = `l:call:${l.index ?? 0}`;
		const old = this.item(key) as CallItem | undefined;
		const argsText = joined(old?.argsText ?? "", l).slice(-liveBytesMax);
		const base = { key, seq: this.seq + 1, at: now, step: this.step + 1 };
		this.putLive({ ...newCall(base, "", l.name || old?.tool || "", undefined), state: "streaming", argsText });
	}

	private putLive(item: Item): void {
		if (!this.at.has(item.key)) this.liveKeys.push(item.key);
		this.put(item);
	}

	private output(l: Live): void {
		const item = l.call ? this.callItem(l.call) : undefined;
		if (!item || item.endedSeq) return;
		this.put({ ...item, live: joined(item.live, l).slice(-liveBytesMax) });
	}
}

/** joined is a text with a piece more of it, or anew. */
const joined = (had: string, l: Live) => (l.again ? "" : had) + (l.text ?? "");

/** newCall has all fields from the beginning: copies of objects of one shape are cheap, and a long
 * run makes tens of thousands of them. */
function newCall(base: Base, call: string, tool: string, args: unknown, blob?: string): CallItem {
	return {
		kind: "call",
		key: base.key,
		seq: base.seq,
		at: base.at,
		step: base.step,
		rewound: undefined,
		call,
		tool,
		args,
		argsText: "",
		state: "pending",
		startedAt: "",
		startedSeq: 0,
		endedAt: "",
		endedSeq: 0,
		tookMS: 0,
		exit: undefined,
		code: "",
		output: "",
		bytes: 0,
		kept: "",
		live: "",
		asked: undefined,
		todos: undefined,
		before: undefined,
		thread: undefined,
		media: [],
		blob,
		shownBlob: undefined,
	};
}

/** quietKinds are events that are nothing to look at. */
const quietKinds = new Set([
	"context",
	"context.cleared",
	"check.started",
	"compact.asked",
	"thread.opened",
	"tool.started",
	"approval.decided",
]);

type Handlers = { [K in keyof EventData]?: (t: ThreadFold, e: RunEvent, d: EventData[K]) => void };

const handlers: Handlers = {
	"thread.opened": (t, _e, d) => {
		t.agent = d.name;
		t.title = d.title ?? t.title;
	},
	"run.started": (t, e, d) => {
		t.state = "running";
		t.reason = "";
		t.startedAt = e.at;
		t.endedAt = "";
		t.cancelling = false;
		t.model = d.model ?? t.model;
	},
	"run.ended": (t, e, d) => {
		t.settle();
		t.state = d.state;
		t.reason = d.reason ?? "";
		t.endedAt = e.at;
		t.push({ ...t.base(e, `e:${e.seq}`), kind: "end", state: d.state, reason: d.reason ?? "", text: d.text ?? "" });
	},
	input: (t, e, d) => {
		t.push({
			...t.base(e, `e:${e.seq}`),
			kind: "input",
			from: d.from,
			name: d.name ?? "",
			text: textOf(d.blocks),
			media: mediaOf(d.blocks),
			blob: d.shown_blob,
		});
		t.spend(d.spent?.usage, d.spent?.cost_usd);
	},
	"model.completed": (t, e, d) => completed(t, e, d),
	"model.failed": (t, e, d) => {
		t.settle();
		t.failures++;
		t.push({
			...t.base(e, `e:${e.seq}`),
			kind: "failure",
			trouble: d.trouble,
			text: d.text ?? "",
			attempt: d.attempt,
			waitMS: ms(d.wait_ns),
		});
	},
	"tool.started": (t, e, d) => {
		const item = t.callItem(d.call);
		t.change(d.call, {
			state: "running",
			startedAt: e.at,
			startedSeq: e.seq,
			args: d.args ?? item?.args,
			thread: d.tool === taskTool ? `${t.id}/${d.call}` : undefined,
		});
	},
	"tool.completed": (t, e, d) => toolCompleted(t, e, d),
	"approval.asked": (t, e, d) => {
		const item = t.callItem(d.call);
		if (!item) return;
		const asked: AskFold = {
			ask: d.ask ?? "",
			reason: d.reason ?? "",
			allowed: d.allowed ?? [],
			expires: d.expires ?? "",
			args: d.args ?? item.args,
			seq: e.seq,
			at: e.at,
			writes: d.writes ?? [],
			reads: d.reads ?? [],
		};
		t.put({ ...item, state: "waiting", asked });
		t.weigh();
	},
	"approval.decided": (t, e, d) => {
		const item = t.callItem(d.call);
		if (!item?.asked || item.asked.decided) return;
		const decided = { decision: d.decision, by: d.by, by_name: d.by_name, text: d.text ?? "", args: d.args, at: e.at, seq: e.seq };
		const state: CallState = item.asked.ask === "form" ? "running" : "pending"; // whatever is answered, the call that asks goes on
		t.put({ ...item, state, args: d.args ?? item.args, asked: { ...item.asked, decided } });
		t.weigh();
	},
	"context.compacted": (t, e, d) => {
		t.spend(d.usage, d.cost_usd);
		t.note(e, "compacted", "The conversation so far was replaced by a summary", d.summary ?? "");
	},
	"check.ended": (t, e, d) => {
		t.spend(d.usage, d.cost_usd);
		t.note(e, "check", d.passed ? "The run's check passed" : "The run's check did not pass", d.text ?? "", !d.passed);
	},
	"thread.rewound": (t, e, d) => {
		t.settle();
		t.rewind(d.to);
		t.note(e, "rewound", `The conversation was taken back to event ${d.to}${byWhom(d)}`, "");
	},
	"cancel.asked": (t, e, d) => {
		t.cancelling = true;
		t.note(e, "cancel", `${d.by_name || d.by || "A person"} asked the run to end`, d.reason ?? "");
	},
	"budget.changed": (t, e, d) => t.note(e, "budget", `The budget was changed${byWhom(d)}`, JSON.stringify(d.budget)),
	"policy.changed": (t, e, d) =>
		t.note(e, "policy", `${d.by_name || d.by || "A person"} allowed the same from now on`, JSON.stringify(d.rules, null, 1)),
	"machine.bound": (t, e, d) => {
		const lost = d.why === "lost";
		t.machine = d.machine;
		t.note(e, lost ? "lost" : "bound", lost ? `The machine was lost; it goes on in ${d.machine}` : `Works in ${d.machine}`, "", lost);
	},
	"network.refused": (t, e, d) => {
		const at = d.host.includes(":") ? `[${d.host}]` : d.host;
		const text = `network refused ${d.method || "connection to"} ${at}:${d.port}${d.path ?? ""}`;
		t.push({ ...t.base(e, `e:${e.seq}`), kind: "note", note: "refused", text, detail: d.why, failed: true, refused: d });
	},
	"thread.claimed": (t, e, d) => {
		if (d.term > 1 && t.startedAt && !t.over()) t.note(e, "resumed", "A server took the run up again", "");
	},
};

function completed(t: ThreadFold, e: RunEvent, d: EventData["model.completed"]): void {
	t.settle();
	t.step++;
	t.model = d.model || t.model;
	t.spend(d.usage, d.cost_usd);
	t.steps.push(stepOf(t, e, d));
	t.failures = 0;
	t.weigh();
	(d.message.blocks ?? []).forEach((b, n) => {
		const item = answered(t, e, d, b, n);
		if (item) t.put(item);
	});
}

function stepOf(t: ThreadFold, e: RunEvent, d: EventData["model.completed"]): StepFold {
	const blocks = d.message.blocks ?? [];
	const u = d.usage;
	return {
		step: t.step,
		seq: e.seq,
		at: e.at,
		tookMS: ms(d.took_ns),
		through: d.through,
		text: beginning(textOf(blocks)),
		calls: blocks.filter((b) => b.call).map((b) => b.call!.id),
		tokens: u.input + u.output + (u.cache_read ?? 0) + (u.cache_write ?? 0),
		costUSD: d.cost_usd ?? 0,
		failures: t.failures,
		rewound: false,
	};
}

/** answered is the item of a block of an answer. */
function answered(t: ThreadFold, e: RunEvent, d: EventData["model.completed"], b: Block, n: number): Item | null {
	const { blob } = d;
	if (b.call) return newCall(t.base(e, `c:${b.call.id}`), b.call.id, b.call.name, blob ? undefined : b.call.args, blob);
	const text = b.text ?? "";
	if (!text && !blob) return null;
	const { key, seq, at, step } = t.base(e, `e:${e.seq}.${n}`);
	if (b.kind === "text") return { kind: "text", key, seq, at, step, rewound: undefined, text, streaming: false, blob };
	if (b.kind !== "reasoning") return null;
	return { kind: "reasoning", key, seq, at, step, rewound: undefined, text, streaming: false, tookMS: ms(d.took_ns), blob };
}

function toolCompleted(t: ThreadFold, e: RunEvent, d: EventData["tool.completed"]): void {
	t.spend(d.usage, d.cost_usd);
	const item = t.callItem(d.call);
	if (!item) return;
	const before = d.todos && t.todos;
	if (d.todos && !d.failed) t.plan(item.seq, d.todos);
	t.put({
		...item,
		state: endOf(item, d.failed),
		endedSeq: e.seq,
		endedAt: e.at,
		tookMS: ms(d.took_ns),
		exit: d.exit,
		code: d.code ?? "",
		output: textOf(d.blocks),
		bytes: d.blob ? (d.bytes ?? 0) : 0,
		kept: d.blob ?? "",
		media: mediaOf(d.blocks),
		live: "",
		todos: d.todos,
		before,
		shownBlob: d.shown_blob,
	});
	t.weigh();
}

/** endOf is the state of a call with a result: a person may have decided it in the tool's place. */
function endOf(item: CallItem, failed: boolean | undefined): CallState {
	const decided = item.asked?.ask === "form" ? "" : item.asked?.decided?.decision;
	if (decided === "reject") return "rejected";
	if (decided === "respond") return "answered";
	return failed ? "failed" : "done";
}

/** RunFold is the fold of a run with the sub-agents beneath it. */
export class RunFold {
	readonly threads = new Map<string, ThreadFold>();

	constructor(readonly root: string) {
		this.thread(root);
	}

	thread(id: string): ThreadFold {
		let t = this.threads.get(id);
		if (!t) {
			t = new ThreadFold(id);
			this.threads.set(id, t);
		}
		return t;
	}

	/** adopt takes over live news of the fold that this one replaces. */
	adopt(old: RunFold): void {
		for (const [id, t] of old.threads) this.threads.get(id)?.adopt(t);
	}

	apply(thread: string, e: RunEvent): boolean {
		return this.thread(thread || this.root).apply(e);
	}

	news(l: Live, now: string): void {
		this.thread(l.thread || this.root).news(l, now);
	}

	/** children are the sub-agents that a thread started, in the order of their calls. */
	children(of: string): ThreadFold[] {
		return [...this.threads.values()].filter((t) => t.id.startsWith(`${of}/`) && !t.id.slice(of.length + 1).includes("/"));
	}

	/** waiting are all calls that a person has to decide, with their threads. */
	waiting(): { thread: ThreadFold; item: CallItem }[] {
		return [...this.threads.values()].flatMap((thread) => thread.waiting().map((item) => ({ thread, item })));
	}
}
