import { useRef, useState } from "react";
import { useLocation } from "wouter";
import { call, key as newKey } from "../api/http";
import type { Schemas } from "../api/types";
import { useLive } from "../live";
import { ProblemBox } from "../ui/problem";
import { useDraft } from "./draft";
import type { RunView } from "./store";

/** Composer sends a message to the run, or to a new run on its thread when it is over. While the
 * connection is lost it keeps the text and sends nothing. */
export function Composer({ view, past }: { view: RunView; past: boolean }) {
	const idempotent = useRef("");
	const [text, setText] = useDraft(view.run.id);
	const [problem, setProblem] = useState<unknown>(null);
	const [busy, setBusy] = useState(false);
	const lost = useLive().state === "lost";
	const over = view.fold.thread(view.run.thread).over();
	const [, go] = useLocation();
	const off = past ? "You look at the past: go back to live to write" : lost ? "The connection is lost: nothing is sent" : "";
	// A text that was changed, here or from another part of the page, is another message.
	const keyed = useRef(text);
	if (keyed.current !== text) {
		keyed.current = text;
		idempotent.current = "";
	}
	const send = async () => {
		if (!text.trim() || busy || off) return;
		setBusy(true);
		setProblem(null);
		try {
			idempotent.current ||= newKey();
			const headers = { "Idempotency-Key": idempotent.current };
			const sent = await call<Schemas["Sent"]>(`/v1/runs/${encodeURIComponent(view.run.id)}/send`, {
				method: "POST",
				body: { text },
				headers,
			});
			setText("");
			if (sent.run !== view.run.id) go(`/runs/${sent.run}`);
		} catch (err) {
			setProblem(err);
		}
		setBusy(false);
	};
	return (
		<form
			className="flex flex-col gap-2 border-line border-t p-2"
			onSubmit={(e) => {
				e.preventDefault();
				void send();
			}}
		>
			{problem !== null && <ProblemBox of={problem} />}
			<div className="flex items-end gap-2">
				<textarea
					aria-label="Message to the agent"
					rows={2}
					value={text}
					onChange={(e) => setText(e.target.value)}
					onKeyDown={(e) => {
						if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) void send();
					}}
					placeholder={off || (over ? "Message to the agent: a new run goes on from here" : "Message to the agent (Ctrl Enter sends)")}
					className="field min-w-0 flex-1 resize-y"
				/>
				<button type="submit" className="button main" disabled={!text.trim() || busy || !!off} title={off || undefined}>
					{busy ? "Sending" : "Send"}
				</button>
			</div>
		</form>
	);
}
