import { plural } from "../ui/format";
import { clip, Safe } from "../ui/text";
import type { RunView } from "./store";

/** ApprovalCard names the calls that wait for a person. */
export function ApprovalCard({ view }: { view: RunView }) {
	const waiting = view.fold.waiting();
	if (!waiting.length) return null;
	return (
		<section aria-label="Approvals" className="border-warn border-t bg-warn-ground p-2">
			<p className="font-medium text-warn">{plural(waiting.length, "call needs", "calls need")} you</p>
			<ul>
				{waiting.map(({ thread, item }) => (
					<li key={`${thread.id} ${item.key}`} className="truncate">
						<Safe>{item.tool}</Safe> <code>{<Safe>{clip(JSON.stringify(item.args) ?? "", 200)}</Safe>}</code>
					</li>
				))}
			</ul>
		</section>
	);
}
