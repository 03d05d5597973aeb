// Installing a skill, or a new version of one: it is shown first.

import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useLocation } from "wouter";
import { base64, bytesOf } from "../api/base64";
import { call } from "../api/http";
import type { Schemas } from "../api/types";
import { Dialog } from "../ui/dialog";
import { plural } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Safe, visible } from "../ui/text";
import { fileButton } from "../workflow/file-button";
import { folderWrong, skillBytesMax, tarOf } from "./skills-tar";

type Skill = Schemas["Skill"];

interface Chosen {
	archive: string;
	from: string;
}

/** archiveMax: what the server takes of an archive. */
const archiveMax = skillBytesMax + (4 << 20);

async function ofArchive(file: File): Promise<Chosen> {
	if (file.size > archiveMax) throw new Error(`${file.name} has ${Math.ceil(file.size / (1 << 20))} MiB; an archive has at most 20.`);
	return { archive: base64(await bytesOf(file)), from: file.name };
}

async function ofFolder(files: File[]): Promise<Chosen> {
	const named = files.map((f) => ({ file: f, path: f.webkitRelativePath || f.name })).filter((f) => !f.path.split("/").includes(".git"));
	const wrong = folderWrong(named.map((f) => ({ path: f.path, size: f.file.size })));
	if (wrong) throw new Error(wrong);
	const entries = await Promise.all(named.map(async (f) => ({ path: f.path, bytes: await bytesOf(f.file) })));
	return { archive: base64(tarOf(entries)), from: `folder ${named[0]?.path.split("/")[0] ?? ""}` };
}

interface Props {
	/** upgrade names the skill that gets a new version; none = a new skill. */
	upgrade?: string;
	onClose(): void;
}

export function InstallDialog({ upgrade, onClose }: Props) {
	const [chosen, setChosen] = useState<Chosen | null>(null);
	const [path, setPath] = useState("");
	const [preview, setPreview] = useState<Skill | null>(null);
	const [trust, setTrust] = useState(false);
	const [agents, setAgents] = useState("");
	const [problem, setProblem] = useState<unknown>(null);
	const [busy, setBusy] = useState(false);
	const client = useQueryClient();
	const [, go] = useLocation();
	const attempt = async (what: () => Promise<void>) => {
		setBusy(true);
		setProblem(null);
		try {
			await what();
		} catch (err) {
			setProblem(err);
		}
		setBusy(false);
	};
	const look = async (c: Chosen) => {
		setChosen(c);
		setPreview(await install({ ...c, path: path || undefined, dry_run: true }));
	};
	const pick = (get: () => Promise<Chosen>) => {
		setPreview(null);
		setChosen(null);
		setTrust(false);
		void attempt(async () => look(await get()));
	};
	const confirm = () =>
		attempt(async () => {
			const names = agents.split(/[\s,]+/).filter(Boolean);
			const done = await install({
				...chosen!,
				path: path || undefined,
				new: !upgrade || undefined,
				trust: trust || undefined,
				agents: !upgrade && names.length ? names : undefined,
			});
			await client.invalidateQueries({ queryKey: ["skills"] });
			onClose();
			go(`/skills/${encodeURIComponent(done.name)}`);
		});
	const other = !!preview && !!upgrade && preview.name !== upgrade;
	return (
		<Dialog
			open
			wide
			onClose={onClose}
			title={upgrade ? `New version of ${visible(upgrade)}` : "Install a skill"}
			text="Choose the folder of a skill, or a zip, tar or tar.gz of it. Nothing is installed before you have seen it."
		>
			<Sources onFolder={(f) => pick(() => ofFolder(f))} onArchive={(f) => pick(() => ofArchive(f))} busy={busy} />
			<label className="flex flex-wrap items-center gap-2">
				Folder in the archive, if there are several
				<input className="field" value={path} onChange={(e) => setPath(e.target.value)} maxLength={240} />
				{chosen && (
					<button type="button" className="button" disabled={busy} onClick={() => void attempt(() => look(chosen))}>
						Look again
					</button>
				)}
			</label>
			<p className="text-quiet">
				From git: <code>skete skill {upgrade ? `upgrade ${visible(upgrade)}` : "install"} https://…</code>; git runs where you are, not at
				the server.
			</p>
			{problem !== null && <ProblemBox of={problem} />}
			{preview && (
				<Preview of={preview}>
					{other && (
						<p role="alert" className="text-bad">
							This is the skill <Safe>{preview.name}</Safe>, and no version of <Safe>{upgrade ?? ""}</Safe>.
						</p>
					)}
					{!upgrade && (
						<label className="flex flex-wrap items-center gap-2">
							Agents that have it (none = all)
							<input className="field" value={agents} onChange={(e) => setAgents(e.target.value)} placeholder="default reviewer" />
						</label>
					)}
					{(preview.allowed_tools?.length ?? 0) > 0 && (
						<label className="flex items-start gap-2">
							<input type="checkbox" className="mt-1" checked={trust} onChange={(e) => setTrust(e.target.checked)} />
							<span>
								Trust this version: its allowed tools, which are shown above, run without a question where a rule asks. Never what a rule
								denies.
							</span>
						</label>
					)}
				</Preview>
			)}
			<div className="flex justify-end gap-2">
				<button type="button" className="button" data-first onClick={onClose}>
					Close
				</button>
				<button type="button" className="button main" disabled={busy || !preview || other} onClick={() => void confirm()}>
					{preview ? `Install ${visible(preview.name)}` : "Install"}
				</button>
			</div>
		</Dialog>
	);
}

