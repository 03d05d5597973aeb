// How the nodes of a workflow are, in a word and a shape.

import { Ban, Check, Circle, CircleDashed, CircleDot, Clock, Hand, type LucideIcon, SkipForward, X } from "lucide-react";

const looks: Record<string, [string, LucideIcon, string]> = {
	"": ["", Circle, "text-quiet"],
	pending: ["pending", CircleDashed, "text-quiet"],
	running: ["running", CircleDot, "text-accent"],
	waiting: ["needs you", Hand, "text-warn"],
	succeeded: ["succeeded", Check, "text-good"],
	failed: ["failed", X, "text-bad"],
	cancelled: ["cancelled", Ban, "text-quiet"],
	timed_out: ["timed out", Clock, "text-bad"],
	skipped: ["skipped", SkipForward, "text-quiet"],
	"not reached": ["not reached", CircleDashed, "text-quiet"],
};

export interface Look {
	word: string;
	Icon: LucideIcon;
	colour: string;
}

export function lookOf(state: string): Look {
	const [word, Icon, colour] = looks[state] ?? [state.replaceAll("_", " "), Circle, "text-quiet"];
	return { word, Icon, colour };
}

/** NodeState shows the state of a node. */
export function NodeState({ of }: { of: string }) {
	const { word, Icon, colour } = lookOf(of);
	if (!word) return null;
	return (
		<span className={`inline-flex items-center gap-1 whitespace-nowrap ${colour}`}>
			<Icon size={14} aria-hidden />
			{word}
		</span>
	);
}
