// Files: the tree of a machine now or in a revision, one file beside it, and uploads.

import { useQueryClient } from "@tanstack/react-query";
import { Upload } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { Problem } from "../api/http";
import { useSandbox } from "../api/queries";
import { Dialog } from "../ui/dialog";
import { plural } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { clip, Safe, visible } from "../ui/text";
import { useNumber, useParam } from "../ui/url";
import { join, keyOf, type PathRef } from "../undo/paths";
import { onlyLooks, onlyPast, useMay } from "../undo/store";
import { type Known, usePast, useRevisions } from "./changes-data";
import { type Node, useAttended, write } from "./files-data";
import { Tree } from "./files-tree";
import { FileView } from "./files-view";
import type { PaneProps } from "./pane";

export default function FilesPane(props: PaneProps) {
	return <Files key={props.sandbox} {...props} />;
}

function Files({ sandbox, run, past, hidden }: PaneProps) {
	const machine = useSandbox(sandbox).data;
	const [path, setPath] = useParam("file");
	const [rev, setRev] = useNumber("rev");
	const [woken, setWoken] = useState(false);
	const [node, setNode] = useState<Node | null>(null);
	const [dirty, setDirty] = useState(false);
	const [wanted, setWanted] = useState<(() => void) | null>(null); // what would drop what was typed
	const revisions = useRevisions(sandbox, hidden);
	const { known, again } = revisions;
	const attended = useAttended(hidden);
	const may = useMay();
	const moment = usePast(revisions, run, past, hidden);
	const error = revisions.error ?? moment.error;
	const runs = machine?.state === "running";
	const n = rev || moment.n || (runs || woken ? 0 : (known?.revs[0]?.n ?? 0));
	const refused = past ? onlyPast : may ? "" : onlyLooks;
	const upload = useUpload(sandbox);
	const leave = (then: () => void) => (dirty ? setWanted(() => then) : then());
	useWarning(dirty);
	const shown = node && node.path === path ? node : path ? { path, name: "", type: "file" as const, size: 0 } : null;
	if (!machine || !known)
		return error !== null ? (
			<div className="p-2">
				<ProblemBox of={error} again={again} />
			</div>
		) : (
			<p className="p-3 text-quiet">Asking for the files…</p>
		);
	if (moment.why && !rev) return <p className="p-3 text-quiet">{moment.why}</p>;
	const asleep = !runs && !woken && !rev && !past;
	if (asleep && !known.revs.length)
		return <Asleep state={machine.state} n={0} onWake={machine.state === "paused" ? () => setWoken(true) : undefined} />;
	return (
		<div className="@container flex min-h-0 flex-1 flex-col">
			<div className="flex flex-wrap items-center gap-2 border-line border-b px-2 py-1">
				<When known={known} value={rev} now={runs || woken} onChange={(to) => leave(() => setRev(to))} />
				{n === 0 && !refused && <UploadButton onFiles={(files) => upload.ask({ path: "" }, files)} />}
				<span role="status" className="text-quiet">
					{upload.said}
				</span>
			</div>
			{asleep && <Asleep state={machine.state} n={n} onWake={machine.state === "paused" ? () => setWoken(true) : undefined} />}
			{refused && <p className="border-line border-b bg-warn-ground px-2 py-1 text-warn">{refused}</p>}
			{upload.problem !== null && (
				<div className="p-2">
					<ProblemBox of={upload.problem} />
				</div>
			)}
			<div className="flex min-h-0 flex-1 flex-col @2xl:flex-row">
				<div
					className={`flex flex-col border-line ${shown ? "h-[35%] min-h-32 shrink-0 border-b @2xl:h-auto @2xl:w-56 @2xl:border-r @2xl:border-b-0" : "min-h-0 flex-1"}`}
				>
					<Tree
						key={n}
						sandbox={sandbox}
						n={n}
						chosen={path}
						hidden={hidden}
						fresh={attended}
						onChoose={(to) =>
							to.type !== "other" &&
							leave(() => {
								setNode(to);
								setPath(to.path);
							})
						}
						onDrop={n === 0 && !refused ? upload.ask : undefined}
					/>
				</div>
				{shown && (
					<FileView
						key={`${n} ${keyOf(shown)}`}
						sandbox={sandbox}
						n={n}
						path={shown}
						size={shown.size}
						stamp={n || (known.revs[0]?.n ?? 0) + 1}
						refused={refused}
						hidden={hidden}
						onDirty={setDirty}
						onRevision={(to) => leave(() => setRev(to))}
					/>
				)}
			</div>
			<Dialog
				title="Leave without saving?"
				text={`What you typed into ${visible(path)} is not saved.`}
				open={wanted !== null}
				onClose={() => setWanted(null)}
			>
				<div className="flex justify-end gap-2">
					<button type="button" className="button" data-first onClick={() => setWanted(null)}>
						Keep typing
					</button>
					<button
						type="button"
						className="button danger"
						onClick={() => {
							setDirty(false);
							wanted?.();
							setWanted(null);
						}}
					>
						Drop it
					</button>
				</div>
			</Dialog>
			<Replace upload={upload} />
		</div>
	);
}

