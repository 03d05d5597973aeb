// States: a shape, a word and a colour, never the colour alone.

import { Ban, Check, Circle, CircleDot, Clock, Hand, type LucideIcon, Pause, Square, X } from "lucide-react";

const looks: Record<string, [string, LucideIcon, string]> = {
	pending: ["pending", Clock, "text-quiet"],
	running: ["running", CircleDot, "text-accent"],
	interrupted: ["needs you", Hand, "text-warn"],
	succeeded: ["succeeded", Check, "text-good"],
	failed: ["failed", X, "text-bad"],
	cancelled: ["cancelled", Ban, "text-quiet"],
	timed_out: ["timed out", Clock, "text-bad"],
	creating: ["creating", Clock, "text-quiet"],
	paused: ["paused", Pause, "text-pause"],
	stopped: ["stopped", Square, "text-quiet"],
	destroyed: ["destroyed", X, "text-quiet"],
	waiting: ["needs you", Hand, "text-warn"],
	streaming: ["writing", Circle, "text-accent"],
	done: ["done", Check, "text-good"],
	rejected: ["rejected", Ban, "text-bad"],
	answered: ["answered", Check, "text-good"],
};

/** State shows a state in a word, with its shape. */
export function State({ of, word }: { of: string; word?: string }) {
	const [name, Icon, colour] = looks[of] ?? [of.replaceAll("_", " "), Circle, "text-quiet"];
	return (
		<span className={`inline-flex items-center gap-1 whitespace-nowrap ${colour}`}>
			<Icon size={14} aria-hidden />
			{word ?? name}
		</span>
	);
}

const isolations: Record<string, string> = {
	microvm: "A virtual machine of its own, by the processor",
	"microvm-emulated": "A virtual machine of its own, whose processor is emulated",
	"user-kernel": "A kernel of its own in user space (gVisor)",
	container: "A container: it shares the host's kernel",
	none: "Nothing separates it from the host",
};

/** Isolation tells what really separates a machine from the host. */
export function Isolation({ of }: { of: string }) {
	return (
		<span title={isolations[of]} className={`rounded border border-line px-1 ${of === "none" ? "font-semibold text-bad" : "text-quiet"}`}>
			{of === "none" ? "no isolation" : of}
		</span>
	);
}
