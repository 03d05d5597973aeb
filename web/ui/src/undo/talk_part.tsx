// What a way back says beyond its paths: of the conversation, and of what runs in the machine.

import { useQuery } from "@tanstack/react-query";
import { get, look } from "../api/http";
import { useSandbox } from "../api/queries";
import type { Schemas } from "../api/types";
import type { Scene } from "../run/context";
import { clip, visible } from "../ui/text";
import type { Plan, Request } from "./store";
import { type Cut, cutOf, wholeWay } from "./talk";

/** useCut is where the conversation would be taken back to. */
export function useCut(sandbox: string, scene: Scene | null, request: Request, plan: Plan | undefined): Cut | null {
	const run = scene?.store.id ?? "";
	const wanted = !!run && !!plan && plan.total > 0 && wholeWay(request);
	const revs = useQuery({
		queryKey: ["history", sandbox, "of", run, plan?.id],
		queryFn: ({ signal }) =>
			get<Schemas["RevisionPage"]>(
				`/v1/sandboxes/${encodeURIComponent(sandbox)}/history?run=${encodeURIComponent(run)}&page_size=1000`,
				signal,
			),
		enabled: wanted,
		gcTime: 0,
	});
	const thread = scene?.store.snapshot()?.fold.thread(scene.root);
	return wanted && thread && revs.data ? cutOf(thread, run, revs.data.items ?? [], plan) : null;
}

interface TalkProps {
	cut: Cut;
	/** over: the run is; while it goes on its conversation is not cut. */
	over: boolean;
	too: boolean;
	onToo(too: boolean): void;
	onFork(at: number): void;
}

/** Talk asks whether the conversation is taken back too. */
export function Talk({ cut, over, too, onToo, onFork }: TalkProps) {
	return (
		<div className="flex flex-col gap-1">
			<label className="flex min-h-6 items-center gap-2">
				<input
					type="checkbox"
					checked={too && over}
					disabled={!over}
					aria-describedby="talk-why"
					onChange={(e) => onToo(e.target.checked)}
				/>
				Conversation too
			</label>
			<p id="talk-why" className="text-quiet">
				{over
					? `Off: the agent goes on knowing what it did, though its files are gone. On: its conversation ends before step ${cut.step}; the log keeps all of it.`
					: "The conversation stays while the run goes on: what a model is answering is not cut. Stop the run first, or fork it: a fork begins without what came later."}{" "}
				<button type="button" className="button" onClick={() => onFork(cut.to)}>
					Fork from event {cut.to}
				</button>
			</p>
		</div>
	);
}

const servicesMax = 8;

/** Running says what goes on in the machine while files are taken back. */
export function Running({ sandbox, going }: { sandbox: string; going: boolean }) {
	const runs = useSandbox(sandbox).data?.state === "running";
	const services = useQuery({
		queryKey: ["sandboxes", sandbox, "services"],
		queryFn: ({ signal }) => look<{ items: Schemas["Service"][] | null }>(`/v1/sandboxes/${encodeURIComponent(sandbox)}/services`, signal),
		enabled: runs,
		retry: false,
	});
	const names = (services.data?.items ?? [])
		.filter((s) => s.state !== "stopped" && s.state !== "failed")
		.map((s) => visible(clip(s.name, 60)));
	if (!going && !names.length) return null;
	return (
		<ul aria-label="What runs meanwhile" className="list-disc pl-5">
			{going && (
				<li>The run is under way and is not stopped by this. Commands in the machine are held while the files change, and go on then.</li>
			)}
			{names.length > 0 && (
				<li>
					{names.length === 1 ? "The service" : "Of the services"} {names.slice(0, servicesMax).join(", ")}
					{names.length > servicesMax && ` and ${names.length - servicesMax} more`}
					{names.length === 1 ? " is started again if it has" : ", those are started again that have"} a replaced file open or another
					configuration then.
				</li>
			)}
		</ul>
	);
}
