// What a machine is and what it may use.

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { get } from "../api/http";
import { useInfo } from "../api/queries";
import type { Sandbox, Schemas } from "../api/types";
import { clock, count, duration, money } from "../ui/format";
import { Isolation } from "../ui/state";
import { Facts } from "../ui/table";
import { Safe } from "../ui/text";
import { MachineMetrics } from "./machine-metrics";
import { left } from "./machines-actions";

export function Overview({ machine: m }: { machine: Sandbox }) {
	const provider = useInfo().data?.providers?.find((p) => p.name === m.provider);
	return (
		<div className="flex min-w-0 flex-col gap-6">
			<MachineMetrics machine={m} />
			<div className="grid min-w-0 grid-cols-1 gap-6 lg:grid-cols-2">
				<Part title="Machine">
					<Facts of={facts(m)} />
				</Part>
				<Part title="Limits">
					<Facts
						of={[
							["CPUs", m.cpus],
							["Memory", `${m.memory_mb} MB`],
							["Disk", `${m.disk_mb} MB`],
							["Processes", m.pids_max],
							["Root inside", m.root ? "yes" : "no"],
							["Network", m.network],
							["Time left", m.state === "destroyed" ? "it is gone" : left(m, Date.now(), duration)],
							["Idle timeout", m.idle_timeout_ms ? duration(m.idle_timeout_ms) : "none"],
							["At its end", m.persist ? "it is stopped, and its files are kept" : "it is removed"],
							...(m.after_run
								? [["After its run", `${m.after_run} when it was not used for ${duration(m.after_run_ms ?? 0)}`] as [string, ReactNode]]
								: []),
						]}
					/>
				</Part>
				<Part title="Isolation">
					<p>
						<Isolation of={m.isolation} /> by the provider {m.provider}
					</p>
					{provider && (
						<Facts
							of={(["pause", "snapshot", "fork", "network"] as const).map((what): [string, ReactNode] => [
								what,
								(provider.can ?? []).includes(what) ? "✓ can" : what === "pause" || what === "network" ? "✕ cannot" : "✕ the files alone",
							])}
						/>
					)}
					{provider && !provider.ok && <p className="text-bad">It does not work now: {provider.error}</p>}
					<Notes of={[...(m.notes ?? []), ...(provider?.notes ?? [])]} />
				</Part>
				<Models machine={m} />
				{(m.deaths?.length ?? 0) > 0 && (
					<Part title="Ends that were not asked for">
						<ul className="list-disc pl-5">
							{m.deaths!.map((d) => (
								<li key={d.time}>
									<time dateTime={d.time}>{clock(d.time)}</time>: <Safe>{d.reason}</Safe>
								</li>
							))}
						</ul>
					</Part>
				)}
				{Object.keys(m.metadata ?? {}).length > 0 && (
					<Part title="Metadata">
						<Facts
							of={Object.entries(m.metadata!).map(([k, v]): [string, ReactNode] => [
								k,
								<span key={k} className="break-all">
									<Safe>{v}</Safe>
								</span>,
							])}
						/>
					</Part>
				)}
			</div>
		</div>
	);
}

function facts(m: Sandbox): [string, ReactNode][] {
	const time = (at: string) => <time dateTime={at}>{clock(at)}</time>;
	const list: [string, ReactNode][] = [
		["Id", <code key="id">{m.id}</code>],
		["Template", <Safe key="t">{m.template}</Safe>],
		["Workspace", <code key="w">{m.workdir}</code>],
		["Made", time(m.created_at)],
	];
	if (m.run)
		list.push([
			"For the run",
			<Link key="r" href={`/runs/${m.run}`} className="text-accent underline">
				{m.run}
			</Link>,
		]);
	if (m.from) list.push(["From the snapshot", <code key="f">{m.from}</code>]);
	if (m.language) list.push(["Language", m.language]);
	if (m.started_at) list.push(["Started", time(m.started_at)]);
	if (m.boot_ms) list.push(["Booted in", duration(m.boot_ms)]);
	if (m.last_used_at) list.push(["Last used", time(m.last_used_at)]);
	if (m.ended_at) list.push(["Ended", time(m.ended_at)]);
	return list;
}

function Notes({ of }: { of: string[] }) {
	if (!of.length) return null;
	return (
		<ul className="list-disc pl-5">
			{[...new Set(of)].map((n) => (
				<li key={n}>
					<Safe>{n}</Safe>
				</li>
			))}
		</ul>
	);
}

function Models({ machine: m }: { machine: Sandbox }) {
	const models = useQuery({
		queryKey: ["usage", "sandbox", m.id],
		queryFn: () => get<Schemas["SandboxModels"]>(`/v1/sandboxes/${encodeURIComponent(m.id)}/models`),
		enabled: !!m.models,
	}).data;
	if (!m.models) return null;
	const bound = (used: string, most: string | undefined) => (most ? `${used} of ${most}` : used);
	return (
		<Part title="Models that its programs may use">
			<p className="break-words">{(models?.models ?? m.models.models ?? []).join(", ") || "none any more"}</p>
			{models && (
				<Facts
					of={[
						["Calls", models.used.calls],
						["Tokens", bound(count(models.used.tokens), models.tokens ? count(models.tokens) : undefined)],
						["Cost", bound(money(models.used.cost_usd), models.cost_usd ? money(models.cost_usd) : undefined)],
					]}
				/>
			)}
		</Part>
	);
}

export function Part({ title, children }: { title: string; children: ReactNode }) {
	return (
		<section aria-label={title} className="flex min-w-0 flex-col gap-2">
			<h2 className="font-semibold">{title}</h2>
			{children}
		</section>
	);
}
