// A run that was forked says what from, and shows the end of the conversation that it took over.

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { get, query } from "../api/http";
import type { Page } from "../api/queries";
import type { Run, RunEvent, RunEventPage } from "../api/types";
import { plural } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { clip, Safe } from "../ui/text";
import { type Item, ThreadFold } from "./fold";

const eventsMax = 500;

/** runAt is the run of a thread that an event is of: the last one that began before it. */
export function runAt(runs: readonly Run[], seq: number): Run | undefined {
	return runs.filter((r) => r.first_seq <= seq).reduce<Run | undefined>((a, b) => (a && a.first_seq > b.first_seq ? a : b), undefined);
}

/** lineOf is an item in one line: who, and what. */
export function lineOf(i: Item): [string, string] | null {
	switch (i.kind) {
		case "input":
			return [i.from, i.text];
		case "text":
			return ["agent", i.text];
		case "call": {
			const args = i.args as Record<string, unknown> | null | undefined;
			const about = args?.command ?? args?.file_path ?? args?.path ?? "";
			return [i.tool, typeof about === "string" ? about : ""];
		}
		case "note":
			return i.note === "compacted" ? ["summary", i.detail || i.text] : null;
		case "end":
			return ["end", i.reason || i.state];
		default:
			return null;
	}
}

/** itemsOf are the items of events up to one, without what was taken back. */
export function itemsOf(thread: string, events: readonly RunEvent[]): Item[] {
	const t = new ThreadFold(thread);
	for (const e of events) t.apply(e);
	return t.items.filter((i) => !i.rewound);
}

/** Origin is nothing for a run that is no fork. */
export function Origin({ run }: { run: Run }) {
	if (!run.fork) return null;
	return <From thread={run.fork.thread} seq={run.fork.seq} />;
}

function From({ thread, seq }: { thread: string; seq: number }) {
	const [open, setOpen] = useState(false);
	const runs = useQuery({
		queryKey: ["runs", { thread }],
		queryFn: ({ signal }) => get<Page<Run>>(`/v1/runs${query({ thread, page_size: 1000 })}`, signal),
	});
	const origin = runAt(runs.data?.items ?? [], seq);
	return (
		<section aria-label="Where it was forked from" className="flex max-h-[40%] shrink-0 flex-col border-line border-b bg-raised">
			<div className="flex min-h-8 flex-wrap items-center gap-2 px-3 py-1">
				<span className="min-w-0 flex-1 basis-48">
					Forked{" "}
					{origin ? (
						<>
							from{" "}
							<Link href={`/runs/${encodeURIComponent(origin.id)}?at=${seq}`} className="underline underline-offset-2">
								<Safe>{clip(origin.title || origin.id, 120)}</Safe>
							</Link>{" "}
						</>
					) : (
						runs.isSuccess && "from a run that is gone, or is not yours, "
					)}
					at event {seq}. Its conversation goes on here.
				</span>
				{origin && (
					<button type="button" className="button" aria-expanded={open} onClick={() => setOpen(!open)}>
						{open ? "Hide" : "Show"} what it took over
					</button>
				)}
			</div>
			{open && origin && <TakenOver origin={origin} seq={seq} />}
		</section>
	);
}

function TakenOver({ origin, seq }: { origin: Run; seq: number }) {
	const page = useQuery({
		queryKey: ["taken over", origin.id, seq],
		queryFn: ({ signal }) =>
			get<RunEventPage>(`/v1/runs/${encodeURIComponent(origin.id)}/events${query({ last: eventsMax, before: seq + 1 })}`, signal),
		staleTime: Number.POSITIVE_INFINITY,
	});
	if (page.isError)
		return (
			<div className="p-2">
				<ProblemBox of={page.error} again={() => void page.refetch()} />
			</div>
		);
	if (!page.data) return <p className="px-3 pb-2 text-quiet">Asking for it…</p>;
	const lines = itemsOf(origin.thread, page.data.items ?? []).flatMap((i) => {
		const line = lineOf(i);
		return line ? [{ key: i.key, who: line[0], what: line[1] }] : [];
	});
	const before = (page.data.before ?? 1) - origin.first_seq;
	return (
		// biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls needs the keys.
		<div tabIndex={0} className="min-h-0 overflow-auto px-3 pb-2">
			{before > 0 && <p className="text-quiet">{plural(before, "event")} before these: they are on the page of that run.</p>}
			<ol aria-label="What it took over">
				{lines.map((l) => (
					<li key={l.key} className="flex min-h-6 gap-2">
						<span className="w-24 shrink-0 truncate text-quiet">
							<Safe>{clip(l.who, 60)}</Safe>
						</span>
						<span className="min-w-0 flex-1 [overflow-wrap:anywhere]">
							<Safe>{clip(l.what, 300)}</Safe>
						</span>
					</li>
				))}
			</ol>
		</div>
	);
}
