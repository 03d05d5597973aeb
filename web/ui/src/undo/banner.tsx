import { useQuery } from "@tanstack/react-query";
import { Check } from "lucide-react";
import { useContext, useState } from "react";
import { Link, useLocation } from "wouter";
import { get } from "../api/http";
import type { Schemas } from "../api/types";
import { SceneContext } from "../run/context";
import { addToDraft } from "../run/draft";
import { ProblemBox } from "../ui/problem";
import { Flat } from "../ui/text";
import { useParam } from "../ui/url";
import type { TalkDone } from "./dialog";
import { keyOf } from "./paths";
import { type Applied, askWayBack, type Plan, type Request } from "./store";
import { resultOf } from "./words";

/** Done is a way back that was applied. */
export interface Done {
	sandbox: string;
	request: Request;
	plan: Plan;
	applied: Applied;
	/** host: it went through the host, for the machine does not run. */
	host: boolean;
	/** run whose screen it is on; "" = none. */
	run: string;
	/** talk is what became of the conversation; undefined = there was none to take back. */
	talk?: TalkDone;
}

/** Banner says what became of each path, and offers the way back from it. */
export function Banner({ of, past, onClose, onTalk }: { of: Done; past: boolean; onClose(): void; onTalk(to: TalkDone): void }) {
	const [, setRev] = useParam("rev");
	const [, setFrom] = useParam("from");
	const [, setPane] = useParam("pane");
	const kept = (of.applied.files ?? []).filter((f) => f.result === "kept");
	const now = of.applied.revision;
	const run = /^\/runs\/(run_[a-z0-9]+)/.exec(useLocation()[0])?.[1]; // what was there before is the revision before: the way back made sure
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
					{resultOf(of.plan, of.applied)} {of.host && "It went through the host: the machine does not run. "}
					<Same of={of} />
				</p>
				{!past && (
					<button type="button" className="button" onClick={() => askWayBack(of.sandbox, again())}>
						{of.plan.do === "undo" ? "Redo" : "Undo this"}
					</button>
				)}
				{run && now.n > 1 ? (
					<Link href={`/runs/${run}/compare?a=${now.n - 1}&b=${now.n}`} className="button">
						Compare
					</Link>
				) : (
					<button type="button" className="button" onClick={compare}>
						Compare
					</button>
				)}
				<button type="button" className="button plain" onClick={onClose}>
					Close
				</button>
			</div>
			{of.talk && <TalkSaid of={of} talk={of.talk} past={past} onTalk={onTalk} />}
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

/** TalkSaid says what became of the conversation, and has its message. */
function TalkSaid({ of, talk, past, onTalk }: { of: Done; talk: TalkDone; past: boolean; onTalk(to: TalkDone): void }) {
	const [put, setPut] = useState(talk.done && talk.cut.prompt !== "");
	const store = useContext(SceneContext)?.store;
	const again = async () => {
		if (!store) return;
		const to = await import("./dialog").then((m) => m.takeBack(store, talk.cut));
		if (to.done) addToDraft(of.run, talk.cut.prompt);
		setPut(to.done && talk.cut.prompt !== "");
		onTalk(to);
	};
	const putBack = () => {
		addToDraft(of.run, talk.cut.prompt);
		setPut(true);
	};
	return (
		<div className="flex flex-wrap items-center gap-2" data-talk={talk.done ? "back" : "stays"}>
			<span role="status" className="min-w-0 flex-1 basis-48">
				{talk.done
					? `The conversation was taken back to event ${talk.cut.to}, before step ${talk.cut.step}.`
					: talk.problem
						? "The files were taken back, but the conversation was not."
						: "The conversation stays as it is."}
				{put && " Its message stands in the composer again."}
			</span>
			{talk.problem !== undefined && !talk.done && <ProblemBox of={talk.problem} again={() => void again()} />}
			{!put && !past && talk.cut.prompt && (
				<button type="button" className="button" onClick={putBack}>
					Put the message back
				</button>
			)}
		</div>
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
