// Changes: the revisions of a machine's files, what each changed, and the ways back.

import { useQueryClient } from "@tanstack/react-query";
import { Redo2, Save, Undo2 } from "lucide-react";
import { useEffect, useState } from "react";
import { post } from "../api/http";
import { addToDraft } from "../run/draft";
import { ProblemBox } from "../ui/problem";
import { clip, Safe, visible } from "../ui/text";
import { useParam } from "../ui/url";
import { askWayBack, onlyLooks, onlyPast, type Request, useMay } from "../undo/store";
import {
	beforeOf,
	historyOf,
	type Known,
	type Revision,
	sinceOf,
	useDiff,
	usePast,
	useRevision,
	useRevisions,
	useStart,
	workOf,
} from "./changes-data";
import { DiffView } from "./changes-diff";
import { type Choice, Revisions, unsavedOf } from "./changes-revisions";
import type { PaneProps } from "./pane";

export default function ChangesPane(props: PaneProps) {
	return <Changes key={props.sandbox} {...props} />;
}

/** chosenOf reads the choice from the address; without one the newest is followed. */
export function chosenOf(param: string, known: Known | null, past: number): Choice {
	if (/^[1-9]\d{0,14}$/.test(param)) return Number(param);
	if (param === "now") return "now";
	if (past) return past;
	if (known?.unsaved) return "now";
	return known?.revs[0]?.n ?? "now";
}

function Changes({ sandbox, run, past, hidden }: PaneProps) {
	const revisions = useRevisions(sandbox, hidden);
	const { known, older, asking, again } = revisions;
	const [param, setParam] = useParam("rev");
	const moment = usePast(revisions, run, past, hidden);
	const error = revisions.error ?? moment.error;
	const why = param ? "" : moment.why;
	const chosen = chosenOf(param, known, moment.n);
	const may = useMay();
	const refused = past ? onlyPast : may ? "" : onlyLooks;
	const choose = (to: Choice) => {
		const newest = known?.unsaved ? "now" : known?.revs[0]?.n;
		setParam(to === newest && !past ? "" : String(to));
	};
	return (
		<div className="@container flex min-h-0 flex-1 flex-col">
			{known && <Tools sandbox={sandbox} known={known} refused={refused} />}
			{refused && <p className="border-line border-b bg-warn-ground px-2 py-1 text-warn">{refused}</p>}
			{known?.unseen && (
				<p className="border-line border-b bg-warn-ground px-2 py-1 text-warn">
					The files could not be looked at: <Safe>{known.unseen}</Safe>. Shown is where they were last.
				</p>
			)}
			{error !== null && (
				<div className="p-2">
					<ProblemBox of={error} again={again} />
				</div>
			)}
			{known && (
				<div className="flex min-h-0 flex-1 flex-col @3xl:flex-row">
					<section
						aria-label="Revisions"
						className="flex h-[30%] min-h-32 shrink-0 flex-col border-line border-b @3xl:h-auto @3xl:w-72 @3xl:border-r @3xl:border-b-0"
					>
						<Revisions known={known} chosen={chosen} asking={asking} onChoose={choose} onOlder={() => void older()} />
					</section>
					{why ? (
						<p className="p-3 text-quiet">{why}</p>
					) : (
						<Range
							sandbox={sandbox}
							run={run}
							known={known}
							chosen={chosen}
							refused={refused}
							hidden={hidden}
							onOlder={asking || error !== null ? undefined : older}
						/>
					)}
				</div>
			)}
			{!known && error === null && <p className="p-3 text-quiet">Asking for the revisions…</p>}
		</div>
	);
}

const scopes: [NonNullable<Request["scope"]>, string][] = [
	["last", "the last change"],
	["call", "the last tool call"],
	["step", "the last step"],
	["turn", "the last message"],
	["run", "the last run"],
];

function Tools({ sandbox, known, refused }: { sandbox: string; known: Known; refused: string }) {
	const client = useQueryClient();
	const [scope, setScope] = useState<NonNullable<Request["scope"]>>("last");
	const [problem, setProblem] = useState<unknown>(null);
	const [said, setSaid] = useState("");
	const save = async () => {
		setProblem(null);
		setSaid("");
		try {
			const r = await post<Revision>(historyOf(sandbox), { label: "saved by hand" });
			setSaid(`The files as they are now are revision #${r.n}.`);
			await client.invalidateQueries({ queryKey: ["history", sandbox] });
		} catch (err) {
			setProblem(err);
		}
	};
	const off = refused !== "";
	const why = refused || undefined;
	return (
		<div className="border-line border-b">
			<div role="toolbar" aria-label="Ways back" className="flex flex-wrap items-center gap-1 px-2 py-1">
				<button
					type="button"
					className="button"
					aria-keyshortcuts="Control+Z"
					title={why ?? "Show what an undo would do (Ctrl Z)"}
					disabled={off || !known.undo}
					onClick={() => askWayBack(sandbox, { do: "undo", scope })}
				>
					<Undo2 size={14} aria-hidden /> Undo
				</button>
				<select
					className="field min-w-0 max-w-full"
					aria-label="What to undo"
					value={scope}
					onChange={(e) => setScope(e.target.value as typeof scope)}
				>
					{scopes.map(([s, text]) => (
						<option key={s} value={s}>
							{text}
						</option>
					))}
				</select>
				<button
					type="button"
					className="button"
					aria-keyshortcuts="Control+Shift+Z"
					title={why ?? "Show what a redo would do (Ctrl Shift Z)"}
					disabled={off || !known.redo}
					onClick={() => askWayBack(sandbox, { do: "redo" })}
				>
					<Redo2 size={14} aria-hidden /> Redo
				</button>
				<button type="button" className="button" disabled={off} title={why} onClick={() => void save()}>
					<Save size={14} aria-hidden /> Save a revision
				</button>
				<span role="status" className="text-quiet">
					{said}
				</span>
			</div>
			{problem !== null && (
				<div className="p-2">
					<ProblemBox of={problem} />
				</div>
			)}
		</div>
	);
}

