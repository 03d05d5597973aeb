import { Ban, Check } from "lucide-react";
import type { CallItem } from "../run/fold";
import { clock } from "../ui/format";
import { visible } from "../ui/text";
import { changes } from "./args";
import { Changes, Whole } from "./fields";
import { type AskKind, decidedWords, wordsOf } from "./words";

/** Decision shows what was decided about a call, by whom, and what an edit changed. Nothing while it waits. */
export function Decision({ item }: { item: CallItem }) {
	const of = item.asked;
	const d = of?.decided;
	if (!of || !d) return null;
	const no = d.decision === "reject" || d.decision === "dismiss";
	const Icon = no ? Ban : Check;
	const edited = d.decision === "edit" ? changes(of.args, d.args) : [];
	const words = wordsOf(of.ask as AskKind);
	return (
		<section aria-label="Decision" data-decision={d.decision} className="flex min-w-0 flex-col gap-1 border-line border-l-2 pl-2">
			<span className={`flex flex-wrap items-center gap-1 ${no ? "text-bad" : "text-good"}`}>
				<Icon size={14} aria-hidden />
				{visible(decidedWords(d))}
				<time dateTime={d.at} className="text-quiet">
					{clock(d.at)}
				</time>
			</span>
			{of.reason && <span className="break-words text-quiet">Asked because: {visible(of.reason)}</span>}
			{d.text && <Whole name={d.decision === "respond" ? words.respond : "Reason"}>{d.text}</Whole>}
			{edited.length > 0 && <Changes of={edited} />}
		</section>
	);
}
