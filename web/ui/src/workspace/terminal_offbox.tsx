import { useMutation, useQueryClient } from "@tanstack/react-query";
import { post } from "../api/http";
import type { Sandbox } from "../api/types";
import { ProblemBox } from "../ui/problem";
import type { Off } from "./terminal_off";

/** OffBox says why there is nothing here, with what helps. */
export function OffBox({ sandbox, off }: { sandbox: string; off: Off }) {
	const client = useQueryClient();
	const act = useMutation({
		mutationFn: (verb: string) => post<Sandbox>(`/v1/sandboxes/${encodeURIComponent(sandbox)}/${verb}`),
		onSettled: () => client.invalidateQueries({ queryKey: ["sandboxes"] }),
	});
	return (
		<div role="status" className="flex flex-col items-start gap-2 p-3">
			<p>{off.text}</p>
			{off.verb && (
				<button type="button" className="button main" disabled={act.isPending} onClick={() => act.mutate(off.verb!)}>
					{act.isPending ? "Please wait" : off.word}
				</button>
			)}
			{act.isError && <ProblemBox of={act.error} />}
		</div>
	);
}
