import { useState } from "react";
import { post } from "../api/http";
import { useLive } from "../live";
import { ProblemBox } from "../ui/problem";
import type { RunView } from "./store";

/** Composer sends a message to the run, or to a new run on its thread when it is over. While the
 * connection is lost it keeps the text and sends nothing. */
export function Composer({ view }: { view: RunView }) {
	const key = `skete.draft.${view.run.id}`;
	const [text, setText] = useState(() => sessionStorage.getItem(key) ?? "");
	const [problem, setProblem] = useState<unknown>(null);
	const [busy, setBusy] = useState(false);
	const lost = useLive().state === "lost";
	const write = (t: string) => {
		setText(t);
		sessionStorage.setItem(key, t);
	};
	const send = async () => {
		if (!text.trim() || busy || lost) return;
		setBusy(true);
		setProblem(null);
		try {
			await post(`/v1/runs/${view.run.id}/send`, { text });
			write("");
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
					onChange={(e) => write(e.target.value)}
					onKeyDown={(e) => {
						if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) void send();
					}}
					placeholder="Message to the agent"
					className="field min-w-0 flex-1 resize-y"
				/>
				<button
					type="submit"
					className="button main"
					disabled={!text.trim() || busy || lost}
					title={lost ? "The connection is lost" : undefined}
				>
					Send
				</button>
			</div>
		</form>
	);
}
