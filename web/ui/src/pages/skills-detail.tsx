// One skill: what it teaches, its files and its versions.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { call, get, query } from "../api/http";
import { useAgents } from "../api/queries";
import type { Schemas } from "../api/types";
import { Dialog } from "../ui/dialog";
import { bytes, clock, plural } from "../ui/format";
import { Markdown } from "../ui/md";
import { ProblemBox } from "../ui/problem";
import { Safe, visible } from "../ui/text";
import { InstallDialog } from "./skills-install";

type Skill = Schemas["Skill"];
type Version = Schemas["SkillVersion"];

const pathOf = (name: string) => `/v1/skills/${encodeURIComponent(name)}`;

/** splitName reads NAME@VERSION of an address. */
export function splitName(name: string): [string, string] {
	const at = name.indexOf("@");
	return at < 0 ? [name, ""] : [name.slice(0, at), name.slice(at + 1)];
}

export const useSkill = (name: string, version = "") =>
	useQuery({ queryKey: ["skills", "one", name, version], queryFn: () => get<Skill>(`${pathOf(name)}${query({ version })}`) });

type Ask = "upgrade" | "remove" | { trust: Version } | { go: Version } | null;

export function SkillView({ name: given }: { name: string }) {
	const [name, version] = splitName(given);
	const skill = useSkill(name, version);
	const [ask, setAsk] = useState<Ask>(null);
	const s = skill.data;
	return (
		<div className="mx-auto flex w-full max-w-6xl min-w-0 flex-col gap-4 p-4">
			<nav aria-label="Breadcrumb" className="text-quiet">
				<Link href="/skills" className="underline">
					Skills
				</Link>{" "}
				/ <Safe>{given}</Safe>
			</nav>
			{skill.error && <ProblemBox of={skill.error} again={() => void skill.refetch()} />}
			{s && (
				<>
					<Head skill={s} version={version} setAsk={setAsk} />
					<Facts skill={s} />
					<Versions skill={s} shown={version || s.version} setAsk={setAsk} />
					<Agents skill={s} />
					<Content skill={s} />
					<Asked ask={ask} skill={s} onClose={() => setAsk(null)} />
				</>
			)}
		</div>
	);
}

function Head({ skill: s, version, setAsk }: { skill: Skill; version: string; setAsk(a: Ask): void }) {
	const older = version && !s.version.startsWith(version);
	return (
		<header className="flex flex-col gap-1">
			<div className="flex flex-wrap items-center gap-2">
				<h1 className="text-base font-semibold">
					<Safe>{s.name}</Safe>
				</h1>
				<Trust on={s.trusted} />
				<span className="flex-1" />
				<button type="button" className="button" onClick={() => setAsk("upgrade")}>
					New version
				</button>
				<button type="button" className="button danger" onClick={() => setAsk("remove")}>
					Remove
				</button>
			</div>
			<p className="break-words">
				<Safe>{s.description}</Safe>
			</p>
			{older && <p className="text-warn">What is shown is the version {version.slice(0, 12)}; new runs get another one.</p>}
		</header>
	);
}

export function Trust({ on }: { on: boolean }) {
	return (
		<span className={`rounded border px-1 whitespace-nowrap ${on ? "border-warn text-warn" : "border-line text-quiet"}`}>
			{on ? "trusted" : "not trusted"}
		</span>
	);
}

function Facts({ skill: s }: { skill: Skill }) {
	const facts: [string, string | undefined][] = [
		["Licence", s.license],
		["Needs", s.compatibility],
		["Allowed tools", s.allowed_tools?.join(" ")],
		["It is a tool as well", s.tool && `${s.tool.name}: ${s.tool.description}`],
		...Object.entries(s.metadata ?? {}),
	];
	return (
		<>
			{s.warnings?.map((w) => (
				<p key={w} className="break-words text-warn">
					Warning: <Safe>{w}</Safe>
				</p>
			))}
			<dl className="grid grid-cols-[auto_1fr] gap-x-4 gap-y-1">
				{facts
					.filter(([, v]) => v)
					.map(([k, v]) => (
						<div key={k} className="contents">
							<dt className="text-quiet">
								<Safe>{k}</Safe>
							</dt>
							<dd className="min-w-0 break-words">
								<Safe>{v ?? ""}</Safe>
							</dd>
						</div>
					))}
			</dl>
		</>
	);
}

