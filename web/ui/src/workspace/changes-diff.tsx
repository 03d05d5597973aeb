// What differs, path by path and line by line, in one virtual list.

import { useQuery } from "@tanstack/react-query";
import { ChevronDown, ChevronRight } from "lucide-react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { get } from "../api/http";
import { plural } from "../ui/format";
import { Flat, flat, visible } from "../ui/text";
import { useParam } from "../ui/url";
import { type Rows, VirtualList } from "../ui/vlist";
import { DiffLine, Gap, PairLine } from "../undo/lines";
import { actions, type Change, encoded, keyOf } from "../undo/paths";
import { count, type LineRow, linesOf, type Row, rowsOf, sideBySide } from "../undo/rows";
import { askWayBack } from "../undo/store";
import { sizesOf } from "../undo/words";
import { CommentForm } from "./changes-comment";
import { NoLines } from "./changes-content";
import { type Diff, historyOf } from "./changes-data";
import { signOf, useReviewed } from "./changes-reviewed";

const openMax = 20; // paths that are open at once

const kinds: Record<Change["action"], string> = {
	add: "border-good text-good",
	remove: "border-bad text-bad",
	change: "border-line text-text",
	attributes: "border-line text-quiet",
};

interface Props {
	sandbox: string;
	diff: Diff;
	/** trees names both trees by their hashes. */
	trees: string;
	/** restore names the revision that a path can be restored to; 0 = none. */
	restore: number;
	/** refused says why nothing may be done; "" = it may. */
	refused: string;
	hidden: boolean;
	/** onComment takes what is said of a line; undefined = there is no agent to say it to. */
	onComment?(text: string): void;
}

const sideKey = "skete.diff.side";

/** fileAt names the file that a row is of: the last one that began. */
function fileAt(rows: readonly Row[], i: number): string {
	for (let n = i; n >= 0; n--) {
		const r = rows[n]!;
		if (r.row === "file") return r.key;
	}
	return "";
}

/** Commented is the line that is commented on: at its own place, or at the head of its file. */
interface Commented {
	file: string;
	line: LineRow;
	/** at is the key of the row under which the form stands. */
	at: string;
}

export function DiffView({ sandbox, diff, trees, restore, refused, hidden, onComment }: Props) {
	const [param, setParam] = useParam("file");
	const [turned, setTurned] = useState<ReadonlyMap<string, boolean>>(new Map());
	const [space, setSpace] = useState(true);
	const { marks, toggle: mark } = useReviewed(sandbox);
	const list = useRef<Rows>(null);
	const [more, setMore] = useState<ReadonlyMap<string, Change>>(new Map());
	const files = useMemo(() => (diff.files ?? []).map((f) => more.get(keyOf(f)) ?? f), [diff.files, more]);
	const signs = useMemo(() => new Map(files.map((f) => [keyOf(f), signOf(f, trees)])), [files, trees]);
	const isReviewed = (f: Change) => marks.has(signs.get(keyOf(f)) ?? "");
	const [side, setSide] = useState(() => localStorage.getItem(sideKey) === "1");
	const [commented, setCommented] = useState<Commented | null>(null);
	const [said, setSaid] = useState("");
	const rows = useMemo(() => {
		const flat = rowsOf(files, (f, i) => turned.get(keyOf(f)) ?? (i < openMax && !marks.has(signs.get(keyOf(f)) ?? "")), space);
		return side ? sideBySide(flat) : flat;
	}, [files, turned, space, marks, signs, side]);
	const keyAt = useCallback((i: number) => rows[i]?.key ?? String(i), [rows]);
	const turn = (f: Change, open: boolean) => setTurned(new Map(turned).set(keyOf(f), !open));
	const show = (path: string) => {
		const i = rows.findIndex((r) => r.row === "file" && r.file.path === path);
		if (i >= 0) list.current?.scrollToIndex(i, { align: "start" });
	};
	const began = useRef(false);
	useEffect(() => {
		if (began.current || hidden || !rows.length) return;
		began.current = true;
		if (param) show(param);
	});
	const sum = useMemo(() => count(files.flatMap((f) => f.hunks ?? [])), [files]);
	if (!files.length) return <p className="p-3 text-quiet">Nothing differs between them.</p>;
	const reviewed = files.filter(isReviewed).length;
	const chooseSide = (to: boolean) => {
		setSide(to);
		setCommented(null);
		if (to) localStorage.setItem(sideKey, "1");
		else localStorage.removeItem(sideKey);
	};
	const comment = onComment && {
		commented,
		ask: (to: Commented | null) => {
			setSaid("");
			setCommented(to);
		},
		say: (text: string) => {
			onComment(text);
			setCommented(null);
			setSaid("The comment stands in the message to the agent.");
		},
	};
	const review = (f: Change) => {
		mark(signs.get(keyOf(f))!);
		setTurned((old) => {
			const to = new Map(old);
			to.delete(keyOf(f));
			return to;
		});
	};
	return (
		<div className="flex min-h-0 flex-1 flex-col">
			<div className="flex flex-wrap items-center gap-x-3 gap-y-1 border-line border-b px-2 py-1">
				<span role="status">
					{plural(files.length, "path")}
					{diff.cut && " or more"}, <span className="text-good">+{sum.added}</span> <span className="text-bad">−{sum.removed}</span>
					{reviewed > 0 && `, ${reviewed} reviewed`}
				</span>
				<label className="flex min-h-6 items-center gap-1">
					<input type="checkbox" checked={!space} onChange={() => setSpace(!space)} /> hide changes of space
				</label>
				<label className="flex min-h-6 items-center gap-1">
					<input type="checkbox" checked={side} onChange={(e) => chooseSide(e.target.checked)} /> side by side
				</label>
				<span role="status" className="text-quiet">
					{said}
				</span>
			</div>
			{files.length > 1 && (
				<FileList
					files={files}
					reviewed={isReviewed}
					onShow={(f) => {
						setParam(f.path);
						show(f.path);
					}}
				/>
			)}
			<VirtualList
				rows={list}
				count={rows.length}
				size={20}
				keyOf={keyAt}
				row={(i) => (
					<DiffRow
						of={rows[i]!}
						sandbox={sandbox}
						diff={diff}
						restore={restore}
						refused={refused}
						reviewed={isReviewed}
						files={files}
						fileOf={() => fileAt(rows, i)}
						comment={comment}
						onTurn={turn}
						onReview={review}
						onMore={(f) => setMore((old) => new Map(old).set(keyOf(f), f))}
					/>
				)}
				role="region"
				aria-label="What changed, line by line"
				tabIndex={0}
				className="min-h-40 flex-1 overflow-auto"
				data-diff
			/>
			{diff.cut && <p className="border-line border-t px-2 py-1 text-quiet">There is more than is shown here; `skete diff` shows it.</p>}
		</div>
	);
}

