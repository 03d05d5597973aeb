// What of a conversation belongs to files that are taken back: the step in which they began to
// change, and the message that asked for it.

import type { Schemas } from "../api/types";
import type { ThreadFold } from "../run/fold";
import type { Plan, Request } from "./store";

/** Cut is where a conversation is taken back to. */
export interface Cut {
	/** to is the last event that stays. */
	to: number;
	/** step is the first one that goes. */
	step: number;
	/** prompt is the message that asked for it; "" = it is in the middle of a turn. */
	prompt: string;
}

type Revision = Schemas["Revision"];

/** rootCall is the call of a run's own thread in which a revision was made. */
function rootCall(r: Revision, root: string): string {
	if (!r.call || r.actor === "outside") return "";
	if (r.thread === root) return r.call;
	return r.thread?.startsWith(`${root}/`) ? r.thread.slice(root.length + 1).split("/")[0]! : "";
}

/** wholeWay: all files go back to what they were; only then is there a moment of the conversation for it. */
export const wholeWay = (r: Request) => (r.do === "undo" || r.do === "restore") && !r.path && !r.path_bytes;

/** cutOf is where the conversation stood at the revision that a plan goes to; null = what is taken back is not
 * of this conversation, or its events are not loaded. */
export function cutOf(t: ThreadFold, run: string, revs: readonly Revision[], plan: Plan): Cut | null {
	let first = 0;
	let step = 0;
	for (const r of revs) {
		if (r.n <= plan.n || r.run !== run) continue;
		const item = t.callItem(rootCall(r, t.id));
		if (!item || item.rewound || (first && item.seq >= first)) continue;
		first = item.seq;
		step = item.step;
	}
	if (!first) return null;
	const words: string[] = [];
	let to = first - 1;
	for (let i = t.items.length - 1; i >= 0; i--) {
		const item = t.items[i]!;
		if (item.seq >= first || item.rewound) continue;
		if (item.kind === "text" || item.kind === "reasoning" || item.kind === "call") break;
		if (item.kind !== "input") continue;
		to = item.seq - 1;
		if (item.from === "user" && item.text) words.unshift(item.text);
	}
	return to > 0 ? { to, step, prompt: words.join("\n\n") } : null;
}