function Versions({ skill: s, shown, setAsk }: { skill: Skill; shown: string; setAsk(a: Ask): void }) {
	return (
		<section aria-labelledby="versions">
			<h2 id="versions" className="font-semibold">
				Versions
			</h2>
			{/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys. */}
			<section className="relative overflow-x-auto" tabIndex={0} aria-label="Table of versions">
				<table className="table">
					<thead>
						<tr>
							{["Version", "Source", "Files", "Size", "Installed", "Trusted by", "Actions"].map((h) => (
								<th key={h} scope="col">
									{h}
								</th>
							))}
						</tr>
					</thead>
					<tbody>
						{[...(s.versions ?? [])].reverse().map((v) => (
							<tr key={v.version}>
								<td className="whitespace-nowrap">
									<Link
										href={`/skills/${encodeURIComponent(s.name)}@${v.version}`}
										className="text-accent underline-offset-2 hover:underline"
									>
										<code title={v.version}>{v.version.slice(0, 12)}</code>
									</Link>
									{v.version === s.version && " current"}
									{v.version.startsWith(shown) && <span className="sr-only"> shown</span>}
								</td>
								<td className="break-words">
									<Safe>{v.from ?? ""}</Safe>
								</td>
								<td>{v.files}</td>
								<td className="whitespace-nowrap">{bytes(v.bytes)}</td>
								<td className="whitespace-nowrap text-quiet">{clock(v.installed_at)}</td>
								<td>
									<Safe>{v.trusted_by ?? ""}</Safe>
								</td>
								<td>
									<span className="flex flex-wrap gap-1">
										{v.version !== s.version && (
											<button type="button" className="button" onClick={() => setAsk({ go: v })}>
												Go to this version
											</button>
										)}
										<button type="button" className="button" onClick={() => setAsk({ trust: v })}>
											{v.trusted_by ? "Trust no longer" : "Trust"}
										</button>
									</span>
								</td>
							</tr>
						))}
					</tbody>
				</table>
			</section>
		</section>
	);
}

function useChange(name: string) {
	const [problem, setProblem] = useState<unknown>(null);
	const [busy, setBusy] = useState(false);
	const client = useQueryClient();
	const change = async (body: Schemas["ChangeSkill"] | null): Promise<boolean> => {
		setBusy(true);
		setProblem(null);
		try {
			await call(pathOf(name), body ? { method: "PATCH", body } : { method: "DELETE" });
			if (body) await client.invalidateQueries({ queryKey: ["skills"] });
			else await client.invalidateQueries({ queryKey: ["skills", "list"] });
			setBusy(false);
			return true;
		} catch (err) {
			setProblem(err);
			setBusy(false);
			return false;
		}
	};
	return { problem, busy, change };
}

function Agents({ skill: s }: { skill: Skill }) {
	const agents = useAgents();
	const { problem, busy, change } = useChange(s.name);
	const own = s.agents ?? [];
	const names = [...new Set([...(agents.data?.items ?? []).map((a) => a.name), ...own])].sort();
	const toggle = (name: string) => {
		const next = own.includes(name) ? own.filter((a) => a !== name) : [...own, name];
		void change({ agents: next });
	};
	return (
		<fieldset className="flex flex-col gap-1" disabled={busy}>
			<legend className="font-semibold">Agents that have it</legend>
			<p className="text-quiet">
				{own.length
					? `New runs of ${plural(own.length, "agent")} have it; with none marked, all agents do.`
					: "All agents have it. Mark some, and it is theirs alone."}
			</p>
			<div className="flex flex-wrap gap-3">
				{names.map((n) => (
					<label key={n} className="flex min-h-7 items-center gap-1">
						<input type="checkbox" checked={own.includes(n)} onChange={() => toggle(n)} />
						<Safe>{n}</Safe>
					</label>
				))}
			</div>
			{problem !== null && <ProblemBox of={problem} />}
		</fieldset>
	);
}