/** useWarning asks before the tab is closed while a text is not saved. */
function useWarning(dirty: boolean): void {
	useEffect(() => {
		if (!dirty) return;
		const stop = (e: BeforeUnloadEvent) => e.preventDefault();
		addEventListener("beforeunload", stop);
		return () => removeEventListener("beforeunload", stop);
	}, [dirty]);
}

const listMax = 200;

/** When chooses the moment whose files are shown. */
function When({ known, value, now, onChange }: { known: Known; value: number; now: boolean; onChange(n: number): void }) {
	const listed = known.revs.slice(0, listMax);
	return (
		<label className="flex min-w-0 items-center gap-1">
			<span className="text-quiet">as they are</span>
			<select className="field max-w-56 min-w-0" value={value || ""} onChange={(e) => onChange(Number(e.target.value))}>
				<option value="">{now ? "now" : "in the newest revision"}</option>
				{value > 0 && !listed.some((r) => r.n === value) && <option value={value}>in #{value}</option>}
				{listed.map((r) => (
					<option key={r.n} value={r.n}>
						in #{r.n} {visible(clip(r.title, 60))}
					</option>
				))}
			</select>
		</label>
	);
}

function Asleep({ state, n, onWake }: { state: string; n: number; onWake?(): void }) {
	return (
		<div className="flex flex-wrap items-center gap-2 border-line border-b bg-pause-ground px-2 py-1">
			<span className="min-w-0 flex-1 basis-40">
				The machine is {state}. {n ? `These are the files of #${n}, the newest revision.` : "No revision has its files."}
			</span>
			{onWake && (
				<button type="button" className="button" onClick={onWake}>
					Wake it and look
				</button>
			)}
		</div>
	);
}

function UploadButton({ onFiles }: { onFiles(files: File[]): void }) {
	const input = useRef<HTMLInputElement>(null);
	return (
		<>
			<button type="button" className="button" onClick={() => input.current?.click()}>
				<Upload size={14} aria-hidden /> Upload
			</button>
			<input
				ref={input}
				type="file"
				multiple
				className="sr-only"
				tabIndex={-1}
				aria-label="Files to upload"
				onChange={(e) => {
					const files = [...(e.target.files ?? [])];
					e.target.value = "";
					if (files.length) onFiles(files);
				}}
			/>
		</>
	);
}

interface Pending {
	dir: PathRef;
	files: File[];
}

/** useUpload writes files of the person, of which the server makes revisions. What is there already is asked for. */
function useUpload(sandbox: string) {
	const client = useQueryClient();
	const [said, setSaid] = useState("");
	const [problem, setProblem] = useState<unknown>(null);
	const [there, setThere] = useState<Pending | null>(null);
	const put = async (dir: PathRef, files: File[], replace: boolean) => {
		setProblem(null);
		setThere(null);
		const exist: File[] = [];
		let done = 0;
		try {
			if (dir.path_bytes)
				throw new Problem(0, "The name of this directory is no text: files cannot be put there from here", "", "Use `skete cp`.", "");
			for (const f of files) {
				setSaid(`Uploading ${visible(f.name)} (${done + 1} of ${files.length})…`);
				try {
					await write(sandbox, { path: join(dir.path, f.name) }, f, replace ? "" : "absent");
					done++;
				} catch (err) {
					if (replace || !(err instanceof Problem) || err.status !== 412) throw err;
					exist.push(f);
				}
			}
			setSaid(done ? `${plural(done, "file")} uploaded.` : "");
		} catch (err) {
			setSaid(done ? `${plural(done, "file")} of ${files.length} uploaded.` : "");
			setProblem(err);
		}
		if (exist.length) setThere({ dir, files: exist });
		void client.invalidateQueries({ queryKey: ["history", sandbox] });
	};
	return {
		said,
		problem,
		there,
		ask: (dir: PathRef, files: File[]) => void put(dir, files, false),
		replace: () => there && void put(there.dir, there.files, true),
		keep: () => setThere(null),
	};
}

function Replace({ upload }: { upload: ReturnType<typeof useUpload> }) {
	const files = upload.there?.files ?? [];
	return (
		<Dialog
			title={`Replace ${plural(files.length, "file")}?`}
			text="There is a file of this name already. What is there now stays in the history."
			open={files.length > 0}
			onClose={upload.keep}
		>
			<ul className="max-h-60 list-disc overflow-auto pl-5">
				{files.map((f) => (
					<li key={f.name} className="font-mono [overflow-wrap:anywhere]">
						<Safe>{join(upload.there!.dir.path, f.name)}</Safe>
					</li>
				))}
			</ul>
			<div className="flex justify-end gap-2">
				<button type="button" className="button" data-first onClick={upload.keep}>
					Keep what is there
				</button>
				<button type="button" className="button danger" onClick={upload.replace}>
					Replace
				</button>
			</div>
		</Dialog>
	);
}