interface ListProps {
	files: readonly Change[];
	reviewed(f: Change): boolean;
	onShow(f: Change): void;
}

/** FileList leads to each path. */
function FileList({ files, reviewed, onShow }: ListProps) {
	return (
		<details className="border-line border-b" open={files.length <= 12}>
			<summary className="min-h-6 px-2 py-1">Paths</summary>
			<VirtualList
				count={files.length}
				size={24}
				keyOf={(i) => keyOf(files[i]!)}
				role="list"
				aria-label="Paths that differ"
				of={() => ({ role: "listitem" })}
				row={(i) => <FileLink of={files[i]!} reviewed={reviewed(files[i]!)} onShow={onShow} />}
				className="overflow-auto"
				style={{ height: Math.min(files.length * 24, 144) }}
			/>
		</details>
	);
}

function FileLink({ of: f, reviewed, onShow }: { of: Change; reviewed: boolean; onShow(f: Change): void }) {
	const n = count(f.hunks);
	return (
		<button type="button" className="flex min-h-6 w-full items-center gap-2 px-2 text-left hover:bg-raised" onClick={() => onShow(f)}>
			<span className={`w-16 shrink-0 truncate ${kinds[f.action]}`}>{actions[f.action]}</span>
			<bdi className="min-w-0 flex-1 truncate font-mono" title={flat(f.path)}>
				<Flat>{f.path}</Flat>
			</bdi>
			{reviewed && <span className="text-quiet">reviewed</span>}
			<span className="whitespace-nowrap tabular-nums">
				{n.added > 0 && <span className="text-good">+{n.added}</span>} {n.removed > 0 && <span className="text-bad">−{n.removed}</span>}
			</span>
		</button>
	);
}

interface RowProps {
	of: Row;
	sandbox: string;
	diff: Diff;
	restore: number;
	refused: string;
	reviewed(f: Change): boolean;
	files: readonly Change[];
	/** fileOf names the file that the row is of. */
	fileOf(): string;
	comment?: { commented: Commented | null; ask(to: Commented | null): void; say(text: string): void };
	onTurn(f: Change, open: boolean): void;
	onReview(f: Change): void;
	onMore(f: Change): void;
}

function DiffRow(p: RowProps) {
	const r = p.of;
	switch (r.row) {
		case "line":
			return (
				<>
					<DiffLine row={r} onPick={pickOf(p)} />
					<Comment {...p} />
				</>
			);
		case "pair":
			return (
				<>
					<PairLine before={r.before} after={r.after} onPick={pickOf(p)} />
					<Comment {...p} />
				</>
			);
		case "gap":
			return <Gap text={r.text} />;
		case "about":
			return <About {...p} file={r.file} />;
		case "file":
			return <FileHead {...p} row={r} />;
	}
}

function pickOf(p: RowProps): ((line: LineRow) => void) | undefined {
	const { comment, of, fileOf } = p;
	return comment && ((line) => comment.ask({ file: fileOf(), line, at: of.key }));
}