function Content({ skill: s }: { skill: Skill }) {
	return (
		<>
			<section aria-labelledby="files">
				<h2 id="files" className="font-semibold">
					Files
				</h2>
				<ul className="max-h-60 overflow-auto rounded-md bg-sunken p-2">
					{(s.files ?? []).map((f) => (
						<li key={f} className="break-all">
							<code>
								<Safe>{f}</Safe>
							</code>
						</li>
					))}
				</ul>
			</section>
			<section aria-labelledby="instructions">
				<h2 id="instructions" className="font-semibold">
					SKILL.md
				</h2>
				<div className="rounded-md border border-line p-3">
					<Markdown text={s.instructions ?? ""} />
				</div>
			</section>
		</>
	);
}

function Asked({ ask, skill, onClose }: { ask: Ask; skill: Skill; onClose(): void }) {
	if (!ask) return null;
	if (ask === "upgrade") return <InstallDialog upgrade={skill.name} onClose={onClose} />;
	return <Sure ask={ask} skill={skill} onClose={onClose} />;
}

interface Question {
	title: string;
	text: string;
	action: string;
	body: Schemas["ChangeSkill"] | null;
}

/** questionOf says what a change would mean, before it is made. */
export function questionOf(ask: "remove" | { trust: Version } | { go: Version }, s: Skill): Question {
	const name = visible(s.name);
	if (ask === "remove")
		return {
			title: `Remove the skill ${name}?`,
			text: "All its versions go. Runs that need it anew cannot have it any more.",
			action: `Remove ${name}`,
			body: null,
		};
	if ("go" in ask) {
		const v = ask.go.version;
		return {
			title: `Go to version ${v.slice(0, 12)} of ${name}?`,
			text: `New runs get it. Runs under way keep what they began with. It is ${ask.go.trusted_by ? "trusted" : "not trusted"}.`,
			action: "Go to this version",
			body: { version: v },
		};
	}
	const v = ask.trust;
	if (v.trusted_by)
		return {
			title: `Trust version ${v.version.slice(0, 12)} of ${name} no longer?`,
			text: "At once, also in runs under way, rules ask again.",
			action: "Trust no longer",
			body: { distrust: v.version },
		};
	return {
		title: `Trust version ${v.version.slice(0, 12)} of ${name}?`,
		text: "In threads that have learned it, the calls that its allowed tools name run without a question where a rule asks. Never what a rule denies. Another version asks again.",
		action: "Trust this version",
		body: { trust: v.version },
	};
}

function Sure({ ask, skill, onClose }: { ask: "remove" | { trust: Version } | { go: Version }; skill: Skill; onClose(): void }) {
	const { problem, busy, change } = useChange(skill.name);
	const [, go] = useLocation();
	const q = questionOf(ask, skill);
	const tools =
		"allowed_tools" in skill && typeof ask === "object" && "trust" in ask && ask.trust.version === skill.version
			? skill.allowed_tools
			: undefined;
	const act = async () => {
		if (!(await change(q.body))) return;
		onClose();
		if (!q.body) go("/skills");
		else if (q.body.version) go(`/skills/${encodeURIComponent(skill.name)}`);
	};
	return (
		<Dialog open onClose={onClose} title={q.title} text={q.text}>
			{tools && tools.length > 0 && (
				<p className="break-words">
					Allowed tools:{" "}
					<code>
						<Safe>{tools.join(" ")}</Safe>
					</code>
				</p>
			)}
			{problem !== null && <ProblemBox of={problem} />}
			<div className="flex justify-end gap-2">
				<button type="button" className="button" data-first onClick={onClose}>
					Leave it as it is
				</button>
				<button type="button" className="button danger" disabled={busy} onClick={() => void act()}>
					{q.action}
				</button>
			</div>
		</Dialog>
	);
}
