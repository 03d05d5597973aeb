// The tree of a machine's files, read directory by directory as they are opened.

import { ChevronDown, ChevronRight, File, Folder, Link2 } from "lucide-react";
import { useMemo, useRef, useState } from "react";
import { bytes } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Flat, flat, Safe, visible } from "../ui/text";
import { type Rows, VirtualList } from "../ui/vlist";
import { dirOf, keyOf, type PathRef } from "../undo/paths";
import { type DirState, type Node, type TreeRow, treeRows, useListings } from "./files-data";

interface Props {
	sandbox: string;
	/** n is the revision; 0 = as it is now. */
	n: number;
	chosen: string;
	hidden: boolean;
	fresh: boolean;
	onChoose(node: Node): void;
	/** onDrop of files on a directory; undefined = nothing can be dropped. */
	onDrop?(dir: PathRef, files: File[]): void;
}

const root: PathRef = { path: "" };

export function Tree({ sandbox, n, chosen, hidden, fresh, onChoose, onDrop }: Props) {
	const [open, setOpen] = useState<ReadonlyMap<string, PathRef>>(() => new Map(parents(chosen).map((p) => [p, { path: p }])));
	const [active, setActive] = useState(chosen);
	const [over, setOver] = useState<string | null>(null);
	const list = useRef<Rows>(null);
	const dirs = useMemo(() => [root, ...open.values()], [open]);
	const found = useListings(sandbox, n, dirs, hidden, fresh);
	const states = new Map<string, DirState>(dirs.map((d, i) => [keyOf(d), { data: found[i]?.data, error: found[i]?.error }]));
	const rows = treeRows(states, open);
	const at = rows.findIndex((r) => keyOf(r.node) === active);
	const top = states.get("");
	const turn = (node: Node, to: boolean) => {
		const next = new Map(open);
		if (to) next.set(keyOf(node), node);
		else next.delete(keyOf(node));
		setOpen(next);
	};
	const pick = (r: TreeRow) => {
		setActive(keyOf(r.node));
		if (r.node.type === "directory") turn(r.node, !r.open);
		else onChoose(r.node);
	};
	const move = (to: number) => {
		const r = rows[Math.min(rows.length - 1, Math.max(0, to))];
		if (!r) return;
		setActive(keyOf(r.node));
		list.current?.scrollToIndex(rows.indexOf(r));
	};
	const keys = (e: React.KeyboardEvent) => {
		const r = rows[at];
		if (e.key === "ArrowDown") move(at + 1);
		else if (e.key === "ArrowUp") move(at - 1);
		else if (e.key === "Home") move(0);
		else if (e.key === "End") move(rows.length - 1);
		else if (r && (e.key === "Enter" || e.key === " ")) pick(r);
		else if (r && e.key === "ArrowRight" && r.node.type === "directory") r.open ? move(at + 1) : turn(r.node, true);
		else if (r && e.key === "ArrowLeft") r.open ? turn(r.node, false) : move(rows.findIndex((p) => p.node.path === dirOf(r.node.path)));
		else return;
		e.preventDefault();
	};
	if (top?.error)
		return (
			<div className="p-2">
				<ProblemBox of={top.error} again={() => void found[0]?.refetch()} />
			</div>
		);
	const dropOn = (r: TreeRow | null): PathRef => (!r ? root : r.node.type === "directory" ? r.node : { path: dirOf(r.node.path) });
	const dropping = (r: TreeRow | null) =>
		onDrop && {
			onDragOver: (e: React.DragEvent) => {
				if (!e.dataTransfer.types.includes("Files")) return;
				e.preventDefault();
				e.stopPropagation();
				setOver(keyOf(dropOn(r)));
			},
			onDragLeave: () => setOver(null),
			onDrop: (e: React.DragEvent) => {
				e.preventDefault();
				e.stopPropagation();
				setOver(null);
				onDrop(dropOn(r), [...e.dataTransfer.files]);
			},
		};
	return (
		<>
			{!top?.data && <p className="p-2 text-quiet">Asking for the files…</p>}
			{top?.data && !rows.length && <p className="p-2 text-quiet">There are no files yet.</p>}
			{over !== null && <p className="px-2 text-accent">Drop to upload into {over === "" ? "the workspace" : visible(over)}</p>}
			<VirtualList
				rows={list}
				count={rows.length}
				size={26}
				keyOf={(i) => keyOf(rows[i]!.node)}
				row={(i) => <NodeRow of={rows[i]!} on={i === at} chosen={keyOf(rows[i]!.node) === chosen} over={over === keyOf(rows[i]!.node)} />}
				of={(i) => ({
					role: "treeitem",
					id: `file-${i}`,
					"aria-level": rows[i]!.depth + 1,
					"aria-expanded": rows[i]!.node.type === "directory" ? rows[i]!.open : undefined,
					"aria-selected": keyOf(rows[i]!.node) === chosen,
					onClick: () => pick(rows[i]!),
					...dropping(rows[i]!),
				})}
				role="tree"
				aria-label="Files"
				aria-activedescendant={at >= 0 ? `file-${at}` : undefined}
				tabIndex={0}
				className="min-h-0 flex-1 overflow-auto"
				onKeyDown={keys}
				{...dropping(null)}
			/>
			{top?.data?.cut && <p className="border-line border-t p-2 text-quiet">There is more than is listed here.</p>}
		</>
	);
}

/** parents are the directories that a path is in, from the top. */
export function parents(path: string): string[] {
	const parts = path.split("/").slice(0, -1);
	return parts.map((_, i) => parts.slice(0, i + 1).join("/"));
}

const icons = { directory: Folder, file: File, symlink: Link2, other: File };
const notes = { "": "", asking: "…", empty: "empty", cut: "there is more than is listed", failed: "" };

function NodeRow({ of: r, on, chosen, over }: { of: TreeRow; on: boolean; chosen: boolean; over: boolean }) {
	const Icon = icons[r.node.type];
	const Turn = r.open ? ChevronDown : ChevronRight;
	const ground = chosen ? "bg-accent-ground" : over ? "bg-good-ground" : "hover:bg-raised";
	return (
		<div
			className={`flex min-h-6.5 cursor-pointer items-center gap-1 pr-2 ${ground} ${on ? "outline-1 outline-accent -outline-offset-1" : ""}`}
			style={{ paddingLeft: 4 + Math.min(r.depth, 12) * 14 }}
			title={flat(r.node.path)}
		>
			{r.node.type === "directory" ? <Turn size={14} aria-hidden className="shrink-0 text-quiet" /> : <span className="w-3.5 shrink-0" />}
			<Icon size={14} aria-hidden className="shrink-0 text-quiet" />
			<bdi className="min-w-0 truncate">
				<Flat>{r.node.name}</Flat>
			</bdi>
			{r.node.target && (
				<span className="truncate text-quiet">
					→ <Safe>{r.node.target}</Safe>
				</span>
			)}
			<span className="flex-1" />
			{r.state === "failed" ? (
				<span className="truncate text-bad">{r.error instanceof Error ? visible(r.error.message) : "it cannot be read"}</span>
			) : (
				<span className="whitespace-nowrap text-quiet">{notes[r.state] || (r.node.type === "file" ? bytes(r.node.size) : "")}</span>
			)}
		</div>
	);
}
