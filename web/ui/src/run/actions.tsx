// What can be done from an item of the timeline: ways back to before its step, a fork, a look at its
// moment. Each of them asks before it does something.

import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { get, Problem } from "../api/http";
import type { Schemas } from "../api/types";
import { Dialog } from "../ui/dialog";
import { plural } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { askWayBack, type Request } from "../undo/store";
import { changeOf } from "./diff";
import type { Item } from "./fold";
import { momentsOf, type Stop } from "./track";

type Revision = Schemas["Revision"];

/** Of is an item, and where it is. */
export interface Of {
	item: Item;
	thread: string;
	/** run whose thread it is. */
	run: string;
	machine: string;
	/** revert: to take back its step alone is asked for already. */
	revert?: boolean;
}

/** undoTo takes back all that was changed since an item's step began. */
export const undoTo = (of: Of): Request => ({ do: "undo", scope: "step", thread: of.thread, run: of.run, step: of.item.step });

/** madeIn are the revisions of an item's step, the newest first. */
export const madeIn = (revs: readonly Revision[], of: Of) =>
	revs.filter((r) => r.run === of.run && r.thread === of.thread && r.step === of.item.step && !!r.call && r.actor !== "outside");

export function revisionsOf(client: QueryClient, machine: string, run = ""): Promise<Revision[]> {
	const of = run && `&run=${encodeURIComponent(run)}`;
	return client
		.fetchQuery({
			queryKey: ["history", machine, "all", run],
			queryFn: () => get<Schemas["RevisionPage"]>(`/v1/sandboxes/${encodeURIComponent(machine)}/history?page_size=1000${of}`),
		})
		.then((p) => p.items ?? []);
}

/** restoreAt asks for the files as they were at an event. */
export async function restoreAt(client: QueryClient, machine: string, stops: readonly Stop[], at: number): Promise<Request> {
	const moments = machine ? momentsOf(stops, await revisionsOf(client, machine)) : [];
	const n = moments.filter((m) => m.seq <= at).at(-1)?.n;
	if (!n)
		throw new Problem(0, "No revision of the files had been made at this moment", "", "Choose a later one, or a revision in Changes.", "");
	return { do: "restore", n };
}

/** whyNot says why there is no way back from an item; "" = there is one. */
export function whyNot(of: Of, past: boolean): string {
	if (past) return "You look at the past: go back to live first.";
	if (!of.machine) return "The run has no machine.";
	return of.item.step < 1 ? "This is before the first step." : "";
}

interface Props {
	of: Of | null;
	/** root: the thread is the run's own, whose events are moments of it. */
	root: boolean;
	past: boolean;
	onFork(at: number): void;
	onLook(at: number): void;
	onFile(path: string): void;
	onRevisions(): void;
	onClose(): void;
}

/** Actions lists what can be done from an item. */
export function Actions(p: Props) {
	const { of, onClose } = p;
	const client = useQueryClient();
	const [said, setSaid] = useState("");
	const [problem, setProblem] = useState<unknown>(null);
	const close = () => {
		setSaid("");
		setProblem(null);
		onClose();
	};
	const end = of && (of.item.kind === "call" && of.item.endedSeq ? of.item.endedSeq : of.item.seq);
	const path = of?.item.kind === "call" ? (changeOf(of.item.tool, of.item.args)?.path ?? "") : "";
	const off = of ? whyNot(of, p.past) : "";
	const then = (what: () => void) => () => {
		close();
		what();
	};
	const copy = async () => {
		try {
			await navigator.clipboard.writeText(markdownOf(of!.item));
			setSaid("Copied.");
		} catch {
			setSaid("The browser refused to copy.");
		}
	};
	const revert = async () => {
		setProblem(null);
		try {
			const made = madeIn(await revisionsOf(client, of!.machine, of!.run), of!);
			if (made.length === 1) then(() => askWayBack(of!.machine, { do: "revert", n: made[0]!.n }))();
			else
				setSaid(
					made.length
						? `The step made ${plural(made.length, "revision")}: revert them one by one, in Changes.`
						: "The step changed no file.",
				);
		} catch (err) {
			setProblem(err);
		}
	};
	const asked = of?.revert && !off && `${of.thread} ${of.item.key}`;
	// biome-ignore lint/correctness/useExhaustiveDependencies: it is asked once for each item.
	useEffect(() => {
		if (asked) void revert();
	}, [asked]);
	return (
		<Dialog
			title={of ? `Event ${of.item.seq}, step ${of.item.step}` : ""}
			text="Nothing is done before you have seen what it would do."
			open={of !== null}
			onClose={close}
		>
			{of && end !== null && (
				<div className="flex flex-col items-stretch gap-1">
					<button type="button" className="button" data-first disabled={!p.root} onClick={then(() => p.onLook(end))}>
						Look at this moment
					</button>
					{path && (
						<button type="button" className="button" onClick={then(() => p.onFile(path))}>
							Open its file in Changes
						</button>
					)}
					<button type="button" className="button" disabled={!p.root} onClick={then(() => p.onFork(end))}>
						Fork from here
					</button>
					<button
						type="button"
						className="button"
						disabled={!!off}
						title={off || undefined}
						onClick={then(() => askWayBack(of.machine, undoTo(of)))}
					>
						Undo to before step {of.item.step}
					</button>
					<button type="button" className="button" disabled={!!off} title={off || undefined} onClick={() => void revert()}>
						Revert only step {of.item.step}, keep what came later
					</button>
					<button type="button" className="button" onClick={() => void copy()}>
						Copy as Markdown
					</button>
					{off && <p className="text-quiet">{off}</p>}
					<p role="status" className="text-warn">
						{said}{" "}
						{said.includes("one by one") && (
							<button type="button" className="button" onClick={then(p.onRevisions)}>
								Open Changes
							</button>
						)}
					</p>
					{problem !== null && <ProblemBox of={problem} />}
				</div>
			)}
		</Dialog>
	);
}

const fence = (text: string) => {
	const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((m) => m.length));
	const mark = "`".repeat(longest + 1);
	return `${mark}\n${text.replace(/\n$/, "")}\n${mark}`;
};

/** markdownOf is an item as Markdown. */
export function markdownOf(i: Item): string {
	switch (i.kind) {
		case "text":
			return i.text;
		case "input":
			return `**${i.from}:**\n\n${i.text}`;
		case "reasoning":
			return i.text.replace(/^/gm, "> ");
		case "call": {
			const args = i.args as Record<string, unknown> | null | undefined;
			const command = i.tool === "execute" && typeof args?.command === "string" ? `$ ${args.command}` : "";
			const about = command || (i.args === undefined ? i.argsText : JSON.stringify(i.args, null, 1));
			return [`**${i.tool}**${i.exit === undefined ? "" : `, exit ${i.exit}`}`, fence(about), i.output && fence(i.output)]
				.filter(Boolean)
				.join("\n\n");
		}
		case "note":
			return i.detail ? `${i.text}\n\n${fence(i.detail)}` : i.text;
		case "failure":
			return `**error:** ${i.text || i.trouble}`;
		case "end":
			return `**${i.state}**\n\n${i.text || i.reason}`;
	}
}
