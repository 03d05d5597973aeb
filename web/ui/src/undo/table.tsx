// The paths of a plan: what happens to each, and the lines of those that are opened.

import { useQuery } from "@tanstack/react-query";
import { ChevronDown, ChevronRight } from "lucide-react";
import { useMemo, useState } from "react";
import { get } from "../api/http";
import type { Schemas } from "../api/types";
import { Flat } from "../ui/text";
import { VirtualList } from "../ui/vlist";
import { Lines } from "./lines";
import { actions, type Change, dirOf, encoded, keyOf } from "./paths";
import { count, type Hunk, reversed } from "./rows";
import type { Plan } from "./store";
import { sizesOf } from "./words";

const flatMax = 500; // more paths are grouped by their directories

type Row = { dir: string; size: number } | { file: Change };

/** rowsOf groups many paths by their directories. */
export function rowsOf(files: Change[]): Row[] {
	if (files.length <= flatMax) return files.map((file) => ({ file }));
	const groups = new Map<string, Change[]>();
	for (const f of files) {
		const dir = dirOf(f.path);
		const list = groups.get(dir);
		if (list) list.push(f);
		else groups.set(dir, [f]);
	}
	return [...groups].flatMap(([dir, list]): Row[] => [{ dir, size: list.length }, ...list.map((file) => ({ file }))]);
}

interface Props {
	sandbox: string;
	plan: Plan;
	/** whole: the paths become what they are in the plan's revision. */
	whole: boolean;
	fresh: ReadonlySet<string>;
}

const colours: Record<Change["action"], string> = {
	add: "text-good",
	remove: "text-bad",
	change: "text-accent",
	attributes: "text-accent",
};

export function PathTable({ sandbox, plan, whole, fresh }: Props) {
	const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
	const files = plan.files ?? [];
	const rows = useMemo(() => rowsOf(plan.files ?? []), [plan.files]);
	const hunks = useHunks(sandbox, plan, whole);
	const toggle = (key: string) => {
		const to = new Set(open);
		if (!to.delete(key)) to.add(key);
		setOpen(to);
	};
	const draw = (r: Row) =>
		"dir" in r ? (
			<div className="bg-raised px-2 py-1 text-quiet">
				<bdi className="font-mono">
					<Flat>{r.dir || "the workspace itself"}</Flat>
				</bdi>{" "}
				({r.size})
			</div>
		) : (
			<PathRow
				sandbox={sandbox}
				plan={plan}
				file={r.file}
				hunks={hunks?.get(keyOf(r.file))}
				opens={whole}
				open={open.has(keyOf(r.file))}
				fresh={fresh.has(keyOf(r.file))}
				onToggle={toggle}
			/>
		);
	const keyAt = (r: Row) => ("dir" in r ? `dir:${r.dir}` : keyOf(r.file));
	if (files.length > flatMax) {
		return (
			<VirtualList
				count={rows.length}
				size={29}
				keyOf={(i) => keyAt(rows[i]!)}
				row={(i) => draw(rows[i]!)}
				of={() => ({ role: "listitem" })}
				role="list"
				aria-label={`Paths that change: ${plan.total}`}
				tabIndex={0}
				className="h-[45vh] overflow-auto rounded-md border border-line"
			/>
		);
	}
	return (
		<ul aria-label={`Paths that change: ${plan.total}`} className="max-h-[50vh] overflow-auto rounded-md border border-line">
			{rows.map((r) => (
				<li key={keyAt(r)}>{draw(r)}</li>
			))}
		</ul>
	);
}

interface RowProps {
	sandbox: string;
	plan: Plan;
	file: Change;
	hunks: Hunk[] | undefined;
	opens: boolean;
	open: boolean;
	fresh: boolean;
	onToggle(key: string): void;
}

function PathRow({ sandbox, plan, file, hunks, opens, open, fresh, onToggle }: RowProps) {
	const n = hunks ? count(hunks) : null;
	const text = (
		<>
			<span className={`shrink-0 ${colours[file.action]}`}>{actions[file.action]}</span>
			<bdi className="min-w-0 flex-1 basis-32 text-left font-mono [overflow-wrap:anywhere]">
				<Flat>{file.path}</Flat>
			</bdi>
			{fresh && <strong className="text-warn">new in this plan</strong>}
			{n && (n.added > 0 || n.removed > 0) && (
				<span className="whitespace-nowrap tabular-nums">
					{n.added > 0 && <span className="text-good">+{n.added}</span>} {n.removed > 0 && <span className="text-bad">−{n.removed}</span>}
				</span>
			)}
			<span className="whitespace-nowrap text-quiet">{sizesOf(file)}</span>
		</>
	);
	const Icon = open ? ChevronDown : ChevronRight;
	const regular = file.before?.type === "file" || file.after?.type === "file";
	if (!opens || !regular) return <div className="flex min-h-7 flex-wrap items-center gap-x-2 px-2 pl-7">{text}</div>;
	return (
		<div>
			<button
				type="button"
				aria-expanded={open}
				className="flex min-h-7 w-full flex-wrap items-center gap-x-2 px-2 hover:bg-raised"
				onClick={() => onToggle(keyOf(file))}
			>
				<Icon size={14} aria-hidden className="shrink-0 text-quiet" />
				{text}
			</button>
			{open && (hunks ? <Lines hunks={hunks} /> : <Opened sandbox={sandbox} plan={plan} file={file} />)}
		</div>
	);
}

const diffPath = (sandbox: string, n: number, rest: string) =>
	`/v1/sandboxes/${encodeURIComponent(sandbox)}/history/diff?from=${n}&hunks=true${rest}`;

/** useHunks asks how the files are now against the plan's revision, which the plan turns round. */
function useHunks(sandbox: string, plan: Plan, whole: boolean): Map<string, Hunk[]> | null {
	const one = plan.total === 1 ? plan.files?.[0] : undefined;
	const diff = useQuery({
		queryKey: ["plan", sandbox, plan.id],
		queryFn: ({ signal }) => get<Schemas["Diff"]>(diffPath(sandbox, plan.n, one ? `&path=${encoded(one)}` : ""), signal),
		enabled: whole && plan.total > 0,
		gcTime: 0,
	});
	return useMemo(() => {
		if (!diff.data) return null;
		return new Map((diff.data.files ?? []).filter((f) => f.hunks?.length).map((f) => [keyOf(f), reversed(f.hunks!)]));
	}, [diff.data]);
}

/** Opened asks for the lines of one path, which were too many beside those of others. */
function Opened({ sandbox, plan, file }: { sandbox: string; plan: Plan; file: Change }) {
	const diff = useQuery({
		queryKey: ["plan", sandbox, plan.id, keyOf(file)],
		queryFn: ({ signal }) => get<Schemas["Diff"]>(diffPath(sandbox, plan.n, `&path=${encoded(file)}`), signal),
		gcTime: 0,
	});
	if (diff.isError) return <p className="px-7 text-bad">{diff.error.message}</p>;
	if (!diff.data) return <p className="px-7 text-quiet">Asking for its lines…</p>;
	const f = diff.data.files?.find((x) => keyOf(x) === keyOf(file));
	if (f?.hunks?.length) return <Lines hunks={reversed(f.hunks)} />;
	const why = f?.binary ? "It is no text." : f?.large ? "It is too large to show its lines here." : "No line differs.";
	return <p className="px-7 text-quiet">{why}</p>;
}
