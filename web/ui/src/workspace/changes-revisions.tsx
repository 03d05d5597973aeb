// The revisions of a machine's files, the newest first.

import { useRef } from "react";
import { bytes, plural } from "../ui/format";
import { visible } from "../ui/text";
import { type Rows, VirtualList } from "../ui/vlist";
import type { Known, Revision } from "./changes-data";

/** Choice is what is looked at: a revision, or the files as they are now. */
export type Choice = number | "now";

const ageOf = (time: string, now: number) => {
	const s = Math.max(0, Math.floor((now - Date.parse(time)) / 1000));
	if (s < 60) return `${s} s`;
	if (s < 3600) return `${Math.floor(s / 60)} min`;
	return s < 172_800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86_400)} d`;
};

const short = (id: string) => visible(id.length > 13 ? `${id.slice(0, 12)}…` : id);

/** whoOf says who made a revision, and what is to be known of it. */
export function whoOf(r: Revision): string {
	const parts = [visible(r.who)];
	if (r.run) parts.push(short(r.run) + (r.step ? ` step ${r.step}` : ""));
	if (r.state === "local") parts.push("not yet safe outside the sandbox");
	if (r.torn) parts.push(r.torn === 1 ? "1 file was changing" : `${r.torn} files were changing`);
	return parts.join(" · ");
}

/** unsavedOf says what no revision has yet. */
export function unsavedOf(u: NonNullable<Known["unsaved"]>): string {
	return `unsaved changes: ${u.files ? plural(u.files, "file") : "directories only"}${u.cut ? " and more" : ""}`;
}

interface Props {
	known: Known;
	chosen: Choice;
	asking: boolean;
	onChoose(to: Choice): void;
	onOlder(): void;
}

export function Revisions({ known, chosen, asking, onChoose, onOlder }: Props) {
	const rows = useRef<Rows>(null);
	const box = useRef<HTMLDivElement>(null);
	const list: Choice[] = [...(known.unsaved ? ["now" as const] : []), ...known.revs.map((r) => r.n)];
	const at = Math.max(0, list.indexOf(chosen));
	const go = (to: number) => {
		const next = list[to];
		if (next === undefined) return;
		onChoose(next);
		rows.current?.scrollToIndex(to);
	};
	if (!list.length)
		return (
			<p className="p-3 text-quiet">
				Nothing is recorded yet. The first change that an agent makes will be here, and so will “Save a revision”.
			</p>
		);
	const now = Date.now();
	return (
		<div ref={box} className="flex min-h-0 flex-1 flex-col">
			<VirtualList
				rows={rows}
				count={list.length}
				size={46}
				keyOf={(i) => String(list[i])}
				of={(i) => ({
					role: "option",
					id: `revision-${list[i]}`,
					"aria-selected": i === at,
					"aria-posinset": i + 1,
					"aria-setsize": known.next ? -1 : list.length,
					onClick: () => onChoose(list[i]!),
				})}
				row={(i) =>
					list[i] === "now" ? (
						<Unsaved of={known.unsaved!} on={i === at} />
					) : (
						<Row of={known.revs[i - (known.unsaved ? 1 : 0)]!} known={known} on={i === at} now={now} />
					)
				}
				role="listbox"
				aria-label="Revisions"
				aria-activedescendant={`revision-${list[at]}`}
				tabIndex={0}
				className="min-h-0 flex-1 overflow-auto"
				onKeyDown={(e) => {
					const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: list.length - 1 }[e.key];
					if (to === undefined) return;
					e.preventDefault();
					go(to);
				}}
			/>
			{known.next && (
				<button type="button" className="button m-1 self-start" disabled={asking} onClick={onOlder}>
					{asking ? "Asking for older ones…" : "Show older ones"}
				</button>
			)}
		</div>
	);
}

const look = (on: boolean) =>
	`flex flex-col border-line border-b border-l-2 px-2 py-1 cursor-pointer ${on ? "border-l-accent bg-accent-ground" : "border-l-transparent hover:bg-raised"}`;

const Now = () => <strong className="mr-1 rounded border border-good px-1 font-medium text-good">now</strong>;

function Unsaved({ of, on }: { of: NonNullable<Known["unsaved"]>; on: boolean }) {
	return (
		<div className={look(on)} data-unsaved>
			<span>
				<Now />
				{unsavedOf(of)}
			</span>
			<span className="text-quiet">the first to be undone</span>
		</div>
	);
}

function Row({ of: r, known, on, now }: { of: Revision; known: Known; on: boolean; now: number }) {
	const about = [r.label || r.title, r.actor, r.run, `${plural(r.files, "file")}, ${bytes(r.bytes)}`, r.root];
	return (
		<div
			className={look(on)}
			data-n={r.n}
			title={about
				.filter(Boolean)
				.map((t) => visible(t!))
				.join("\n")}
		>
			<span className="flex items-baseline gap-2">
				<span className="shrink-0 text-quiet tabular-nums">#{r.n}</span>
				<bdi className="min-w-0 flex-1 truncate">{visible(r.title)}</bdi>
				<time dateTime={r.time} title={new Date(r.time).toLocaleString()} className="shrink-0 text-quiet">
					{ageOf(r.time, now)}
				</time>
			</span>
			<span className="truncate text-quiet">
				{r.n === known.current && <Now />}
				{whoOf(r)}
			</span>
		</div>
	);
}