/** Comment is the form under the row that it was asked for at. */
function Comment(p: RowProps) {
	const { comment } = p;
	const now = comment?.commented;
	const file = now && p.files.find((f) => keyOf(f) === now.file);
	if (!comment || !file || now.at !== p.of.key) return null;
	return (
		<CommentForm
			path={file.path}
			lines={linesOf(file.hunks ?? [], keyOf(file)).filter((r) => r.row === "line")}
			line={now.line}
			onComment={comment.say}
			onClose={() => comment.ask(null)}
		/>
	);
}

function FileHead({ row, reviewed, onTurn, onReview }: RowProps & { row: Extract<Row, { row: "file" }> }) {
	const { file, open } = row;
	const Icon = open ? ChevronDown : ChevronRight;
	return (
		<div className="mt-1 flex min-h-8 items-center gap-2 border-line border-y bg-raised px-1" data-path={file.path}>
			<button
				type="button"
				aria-expanded={open}
				className="flex min-h-7 min-w-0 flex-1 items-center gap-2 text-left"
				onClick={() => onTurn(file, open)}
			>
				<Icon size={14} aria-hidden className="shrink-0 text-quiet" />
				<span className={`shrink-0 rounded border px-1 ${kinds[file.action]}`}>{actions[file.action]}</span>
				<bdi className="min-w-0 font-mono [overflow-wrap:anywhere]">
					<Flat>{file.path}</Flat>
				</bdi>
			</button>
			<span className="whitespace-nowrap tabular-nums">
				{row.added > 0 && <span className="text-good">+{row.added}</span>}{" "}
				{row.removed > 0 && <span className="text-bad">−{row.removed}</span>}
			</span>
			<label className="flex min-h-6 shrink-0 items-center gap-1 text-quiet">
				<input type="checkbox" checked={reviewed(file)} onChange={() => onReview(file)} aria-label={`Reviewed: ${flat(file.path)}`} />
				<span className="hidden @md:inline">reviewed</span>
			</label>
		</div>
	);
}

/** About is what is said of a path, and what can be done with it. */
function About(p: RowProps & { file: Change }) {
	const { file, sandbox, diff, restore, refused, comment, onMore } = p;
	const directory = (file.after ?? file.before)?.type === "directory";
	const lines = comment ? linesOf(file.hunks ?? [], keyOf(file)).filter((r) => r.row === "line") : [];
	const first = lines.find((l) => l.kind === "add") ?? lines.find((l) => l.kind === "remove");
	return (
		<div>
			<div className="flex flex-wrap items-center gap-2 px-2 py-1">
				<span className="text-quiet">{sizesOf(file)}</span>
				<span className="flex-1" />
				{comment && first && (
					<button type="button" className="button" onClick={() => comment.ask({ file: keyOf(file), line: first, at: p.of.key })}>
						Comment
						<span className="sr-only"> on a line of {visible(file.path)}</span>
					</button>
				)}
				{restore > 0 && (
					<button
						type="button"
						className="button"
						disabled={!!refused}
						title={refused || undefined}
						onClick={() => askWayBack(sandbox, { do: "restore", n: restore, path: file.path, path_bytes: file.path_bytes })}
					>
						{directory ? "Restore this directory" : "Restore this file"} to #{restore}
						<span className="sr-only">: {flat(file.path)}</span>
					</button>
				)}
			</div>
			<Comment {...p} />
			{!file.hunks?.length && file.large && !file.binary && <More sandbox={sandbox} diff={diff} file={file} onMore={onMore} />}
			{!file.hunks?.length && <NoLines sandbox={sandbox} file={file} from={diff.from} to={diff.to} />}
		</div>
	);
}

/** More asks for the lines of one path, which were too many beside those of others. */
function More({ sandbox, diff, file, onMore }: { sandbox: string; diff: Diff; file: Change; onMore(f: Change): void }) {
	const [wanted, setWanted] = useState(false);
	const one = useQuery({
		queryKey: ["lines", sandbox, diff.from, diff.to, keyOf(file)],
		queryFn: ({ signal }) =>
			get<Diff>(`${historyOf(sandbox)}/diff?from=${diff.from}&to=${diff.to}&hunks=true&path=${encoded(file)}`, signal),
		enabled: wanted,
		gcTime: 0,
	});
	const found = one.data?.files?.find((f) => keyOf(f) === keyOf(file));
	useEffect(() => {
		if (found?.hunks?.length) onMore(found);
	}, [found, onMore]);
	if (one.isError) return <p className="px-2 text-bad">{visible(one.error.message)}</p>;
	if (found) return null;
	return (
		<button type="button" className="button mx-2" disabled={wanted} onClick={() => setWanted(true)}>
			{wanted ? "Asking for its lines…" : "Ask for its lines alone"}
		</button>
	);
}
