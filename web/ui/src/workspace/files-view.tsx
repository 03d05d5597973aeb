// One file: its text in the editor, or what else it is; its history, and saving it.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Download, History, Save } from "lucide-react";
import { lazy, Suspense, useCallback, useEffect, useRef, useState } from "react";
import { get, Problem } from "../api/http";
import type { Schemas } from "../api/types";
import { ago, bytes } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Flat, flat, visible } from "../ui/text";
import { encoded, keyOf, nameOf, type PathRef } from "../undo/paths";
import { askWayBack } from "../undo/store";
import { contentOf, Picture, pictureMax, pictureType } from "./changes-content";
import { historyOf } from "./changes-data";
import { type Content, readText, write } from "./files-data";

const Editor = lazy(() => import("./files-editor"));

interface Props {
	sandbox: string;
	n: number;
	path: PathRef;
	size: number;
	/** stamp changes when the file may have changed. */
	stamp: number;
	refused: string;
	hidden: boolean;
	onRevision(n: number): void;
	onDirty(dirty: boolean): void;
}

export function FileView({ sandbox, n, path, size, stamp, refused, hidden, onRevision, onDirty }: Props) {
	const [past, setPast] = useState(false);
	return (
		<section aria-label={`File ${flat(path.path)}`} className="flex min-h-0 min-w-0 flex-1 flex-col">
			<div className="flex flex-wrap items-center gap-2 border-line border-b px-2 py-1">
				<bdi className="min-w-0 flex-1 basis-40 font-mono [overflow-wrap:anywhere]">
					<Flat>{path.path}</Flat>
				</bdi>
				<a className="button" href={contentOf(sandbox, n, path)} download={visible(nameOf(path.path))}>
					<Download size={14} aria-hidden /> Download
				</a>
				<button type="button" className="button" aria-expanded={past} onClick={() => setPast(!past)}>
					<History size={14} aria-hidden /> History
				</button>
			</div>
			{past && <FileHistory sandbox={sandbox} n={n} path={path} refused={refused} hidden={hidden} onRevision={onRevision} />}
			{pictureType(path.path) && size <= pictureMax ? (
				<div className="p-2">
					<Picture sandbox={sandbox} n={n} path={path} entry={{ type: "file", size, mode: 0 }} word={n ? `in #${n}` : "now"} />
				</div>
			) : (
				<TextFile sandbox={sandbox} n={n} path={path} size={size} stamp={stamp} refused={refused} hidden={hidden} onDirty={onDirty} />
			)}
		</section>
	);
}

type TextProps = Omit<Props, "onRevision">;

