import { useRef, useState } from "react";
import { useLocation } from "wouter";
import { call, key } from "../api/http";
import type { Run } from "../api/types";
import { Dialog } from "../ui/dialog";
import { ProblemBox } from "../ui/problem";

/** Fork starts a run that has the conversation and the files as they were at an event. at = 0: closed. */
export function Fork({ run, at, onClose }: { run: string; at: number; onClose(): void }) {
	const [task, setTask] = useState("");
	const [busy, setBusy] = useState(false);
	const [problem, setProblem] = useState<unknown>(null);
	const idempotent = useRef("");
	const [, go] = useLocation();
	const close = () => {
		setProblem(null);
		onClose();
	};
	const fork = async () => {
		if (busy) return;
		setBusy(true);
		setProblem(null);
		idempotent.current ||= key();
		try {
			const body = { at, task: task.trim() || undefined };
			const made = await call<Run>(`/v1/runs/${encodeURIComponent(run)}/fork`, {
				method: "POST",
				body,
				headers: { "Idempotency-Key": idempotent.current },
			});
			idempotent.current = "";
			onClose();
			go(`/runs/${made.id}`);
		} catch (err) {
			setProblem(err);
		}
		setBusy(false);
	};
	return (
		<Dialog
			title={`Fork from event ${at}`}
			text="A new run gets the conversation up to there, in a machine of its own. This run stays as it is, and the fork's page compares the two."
			open={at > 0}
			onClose={close}
		>
			<form
				className="flex flex-col gap-2"
				onSubmit={(e) => {
					e.preventDefault();
					void fork();
				}}
			>
				<label className="flex flex-col gap-1">
					What to do there (empty: go on)
					<textarea
						rows={3}
						className="field"
						value={task}
						onChange={(e) => {
							setTask(e.target.value);
							idempotent.current = "";
						}}
					/>
				</label>
				{problem !== null && <ProblemBox of={problem} />}
				<div className="flex justify-end gap-2">
					<button type="button" className="button" data-first onClick={close}>
						Keep
					</button>
					<button type="submit" className="button main" disabled={busy}>
						{busy ? "Forking" : "Fork"}
					</button>
				</div>
			</form>
		</Dialog>
	);
}
