// What can be done with a machine in the state that it is in, and why not.

import type { Info, Sandbox } from "../api/types";

export type Verb = "start" | "resume" | "pause" | "stop" | "snapshot" | "fork" | "extend" | "destroy";

export const titles: Record<Verb, string> = {
	start: "Start",
	resume: "Resume",
	pause: "Pause",
	stop: "Stop",
	snapshot: "Snapshot",
	fork: "Fork",
	extend: "Extend",
	destroy: "Destroy",
};

/** doing is the word for a machine with which it is under way. */
export const doing: Record<Verb, string> = {
	start: "starting",
	resume: "resuming",
	pause: "pausing",
	stop: "stopping",
	snapshot: "being saved",
	fork: "being forked",
	extend: "being extended",
	destroy: "being destroyed",
};

const legal: Record<Sandbox["state"], Verb[]> = {
	creating: ["destroy"],
	running: ["pause", "stop", "snapshot", "fork", "extend", "destroy"],
	paused: ["resume", "stop", "snapshot", "fork", "extend", "destroy"],
	stopped: ["start", "snapshot", "fork", "extend", "destroy"],
	failed: ["start", "snapshot", "fork", "extend", "destroy"],
	destroyed: [],
};

export interface Action {
	verb: Verb;
	/** why it cannot be done; "" = it can. */
	why: string;
}

/** can tells whether a provider can do something; one that is not known is asked anyway. */
export function can(info: Info | undefined, provider: string, what: string): boolean {
	const p = info?.providers?.find((x) => x.name === provider);
	return !p || (p.can ?? []).includes(what);
}

/** actions are those that are legal in the machine's state; those that its provider cannot do say why. */
export function actions(s: Sandbox, info: Info | undefined): Action[] {
	return (legal[s.state] ?? []).map((verb) => ({ verb, why: whyNot(s, info, verb) }));
}

function whyNot(s: Sandbox, info: Info | undefined, verb: Verb): string {
	if (verb === "pause" && !can(info, s.provider, "pause"))
		return `The provider ${s.provider} cannot pause. Stop it instead: its files are kept.`;
	return "";
}

/** noMemory says why a machine's memory cannot be saved; "" = it can. Its files always can. */
export function noMemory(s: Sandbox, info: Info | undefined, what: "snapshot" | "fork"): string {
	if (!can(info, s.provider, what)) return `The provider ${s.provider} cannot save memory here.`;
	if (s.state !== "running" && s.state !== "paused") return `It is ${s.state} and has no memory.`;
	return "";
}

/** shared are the actions that some of several machines can do now, with these machines. */
export function shared(list: Sandbox[], info: Info | undefined): [Verb, Sandbox[]][] {
	return (Object.keys(titles) as Verb[])
		.map((v): [Verb, Sandbox[]] => [v, list.filter((s) => actions(s, info).some((a) => a.verb === v && !a.why))])
		.filter(([, of]) => of.length > 0);
}

export const nameOf = (s: Sandbox) => s.name || s.id;

/** left is how long a machine still has, in words. */
export function left(s: Sandbox, now: number, words: (ms: number) => string): string {
	if (!s.expires_at) return "no end";
	const ms = Date.parse(s.expires_at) - now;
	return ms > 0 ? words(ms) : "over";
}

export const states: Sandbox["state"][] = ["running", "paused", "stopped", "failed", "creating"];

/** counted counts machines by state. */
export function counted(list: Sandbox[]): Record<string, number> {
	const n: Record<string, number> = {};
	for (const s of list) n[s.state] = (n[s.state] ?? 0) + 1;
	return n;
}

/** found tells whether a machine has a text in its names. */
export function found(s: Sandbox, text: string): boolean {
	const t = text.trim().toLowerCase();
	return !t || [s.id, s.name, s.template, s.provider, s.isolation, s.run].some((x) => x?.toLowerCase().includes(t));
}

/** why says what a machine waits for, or why it is as it is, where the state does not say that. */
export function why(s: Sandbox): string {
	return s.waiting || (s.reason && s.reason !== s.state ? s.reason : "");
}
