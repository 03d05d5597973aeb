import { useQuery } from "@tanstack/react-query";
import { Check } from "lucide-react";
import { get } from "../api/http";
import type { Schemas } from "../api/types";
import { Flat } from "../ui/text";
import { useParam } from "../ui/url";
import { keyOf } from "./paths";
import { type Applied, askWayBack, type Plan, type Request } from "./store";
import { resultOf } from "./words";

/** Done is a way back that was applied. */
export interface Done {
	sandbox: string;
	request: Request;
	plan: Plan;
	applied: Applied;
}

/** Banner says what became of each path, and offers the way back from it. */
export function Banner({ of, past, onClose }: { of: Done; past: boolean; onClose(): void }) {
	const [, setRev] = useParam("rev");
	const [, setFrom] = useParam("from");
	const [, setPane] = useParam("pane");
	const kept = (of.applied.files ?? []).filter((f) => f.result === "kept");
	const now = of.applied.revision;
	const again = (): Request =>
		of.plan.do === "undo" ? { do: "redo" } : of.plan.do === "redo" ? { do: "undo", scope: "last" } : { do: "undo", scope: "last" };
	const compare = () => {
		setPane("");
		setFrom("");
		setRev(String(now.n));
	};
	return (
		<section
			aria-label="What was done"
			className="flex max-h-[40%] shrink-0 flex-col gap-1 overflow-auto border-line border-b bg-good-ground px-3 py-2"
		>
			<div className="flex flex-wrap items-center gap-2">
				<p role="status" className="min-w-0 flex-1 basis-48" data-done={of.plan.do}>
					<Check size={14} aria-hidden className="mr-1 inline text-good" />
					{resultOf(of.plan, of.applied)} <Same of={of} />
				</p>
				{!past && (
					<button type="button" className="button" onClick={() => askWayBack(of.sandbox, again())}>
						{of.plan.do === "undo" ? "Redo" : "Undo this"}
					</button>
				)}
				<button type="button" className="button" onClick={compare}>
					Compare
				</button>
				<button type="button" className="button plain" onClick={onClose}>
					Close
				</button>
			</div>
			{kept.length > 0 && (
				<div>
					Kept as they are: they hold what the history does not have, or were changed meanwhile.
					<ul className="list-disc pl-5">
						{kept.slice(0, 100).map((f) => (
							<li key={keyOf(f)}>
								<bdi className="font-mono [overflow-wrap:anywhere]">
									<Flat>{f.path}</Flat>
								</bdi>
							</li>
						))}
					</ul>
					{kept.length > 100 && `and ${kept.length - 100} more`}
				</div>
			)}
		</section>
	);
}

/** Same compares the tree that is there now with the one that was wanted, by their hashes. */
function Same({ of }: { of: Done }) {
	const whole = of.plan.do !== "revert" && !of.request.path && !of.request.path_bytes;
	const wanted = useQuery({
		queryKey: ["revision", of.sandbox, of.plan.n],
		queryFn: () => get<Schemas["RevisionChanges"]>(`/v1/sandboxes/${encodeURIComponent(of.sandbox)}/history/${of.plan.n}`),
		enabled: whole && of.plan.n > 0,
		staleTime: Number.POSITIVE_INFINITY,
	});
	if (!wanted.data) return null;
	const same = wanted.data.root === of.applied.revision.root;
	return (
		<span data-same={same}>
			{same
				? `The files are exactly those of #${of.plan.n} (tree ${wanted.data.root.slice(0, 12)}).`
				: `The files are not all those of #${of.plan.n}: some stayed as they are.`}
		</span>
	);
}