interface RangeProps {
	sandbox: string;
	run: string;
	known: Known;
	chosen: Choice;
	refused: string;
	hidden: boolean;
	/** onOlder asks for older revisions; undefined = they are on their way. */
	onOlder?(): unknown;
}

/** Range is what changed in a revision, or since another one. */
function Range({ sandbox, run, known, chosen, refused, hidden, onOlder }: RangeProps) {
	const [param, setParam] = useParam("from");
	const n = chosen === "now" ? 0 : chosen;
	const listed = known.revs.find((r) => r.n === n);
	const near = chosen === "now" ? (known.revs[0]?.n ?? 0) : beforeOf(known, n);
	const asked = useRevision(sandbox, n, hidden || near !== undefined);
	const start = useStart(sandbox, run, param === "start" && !hidden);
	const before = near ?? asked.data?.from;
	const since = param === "step" || param === "turn" ? sinceOf(known, n, param) : 0;
	const more = since === undefined && !!known.next && !hidden && onOlder;
	useEffect(() => {
		if (more) more();
	}, [more]);
	const from =
		param === "start"
			? run
				? start.data
				: 0
			: param === "step" || param === "turn"
				? since
				: /^\d{1,15}$/.test(param)
					? Number(param)
					: before;
	const empty = !known.revs.length && !known.unsaved;
	const diff = useDiff(sandbox, empty ? undefined : from, empty ? undefined : n, hidden);
	const rev = listed ?? asked.data;
	const rootOf = (of: number | undefined) => known.revs.find((r) => r.n === of)?.root ?? String(of);
	const isNow = n > 0 && (n === known.current || rev?.root === known.revs.find((r) => r.n === known.current)?.root);
	const error = diff.error ?? asked.error ?? start.error;
	const title =
		chosen === "now" ? (known.unsaved ? unsavedOf(known.unsaved) : "the files as they are now") : `#${n} ${rev ? visible(rev.title) : ""}`;
	return (
		<section aria-labelledby="changes-title" className="flex min-h-64 min-w-0 flex-1 flex-col">
			<div className="flex flex-wrap items-center gap-x-2 gap-y-1 border-line border-b px-2 py-1">
				<h2 id="changes-title" className="min-w-0 flex-1 basis-40 truncate font-semibold" title={title}>
					{empty ? "What changed" : title}
				</h2>
				{chosen !== "now" && (
					<>
						<button
							type="button"
							className="button"
							disabled={refused !== "" || isNow}
							title={refused || (isNow ? "The files are so now" : "Show what would change")}
							onClick={() => askWayBack(sandbox, { do: "restore", n })}
						>
							Restore this
						</button>
						<button
							type="button"
							className="button"
							disabled={refused !== ""}
							title={refused || "Take back what this revision changed, and keep what came later"}
							onClick={() => askWayBack(sandbox, { do: "revert", n })}
						>
							Revert only this
						</button>
					</>
				)}
				{!empty && <Against known={known} n={n} before={before} value={param} run={run} onChange={setParam} />}
			</div>
			{empty && <p className="p-3 text-quiet">Choose a revision to see what it changed.</p>}
			{error && (
				<div className="p-2">
					<ProblemBox of={error} again={() => void diff.refetch()} />
				</div>
			)}
			{diff.data && (
				<DiffView
					key={`${diff.data.from} ${n}`}
					sandbox={sandbox}
					diff={diff.data}
					trees={`${rootOf(diff.data.from)} ${n ? rootOf(n) : diff.dataUpdatedAt}`}
					restore={n && !isNow ? n : diff.data.from}
					refused={refused}
					hidden={hidden}
					onComment={run && !refused ? (text) => addToDraft(run, text) : undefined}
				/>
			)}
		</section>
	);
}

const listMax = 200;

interface AgainstProps {
	known: Known;
	n: number;
	before: number | undefined;
	value: string;
	run: string;
	onChange(to: string): void;
}

/** Against says what a revision is compared with. */
function Against({ known, n, before, value, run, onChange }: AgainstProps) {
	const others = known.revs.filter((r) => r.n !== n && r.n !== before).slice(0, listMax);
	const unlisted = value && !["start", "step", "turn"].includes(value) && !others.some((r) => String(r.n) === value);
	return (
		<label className="flex min-w-0 items-center gap-1">
			<span className="text-quiet">since</span>
			<select className="field max-w-52 min-w-0" value={value} onChange={(e) => onChange(e.target.value)}>
				<option value="">{before ? `the one before, #${before}` : before === 0 ? "the empty workspace" : "the one before"}</option>
				{(workOf(known, n) || value === "step" || value === "turn") && (
					<>
						<option value="step">the beginning of the step</option>
						<option value="turn">the beginning of the turn</option>
					</>
				)}
				<option value="start">{run ? "the start of the run" : "the very start"}</option>
				{unlisted && <option value={value}>#{visible(value)}</option>}
				{others.map((r) => (
					<option key={r.n} value={String(r.n)}>
						#{r.n} {visible(clip(r.title, 60))}
					</option>
				))}
			</select>
		</label>
	);
}
