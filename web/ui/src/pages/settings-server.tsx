// What the server has: models, providers, templates, plug-ins, MCP servers.

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { get } from "../api/http";
import { useInfo, useModels } from "../api/queries";
import type { Info, Schemas } from "../api/types";
import { ago, bytes, clock, count, plural } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Isolation } from "../ui/state";
import { Facts, Table } from "../ui/table";
import { Refused } from "../ui/table-scope";
import { Safe } from "../ui/text";
import { useTemplates } from "./machines-create";

const modelStates: Record<Schemas["Model"]["state"], [string, string]> = {
	ready: ["✓ ready: it answered", "text-good"],
	key: ["its key is there; whether it works was not tried", "text-quiet"],
	no_key: ["✕ its key is missing: set it in the environment of the server, or in its configuration", "text-bad"],
	down: ["✕ its server does not answer", "text-bad"],
};

export function Models() {
	const models = useModels();
	if (models.error) return <Refused of={models.error} want="read" what="Models" again={() => void models.refetch()} />;
	if (!models.data) return null;
	return (
		<Table
			label="models"
			rows={models.data.items ?? []}
			id={(m) => m.name}
			empty={
				<p>
					No model is configured. <code>skete doctor</code> says what is missing.
				</p>
			}
			columns={[
				{
					name: "Name",
					cell: (m) => (
						<span className="break-all">
							<strong>
								<Safe>{m.name}</Safe>
							</strong>
							{m.default && <span className="ml-2 rounded border border-accent px-1 text-accent">default</span>}
						</span>
					),
				},
				{
					name: "State",
					wide: true,
					cell: (m) => <span className={modelStates[m.state]?.[1]}>{modelStates[m.state]?.[0] ?? m.state}</span>,
				},
				{ name: "Vendor", cell: (m) => m.vendor },
				{ name: "Its name there", cell: (m) => <Safe>{m.id}</Safe> },
				{
					name: "Window",
					number: true,
					cell: (m) => (m.window_tokens ? `${count(m.window_tokens)}${m.guessed ? " (guessed)" : ""}` : "not known"),
				},
				{ name: "Known from", cell: (m) => m.source },
			]}
		/>
	);
}

/** whyAuto says, by the server's own rules, why auto chose what it did or passed a provider by. */
export function whyAuto(info: Info, name: string): string {
	const list = info.providers ?? [];
	const p = list.find((x) => x.name === name);
	if (!p) return "";
	if (name === info.default_provider) {
		const before = list.slice(0, list.indexOf(p));
		if (!before.length) return "chosen by auto: the strongest of this server";
		return `chosen by auto: the strongest that ${before.some((x) => !x.ok) ? "works here" : "need not be asked for by name"}`;
	}
	if (!p.ok) return "not chosen: it does not work here";
	return passed(p, list) || (info.default_provider ? `not chosen: ${info.default_provider} is stronger` : "not chosen");
}

function passed(p: Schemas["ProviderInfo"], list: Schemas["ProviderInfo"][]): string {
	if (p.isolation === "remote") return "by name only: it is a machine elsewhere";
	if (p.isolation === "microvm-emulated") return "only where it is required: an emulated processor is ten to twenty times slower";
	if (p.isolation === "none" && list[0]?.isolation !== "none") return "by name only: it isolates nothing";
	return "";
}

export function Providers() {
	const info = useInfo();
	if (info.error) return <Refused of={info.error} want="read" what="Providers" again={() => void info.refetch()} />;
	if (!info.data) return null;
	const d = info.data;
	return (
		<div className="flex min-w-0 flex-col gap-3">
			<p>
				The strongest first. A machine that names no provider gets{" "}
				{d.default_provider ? <strong>{d.default_provider}</strong> : <strong className="text-bad">none: no provider works</strong>}.
			</p>
			<ol className="flex min-w-0 flex-col gap-2">
				{(d.providers ?? []).map((p) => (
					<li
						key={p.name}
						className={`flex min-w-0 flex-col gap-1 rounded-md border p-3 ${p.name === d.default_provider ? "border-accent" : "border-line"}`}
					>
						<div className="flex flex-wrap items-center gap-2">
							<strong>{p.name}</strong>
							<Isolation of={p.isolation} />
							<span className={p.ok ? "text-good" : "text-bad"}>{p.ok ? "✓ works here" : "✕ does not work here"}</span>
							<span className="text-quiet">{whyAuto(d, p.name)}</span>
						</div>
						{p.error && (
							<span className="break-words">
								<Safe>{p.error}</Safe>
							</span>
						)}
						{p.hint && (
							<span className="break-words text-quiet">
								Hint: <Safe>{p.hint}</Safe>
							</span>
						)}
						<span className="text-quiet">
							Can {(p.can ?? []).join(", ") || "none of pause, snapshot, fork, network"}
							{["pause", "snapshot", "fork", "network"].some((c) => !(p.can ?? []).includes(c)) &&
								(p.can?.length ?? 0) > 0 &&
								`; cannot ${["pause", "snapshot", "fork", "network"].filter((c) => !(p.can ?? []).includes(c)).join(", ")}`}
							.
						</span>
						{(p.notes?.length ?? 0) > 0 && (
							<ul className="list-disc pl-5">
								{p.notes!.map((n) => (
									<li key={n}>
										<Safe>{n}</Safe>
									</li>
								))}
							</ul>
						)}
					</li>
				))}
			</ol>
			<h2 className="font-semibold">Limits</h2>
			<Facts of={limits(d)} />
		</div>
	);
}

