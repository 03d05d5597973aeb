// What is said about approvals and decisions.

import type { Approval, Schemas } from "../api/types";

export type Decide = Schemas["Decide"];
export type Verb = Decide["decision"];
export type AskKind = "" | NonNullable<Approval["ask"]>;

interface Words {
	title: string;
	/** after stands behind the tool. */
	after: string;
	approve: string;
	edit: string;
	reject: string;
	respond: string;
	dismiss: string;
	/** why and say label the texts of reject and respond. */
	why: string;
	say: string;
}

const calls: Words = {
	title: "wants to call",
	after: "",
	approve: "Approve",
	edit: "Edit",
	reject: "Reject",
	respond: "Respond",
	dismiss: "Dismiss",
	why: "Why not? The agent reads it. It may be left empty.",
	say: "The call does not run. The agent reads this in place of its result:",
};

const kinds: Record<AskKind, Words> = {
	"": calls,
	question: {
		...calls,
		title: "asks you",
		respond: "Answer",
		reject: "Give no answer",
		why: "Why is there no answer? The agent reads it. It may be left empty.",
		say: "Your answer:",
	},
	plan: {
		...calls,
		title: "wants to go to work by this plan",
		approve: "Accept the plan",
		edit: "Change the plan",
		reject: "Reject the plan",
		why: "What should be different? The agent reads it. It may be left empty.",
	},
	form: {
		...calls,
		title: "runs",
		after: ", which asks you",
		respond: "Fill in",
		reject: "Refuse",
		dismiss: "Dismiss",
		why: "Why not?",
		say: "Your answer:",
	},
};

export const wordsOf = (ask: AskKind): Words => kinds[ask] ?? calls;

const done: Record<string, string> = {
	approve: "approved",
	edit: "approved with changes",
	reject: "rejected",
	respond: "answered",
	dismiss: "dismissed",
};

/** decidedWords says who decided what: "ana approved", "rejected: no decision came in time". */
export function decidedWords(d: { decision: string; by: string; by_name?: string }): string {
	const word = done[d.decision] ?? d.decision;
	if (d.by === "expiry") return `${word}: no decision came in time`;
	if (d.by === "replay") return `${word} in the recorded run`;
	if (d.by === "skete") return `${word} by the server`;
	if (d.by.startsWith("skill ")) return `${word} beforehand by ${d.by}`;
	return `${d.by_name || d.by || "A person"} ${word}`;
}

/** left is the time until an approval expires, "" = it is over. */
export function left(expires: string, now: number): string {
	const s = Math.ceil((Date.parse(expires) - now) / 1000);
	if (!(s > 0)) return "";
	if (s < 60) return `${s} s`;
	if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
	const h = Math.floor(s / 3600);
	return h < 48 ? `${h} h ${Math.floor((s % 3600) / 60)} min` : `${Math.floor(h / 24)} days`;
}
