import { Check, CircleDashed, Clock, type LucideIcon, Square, X } from "lucide-react";
import { Safe } from "../ui/text";
import type { AppState } from "./preview_state";

const looks: Record<AppState["word"], [LucideIcon, string]> = {
	waiting: [Clock, "text-quiet"],
	starting: [CircleDashed, "text-accent"],
	ready: [Check, "text-good"],
	unready: [CircleDashed, "text-warn"],
	crashed: [X, "text-bad"],
	stopped: [Square, "text-quiet"],
};

/** AppWord says how an app is. */
export function AppWord({ of }: { of: AppState }) {
	const [Icon, colour] = looks[of.word];
	return (
		<span className={`inline-flex items-center gap-1 ${colour}`}>
			<Icon size={14} aria-hidden className="shrink-0" />
			<span className="break-words">
				<Safe>{of.text}</Safe>
			</span>
		</span>
	);
}
