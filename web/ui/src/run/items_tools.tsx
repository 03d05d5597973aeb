// What every row can show of itself: its events as they are in the log, and its text.

import { useEffect, useState } from "react";
import { Problem } from "../api/http";
import { visible } from "../ui/text";
import { useScene } from "./context";
import type { Item } from "./fold";

const rawMax = 64 << 10;

/** Tools are the buttons of an item. */
export function Tools({ item, thread }: { item: Item; thread: string }) {
	const { store, act } = useScene();
	const [raw, setRaw] = useState<string | null>(null);
	const [copied, setCopied] = useState("");
	const show = () => {
		const text = JSON.stringify(store.eventsOf(thread, item), null, 1);
		setRaw(text.length > rawMax ? `${text.slice(0, rawMax)}\n… ${text.length - rawMax} more characters` : text);
	};
	const write = () =>
		import("./actions")
			.then((m) => navigator.clipboard.writeText(m.markdownOf(item)))
			.then(
				() => setCopied("copied"),
				() => setCopied("the browser refused"),
			);
	if (item.key.startsWith("l:")) return null;
	return (
		<div className="mt-1 rounded">
			<div className="flex items-center gap-1">
				<button type="button" className="button" title="Copy as Markdown" onClick={() => void write()}>
					Copy
				</button>
				<button type="button" className="button" aria-expanded={raw !== null} onClick={() => (raw === null ? show() : setRaw(null))}>
					Raw
				</button>
				<button type="button" className="button" onClick={() => act(item, thread)}>
					Actions
				</button>
				<span role="status" className="text-quiet">
					{copied}
				</span>
			</div>
			{raw !== null && (
				// biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls needs the keys.
				<pre tabIndex={0} className="mt-1 max-h-96 overflow-auto whitespace-pre-wrap break-all rounded border border-line bg-sunken p-2">
					{visible(raw)}
				</pre>
			)}
		</div>
	);
}

/** useWhole loads an answer that is not in the log, once it is looked at. It returns what went wrong. */
export function useWhole(item: Item, thread: string): string | null {
	const { store } = useScene();
	const [problem, setProblem] = useState<string | null>(null);
	const blob = item.kind === "text" || item.kind === "reasoning" || item.kind === "call" ? (item.blob ?? "") : "";
	useEffect(() => {
		if (!blob) return;
		let gone = false;
		store.whole(thread, item.seq, blob).catch((err: unknown) => {
			if (!gone) setProblem(err instanceof Problem ? err.detail || err.title : String(err));
		});
		return () => {
			gone = true;
		};
	}, [blob, store, thread, item.seq]);
	return problem;
}