function limits({ limits: l, used: u }: Info): [string, ReactNode][] {
	const of = (n: number, max: number, unit: string) => `${n} ${unit} of ${max ? `${max} ${unit}` : "no limit"}`;
	return [
		["Machines", of(u.sandboxes, l.sandboxes, "")],
		["CPUs", of(u.cpus, l.tenant_cpus, "")],
		["Memory", of(u.memory_mb, l.tenant_memory_mb, "MB")],
		["Disk", `${of(u.disk_held_mb, l.tenant_disk_mb, "MB")}, ${u.disk_mb} MB promised`],
		["A machine at most", `${l.cpus_max} CPUs, ${l.memory_mb_max} MB of memory, ${l.disk_mb_max} MB of disk`],
	];
}

export function Templates() {
	const list = useTemplates();
	if (list.error) return <Refused of={list.error} want="read" what="Templates" again={() => void list.refetch()} />;
	if (!list.data) return null;
	return (
		<div className="flex min-w-0 flex-col gap-3">
			<Table
				label="templates"
				rows={list.data.items ?? []}
				id={(t) => t.name}
				columns={[
					{
						name: "Name",
						cell: (t) => (
							<strong className="break-all">
								<Safe>{t.name}</Safe>
							</strong>
						),
					},
					{
						name: "Made of",
						wide: true,
						cell: (t) => (
							<span className="break-all">
								<Safe>{t.kind === "host" ? "this host's own files" : (t.source?.reference ?? "an archive")}</Safe>
							</span>
						),
					},
					{ name: "Languages", cell: (t) => (t.languages ?? []).join(", ") },
					{ name: "Size", number: true, cell: (t) => bytes(t.bytes) },
					{ name: "Hash", cell: (t) => <code title={t.hash}>{t.hash.slice(0, 12)}</code> },
					{ name: "Made", cell: (t) => (t.created_at ? ago(t.created_at) : "") },
				]}
			/>
			<p className="text-quiet">
				Another one: <code>skete template pull debian:bookworm</code>, by a key with the scope admin.
			</p>
		</div>
	);
}

const pluginLooks: Record<string, string> = { unusable: "text-bad", broken: "text-bad", running: "text-good" };

export function Plugins() {
	const list = useQuery({ queryKey: ["plugins"], queryFn: () => get<Schemas["PluginList"]>("/v1/plugins") });
	if (list.error) return <Refused of={list.error} want="admin" what="Plug-ins" again={() => void list.refetch()} />;
	if (!list.data) return null;
	return (
		<Table
			label="plug-ins"
			rows={list.data.items ?? []}
			id={(p) => p.name}
			empty={<p>There are no plug-ins in the server's folder.</p>}
			below={(p) =>
				p.problems?.length || p.processes?.some((x) => x.error) ? (
					<ul className="list-disc pl-5 text-bad">
						{[...(p.problems ?? []), ...(p.processes ?? []).flatMap((x) => (x.error ? [`${x.tenant}: ${x.error}`] : []))].map((t) => (
							<li key={t} className="break-words">
								<Safe>{t}</Safe>
							</li>
						))}
					</ul>
				) : null
			}
			columns={[
				{
					name: "Name",
					cell: (p) => (
						<strong>
							<Safe>{`${p.name} ${p.version ?? ""}`}</Safe>
						</strong>
					),
				},
				{ name: "State", cell: (p) => <span className={pluginLooks[p.state] ?? "text-quiet"}>{p.state}</span> },
				{ name: "What it is", wide: true, cell: (p) => <Safe>{p.description ?? ""}</Safe> },
				{
					name: "Asked about",
					cell: (p) =>
						(p.hooks ?? [])
							.map((h) => `${h.event} (${(h.tools ?? []).join(", ") || "all tools"}; if it fails: ${h.on_failure})`)
							.join("; "),
				},
				{ name: "Models", cell: (p) => (p.models ?? []).join(", ") },
				{ name: "Secrets", cell: (p) => (p.secrets ?? []).map((s) => `${s.name} to ${(s.hosts ?? []).join(", ")}`).join("; ") },
				{ name: "Processes", number: true, cell: (p) => p.processes?.length ?? 0 },
			]}
		/>
	);
}

const mcpStates: Record<Schemas["MCPServer"]["state"], [string, string]> = {
	unused: ["not used since the server began", "text-quiet"],
	working: ["✓ works", "text-good"],
	broken: ["✕ broken: it does not start, has ended, or does not answer as it should", "text-bad"],
	refused: ["✕ it does not let us in", "text-bad"],
};

export function MCPServers() {
	const list = useQuery({ queryKey: ["mcp"], queryFn: () => get<Schemas["MCPServerList"]>("/v1/mcp/servers") });
	if (list.error) return <Refused of={list.error} want="read" what="MCP servers" again={() => void list.refetch()} />;
	if (!list.data) return null;
	return (
		<Table
			label="MCP servers"
			rows={list.data.items ?? []}
			id={(s) => `${s.name} ${s.tenant ?? ""}`}
			empty={<p>None is configured: mcp_servers in the configuration.</p>}
			below={(s) => (s.error ? <ProblemBox of={new Error(s.error)} /> : null)}
			columns={[
				{
					name: "Name",
					cell: (s) => (
						<strong>
							<Safe>{s.name}</Safe>
						</strong>
					),
				},
				{ name: "State", wide: true, cell: (s) => <span className={mcpStates[s.state]?.[1]}>{mcpStates[s.state]?.[0] ?? s.state}</span> },
				{ name: "Spoken over", cell: (s) => (s.transport === "stdio" ? "a program in the machine" : s.transport) },
				{ name: "Agents", cell: (s) => (s.agents ?? []).join(", ") || "all" },
				{ name: "Tools", number: true, cell: (s) => s.tools },
				{ name: "Open for", cell: (s) => plural(s.sessions, "thread") },
				{ name: "Since", cell: (s) => (s.since ? clock(s.since) : "") },
			]}
		/>
	);
}
