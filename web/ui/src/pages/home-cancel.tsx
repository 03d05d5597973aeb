import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { post } from "../api/http";
import type { Run } from "../api/types";
import { Dialog } from "../ui/dialog";
import { plural } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { clip, Safe } from "../ui/text";

/** CancelDialog asks before a run is ended from the table. */
export function CancelDialog({ run, onClose }: { run: Run; onClose(): void }) {
	const [problem, setProblem] = useState<unknown>(null);
	const [busy, setBusy] = useState(false);
	const client = useQueryClient();
	const end = async () => {
		setBusy(true);
		setProblem(null);
		try {
			await post(`/v1/runs/${run.id}/cancel`);
			void client.invalidateQueries({ queryKey: ["runs"] });
			onClose();
		} catch (err) {
			setProblem(err);
			setBusy(false);
		}
	};
	return (
		<Dialog
			open
			onClose={onClose}
			title="Cancel this run?"
			text={
				<>
					<strong>
						<Safe>{clip(run.title || run.id, 200)}</Safe>
					</strong>{" "}
					ends after {plural(run.steps, "step")}. What it changed stays, and can be taken back.
				</>
			}
		>
			{problem !== null && <ProblemBox of={problem} />}
			<div className="flex justify-end gap-2">
				<button type="button" className="button" data-first onClick={onClose}>
					Keep it running
				</button>
				<button type="button" className="button danger" disabled={busy} onClick={() => void end()}>
					Cancel the run
				</button>
			</div>
		</Dialog>
	);
}