/** TextFile is a text. It is read once: what is typed is never replaced without being asked for. */
function TextFile({ sandbox, n, path, size, stamp, refused, hidden, onDirty }: TextProps) {
	const client = useQueryClient();
	const [content, setContent] = useState<Content | null>(null);
	const [problem, setProblem] = useState<unknown>(null);
	const [dirty, setDirty] = useState(false);
	const [saving, setSaving] = useState(false);
	const [said, setSaid] = useState("");
	const [moved, setMoved] = useState(false); // it changed meanwhile
	const [over, setOver] = useState<Content | null>(null); // what would be written over
	const typed = useRef<() => string>(() => "");
	const load = useCallback(
		async (keep: boolean, signal?: AbortSignal) => {
			setProblem(null);
			try {
				const c = await readText(sandbox, n, path, size, signal);
				if (signal?.aborted) return;
				setContent((old) => {
					if (keep && old?.etag && old.etag === c.etag) return old; // so that the cursor stays
					typed.current = () => c.text;
					return c;
				});
				setDirty(false);
				setMoved(false);
				setOver(null);
			} catch (err) {
				if (!signal?.aborted) setProblem(err);
			}
		},
		[sandbox, n, path, size],
	);
	const began = useRef(0);
	useEffect(() => {
		if (hidden || dirty || began.current === stamp) return;
		const stop = new AbortController();
		void load(true, stop.signal).then(() => {
			if (!stop.signal.aborted) began.current = stamp;
		});
		return () => stop.abort();
	}, [load, hidden, dirty, stamp]);
	useEffect(() => {
		onDirty(dirty);
		return () => onDirty(false);
	}, [dirty, onDirty]);

	const readOnly = n > 0 || refused !== "" || !content?.etag;
	const save = async (etag: string) => {
		if (readOnly || saving || !dirty || !content) return;
		const text = typed.current();
		setSaving(true);
		setProblem(null);
		setSaid("");
		try {
			content.etag = await write(sandbox, path, new Blob([text]), etag);
			setDirty(typed.current() !== text);
			setMoved(false);
			setOver(null);
			setSaid("Saved.");
			void client.invalidateQueries({ queryKey: ["history", sandbox] });
		} catch (err) {
			if (err instanceof Problem && err.status === 412) {
				setMoved(true);
				setOver(null);
			} else setProblem(err);
		}
		setSaving(false);
	};
	const look = async () => {
		setProblem(null);
		try {
			setOver(await readText(sandbox, 0, path, 0));
		} catch (err) {
			setProblem(err);
		}
	};
	return (
		<>
			{!readOnly && content && !content.why && (
				<div className="flex flex-wrap items-center gap-2 border-line border-b px-2 py-1">
					<button
						type="button"
						className="button"
						aria-keyshortcuts="Control+S"
						disabled={!dirty || saving}
						onClick={() => void save(content.etag)}
					>
						<Save size={14} aria-hidden /> {saving ? "Saving…" : "Save"}
					</button>
					<span role="status" className="text-quiet">
						{dirty ? "not saved" : said}
					</span>
				</div>
			)}
			{moved && <Moved over={over} onLook={() => void look()} onLoad={() => void load(false)} onWrite={(etag) => void save(etag)} />}
			{problem !== null && (
				<div className="p-2">
					<ProblemBox of={problem} again={content ? undefined : () => void load(false)} />
				</div>
			)}
			{n > 0 && <p className="border-line border-b px-2 py-1 text-quiet">As it was in #{n}: it cannot be changed here.</p>}
			{content?.why && (
				<p className="p-3 text-quiet">
					{content.why} ({bytes(content.size)})
				</p>
			)}
			{content && !content.why && (
				<Suspense fallback={<p className="p-3 text-quiet">Loading the editor…</p>}>
					<Editor
						path={path.path}
						label={`Text of ${visible(path.path)}`}
						text={content.text}
						readOnly={readOnly}
						onChange={(text) => {
							typed.current = text;
							setDirty(true);
						}}
						onSave={() => void save(content.etag)}
					/>
				</Suspense>
			)}
		</>
	);
}

interface MovedProps {
	over: Content | null;
	onLook(): void;
	onLoad(): void;
	onWrite(etag: string): void;
}

/** Moved asks what becomes of a text that was changed here and in the machine. */
function Moved({ over, onLook, onLoad, onWrite }: MovedProps) {
	return (
		<div role="alert" className="flex flex-col gap-2 border-warn border-b bg-warn-ground p-2">
			<span>The file changed meanwhile. Nothing was saved, and what you typed is still here.</span>
			<div className="flex flex-wrap gap-2">
				<button type="button" className="button" onClick={onLook}>
					Show what is there now
				</button>
				<button type="button" className="button" onClick={onLoad}>
					Drop mine and load it
				</button>
				{over && (
					<button type="button" className="button danger" onClick={() => onWrite(over.etag)}>
						Save mine over it
					</button>
				)}
			</div>
			{over && (
				<section aria-label="What is there now">
					<pre className="max-h-48 overflow-auto rounded border border-line bg-ground p-2 whitespace-pre-wrap">
						{over.why || visible(over.text)}
					</pre>
				</section>
			)}
		</div>
	);
}

interface HistoryProps {
	sandbox: string;
	n: number;
	path: PathRef;
	refused: string;
	hidden: boolean;
	onRevision(n: number): void;
}

/** FileHistory lists the revisions that changed a file. */
function FileHistory({ sandbox, n, path, refused, hidden, onRevision }: HistoryProps) {
	const list = useQuery({
		queryKey: ["history", sandbox, "path", keyOf(path)],
		queryFn: ({ signal }) => get<Schemas["PathRevisions"]>(`${historyOf(sandbox)}/path?path=${encoded(path)}`, signal),
		enabled: !hidden,
	});
	if (list.isError)
		return (
			<div className="p-2">
				<ProblemBox of={list.error} again={() => void list.refetch()} />
			</div>
		);
	const items = list.data?.items ?? [];
	return (
		<div className="max-h-56 shrink-0 overflow-auto border-line border-b bg-raised">
			{list.data && !items.length && <p className="p-2 text-quiet">No revision has it yet.</p>}
			<ul aria-label="Revisions of the file">
				{items.map((r) => (
					<li
						key={r.n}
						className="flex flex-wrap items-center gap-2 border-line border-b px-2 py-1"
						aria-current={r.n === n ? "true" : undefined}
					>
						<span className="text-quiet">#{r.n}</span>
						<bdi className="min-w-0 flex-1 basis-32 truncate" title={visible(r.title)}>
							{visible(r.title)}
						</bdi>
						<span className="text-quiet">{r.entry ? bytes(r.entry.size) : "removed"}</span>
						<time dateTime={r.time} className="text-quiet">
							{ago(r.time)}
						</time>
						<button type="button" className="button" disabled={!r.entry || r.n === n} onClick={() => onRevision(r.n)}>
							Look at it
						</button>
						<button
							type="button"
							className="button"
							disabled={refused !== ""}
							title={refused || undefined}
							onClick={() => askWayBack(sandbox, { do: "restore", n: r.n, path: path.path, path_bytes: path.path_bytes })}
						>
							Restore
						</button>
					</li>
				))}
			</ul>
			{list.data?.cut && <p className="p-2 text-quiet">There are older ones, which are not shown here.</p>}
		</div>
	);
}