const install = (body: Schemas["InstallSkill"] | Record<string, unknown>) => call<Skill>("/v1/skills", { method: "POST", body });

function Sources({ onFolder, onArchive, busy }: { onFolder(f: File[]): void; onArchive(f: File): void; busy: boolean }) {
	return (
		<div className="flex flex-wrap gap-4">
			<label className="flex flex-col gap-1">
				Folder
				<input
					type="file"
					className={fileButton}
					multiple
					disabled={busy}
					ref={(el) => el?.setAttribute("webkitdirectory", "")}
					onChange={(e) => e.target.files?.length && onFolder([...e.target.files])}
				/>
			</label>
			<label className="flex flex-col gap-1">
				Archive
				<input
					type="file"
					className={fileButton}
					accept=".zip,.tar,.tar.gz,.tgz"
					disabled={busy}
					onChange={(e) => e.target.files?.[0] && onArchive(e.target.files[0])}
				/>
			</label>
		</div>
	);
}

function Preview({ of: s, children }: { of: Skill; children: ReactNode }) {
	return (
		<section aria-label="What would be installed" className="flex flex-col gap-2 rounded-md border border-line bg-raised p-3">
			<p className="break-words">
				<strong>
					<Safe>{s.name}</Safe>
				</strong>
				: <Safe>{s.description}</Safe>
			</p>
			<p>
				Version <code>{s.version.slice(0, 16)}</code>, {plural(s.files?.length ?? 0, "file")}
			</p>
			<ul className="max-h-40 overflow-auto rounded bg-sunken p-2">
				{(s.files ?? []).map((f) => (
					<li key={f} className="break-all">
						<code>
							<Safe>{f}</Safe>
						</code>
					</li>
				))}
			</ul>
			{(s.allowed_tools?.length ?? 0) > 0 && (
				<p className="break-words">
					Allowed tools that its author wants:{" "}
					<code>
						<Safe>{s.allowed_tools!.join(" ")}</Safe>
					</code>
				</p>
			)}
			{s.tool && (
				<p>
					It is a tool as well:{" "}
					<code>
						<Safe>{s.tool.name}</Safe>
					</code>
				</p>
			)}
			{s.warnings?.map((w) => (
				<p key={w} className="break-words text-warn">
					Warning: <Safe>{w}</Safe>
				</p>
			))}
			{children}
		</section>
	);
}
