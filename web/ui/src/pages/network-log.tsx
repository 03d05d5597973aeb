// The decisions about what machines sent, grouped by host, and the way to allow what was refused.

import { type QueryClient, useMutation, useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { ChevronRight } from "lucide-react";
import { useEffect, useState } from "react";
import { call, get } from "../api/http";
import type { Sandbox, Schemas } from "../api/types";
import { Dialog } from "../ui/dialog";
import { ago, clock, plural } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Facets, Scroll } from "../ui/table";
import { useLacking } from "../ui/table-scope";
import { Safe } from "../ui/text";
import { useParam } from "../ui/url";
import { nameOf } from "./machines-actions";
import { MachineLink } from "./machines-do";
import {
	blocked,
	type Decision,
	type Group,
	group,
	merged,
	offers,
	type Policy,
	type Rule,
	ruleText,
	type Seen,
	withoutRule,
	withRule,
} from "./network-rules";

const of = (id: string) => `/v1/sandboxes/${encodeURIComponent(id)}/network`;

/** read asks for what is new since the last time, and for all when that does not fit together. */
async function read(client: QueryClient, queryKey: string[], id: string): Promise<Decision[]> {
	const log = (from: number) => get<Schemas["NetworkLog"]>(`${of(id)}/log${from ? `?from=${from}` : ""}`);
	const old = client.getQueryData<Decision[]>(queryKey) ?? [];
	const more = (await log(old.at(-1)?.n ?? 0)).items ?? [];
	return merged(old, more) ?? (await log(0)).items ?? [];
}

/** machinesMax is of how many machines the decisions are asked for at once. */
export const machinesMax = 25;

/** useLogs are the decisions about some machines, kept fresh by the events of networks. */
export function useLogs(ids: string[]) {
	const client = useQueryClient();
	return useQueries({
		queries: ids.slice(0, machinesMax).map((id) => {
			const queryKey = ["network", "log", id];
			return { queryKey, queryFn: () => read(client, queryKey, id) };
		}),
		combine: (list) => ({
			seen: list.flatMap((q, i): Seen[] => (q.data ?? []).map((d) => ({ sandbox: ids[i]!, d }))),
			error: list.find((q) => q.error)?.error ?? null,
			ready: list.every((q) => !q.isPending),
		}),
	});
}

export const usePolicy = (id: string) =>
	useQuery({ queryKey: ["network", "policy", id], queryFn: () => get<Policy>(of(id)), enabled: !!id });

const shows = ["", "refused", "allowed"] as const;

interface LogProps {
	machines: Sandbox[];
	/** one: it is on the page of a machine, which needs no column of machines. */
	one?: boolean;
}

export function DecisionLog({ machines, one }: LogProps) {
	const { seen, error, ready } = useLogs(machines.map((m) => m.id));
	const [show, setShow] = useParam("show");
	const [text, setText] = useParam("host");
	const [undo, setUndo] = useState<Added | null>(null);
	const [asked, setAsked] = useState<Seen | null>(null);
	const groups = group(seen);
	const shown = groups.filter(
		(g) => g.host.includes(text.trim().toLowerCase()) && (show !== "refused" || g.refused) && (show !== "allowed" || g.allowed),
	);
	const names = new Map(machines.map((m) => [m.id, nameOf(m)]));
	return (
		<section aria-label="Decisions" className="flex min-w-0 flex-col gap-2">
			<div className="flex min-w-0 flex-wrap gap-2">
				<Facets
					label="Show hosts that were"
					on={show}
					onPick={setShow}
					of={shows.map((s): [string, string, number] => [
						s,
						s || "all hosts",
						s === "refused"
							? groups.filter((g) => g.refused).length
							: s === "allowed"
								? groups.filter((g) => g.allowed).length
								: groups.length,
					])}
				/>
				<input
					type="search"
					className="field min-w-0 flex-1"
					aria-label="Find hosts"
					placeholder="host"
					value={text}
					onChange={(e) => setText(e.target.value)}
				/>
			</div>
			{undo && <Undo key={JSON.stringify(undo)} of={undo} onOver={() => setUndo(null)} />}
			{error && <ProblemBox of={error} />}
			{ready && !error && !seen.length && (
				<p className="text-quiet">
					Nothing was sent yet. The last 1,000 decisions of a machine are kept while the server runs; also by <code>skete egress log</code>.
				</p>
			)}
			{seen.length > 0 && !shown.length && <p>No host is like that. {plural(groups.length, "host")} hidden by the filter.</p>}
			{shown.map((g) => (
				<HostGroup
					key={g.host}
					of={g}
					first={shown.length <= openMax && g.refused > 0}
					show={show}
					names={one ? null : names}
					onAllow={setAsked}
				/>
			))}
			{asked && (
				<Allow
					of={asked}
					machine={names.get(asked.sandbox) ?? asked.sandbox}
					onClose={() => setAsked(null)}
					onDone={(rule) => {
						setAsked(null);
						setUndo({ sandbox: asked.sandbox, machine: names.get(asked.sandbox) ?? asked.sandbox, rule, until: Date.now() + undoMS });
					}}
				/>
			)}
		</section>
	);
}

const rowsMax = 100;

/** openMax is up to how many hosts those with refusals are opened at once. */
const openMax = 8;

interface GroupProps {
	of: Group;
	first: boolean;
	show: string;
	names: Map<string, string> | null;
	onAllow(s: Seen): void;
}

function HostGroup({ of: g, first, show, names, onAllow }: GroupProps) {
	const [open, setOpen] = useState(first);
	const rows = g.rows.filter(({ d }) => !show || d.allowed === (show === "allowed"));
	return (
		<details className="group min-w-0 rounded-md border border-line" open={open} onToggle={(e) => setOpen(e.currentTarget.open)}>
			<summary className="flex min-h-8 flex-wrap items-center gap-x-4 px-3 py-1">
				<strong className="flex min-w-0 items-center gap-1 break-all">
					<ChevronRight size={14} className="shrink-0 group-open:rotate-90" aria-hidden />
					<Safe>{g.host}</Safe>
				</strong>
				{g.refused > 0 && <span className="text-bad">✕ {g.refused} refused</span>}
				{g.allowed > 0 && <span className="text-good">✓ {g.allowed} allowed</span>}
				<span className="flex-1" />
				<span className="text-quiet">{ago(g.last)}</span>
			</summary>
			{open && (
				<Scroll label={`Decisions about ${g.host}`}>
					<table className="table">
						<thead>
							<tr>
								{["Time", ...(names ? ["Machine"] : []), "Verdict", "Times", "Request", "Rule or reason", "Secrets", ""].map((h) => (
									<th key={h} scope="col">
										{h || <span className="sr-only">Action</span>}
									</th>
								))}
							</tr>
						</thead>
						<tbody>
							{rows.slice(0, rowsMax).map((s) => (
								<Row key={`${s.sandbox} ${s.d.n}`} of={s} name={names?.get(s.sandbox)} onAllow={onAllow} />
							))}
						</tbody>
					</table>
					{rows.length > rowsMax && <p className="p-2 text-quiet">{rows.length - rowsMax} older ones are not shown.</p>}
				</Scroll>
			)}
		</details>
	);
}

function Row({ of: s, name, onAllow }: { of: Seen; name?: string; onAllow(s: Seen): void }) {
	const { d } = s;
	const why = blocked(d);
	return (
		<tr>
			<td className="whitespace-nowrap">
				<time dateTime={d.time}>{clock(d.time)}</time>
			</td>
			{name !== undefined && (
				<td>
					<MachineLink id={s.sandbox} name={name} tab="network" />
				</td>
			)}
			<td className={`whitespace-nowrap ${d.allowed ? "text-good" : "text-bad"}`}>{d.allowed ? "✓ allowed" : "✕ refused"}</td>
			<td className="text-right">{d.times}</td>
			<td className="min-w-40 break-all">
				<code>
					<Safe>{requestOf(d)}</Safe>
				</code>
			</td>
			<td className="min-w-40 break-words">
				<Safe>{(d.allowed ? d.rule : d.why) ?? ""}</Safe>
			</td>
			<td className="break-words">
				<Safe>{d.secrets ?? ""}</Safe>
			</td>
			<td>
				{!d.allowed &&
					(why ? (
						<span className="block min-w-40 text-quiet">{why === `${d.why}.` ? "No rule can allow it." : why}</span>
					) : (
						<AllowButton of={s} onAllow={onAllow} />
					))}
			</td>
		</tr>
	);
}

/** requestOf is what was asked for, in one line. */
export function requestOf(d: Decision): string {
	const at = `${d.host.includes(":") ? `[${d.host}]` : d.host}:${d.port}`;
	return d.method ? `${d.method} ${at}${d.path ?? ""}` : `connection to ${at}`;
}

export function AllowButton({ of, onAllow }: { of: Seen; onAllow(s: Seen): void }) {
	const lacks = useLacking("write");
	return (
		<button type="button" className="button" disabled={!!lacks} title={lacks || undefined} onClick={() => onAllow(of)}>
			Allow…
		</button>
	);
}

/** change reads the policy anew, so that what others changed meanwhile is kept, and writes it. */
async function change(client: QueryClient, id: string, how: (p: Policy) => Policy | null): Promise<void> {
	const next = how(await get<Policy>(of(id)));
	if (!next) throw new Error("The rule is not there any more: the policy was changed meanwhile.");
	await call(of(id), { method: "PUT", body: next });
	await client.invalidateQueries({ queryKey: ["network"] });
}

interface AllowProps {
	of: Seen;
	machine: string;
	onClose(): void;
	onDone(rule: Rule): void;
}

/** Allow shows the rule, as it will be saved, before it is. The narrowest one is chosen at first. */
export function Allow({ of: s, machine, onClose, onDone }: AllowProps) {
	const list = offers(s.d);
	const [n, setN] = useState(0);
	const rule = list[n]?.rule;
	const client = useQueryClient();
	const save = useMutation({
		mutationFn: (r: Rule) => change(client, s.sandbox, (p) => withRule(p, r)),
		onSuccess: (_, r) => onDone(r),
	});
	return (
		<Dialog
			title={`Allow for ${machine}`}
			open
			onClose={() => !save.isPending && onClose()}
			text={
				<span className="break-all">
					It was refused: <Safe>{requestOf(s.d)}</Safe>
				</span>
			}
		>
			<form
				className="flex min-w-0 flex-col gap-3"
				onSubmit={(e) => {
					e.preventDefault();
					if (rule) save.mutate(rule);
				}}
			>
				<fieldset className="flex min-w-0 flex-col gap-2">
					<legend className="mb-1 font-medium">What this machine, and no other, may do from the next request on</legend>
					{list.map((o, i) => (
						<label key={ruleText(o.rule)} className="flex min-w-0 items-start gap-2">
							<input type="radio" name="rule" className="mt-1" checked={i === n} onChange={() => setN(i)} />
							<span className="min-w-0">
								<span className="break-words">
									<Safe>{o.words}</Safe>
								</span>
								<code className="block break-all text-quiet">
									allow <Safe>{ruleText(o.rule)}</Safe>
								</code>
							</span>
						</label>
					))}
				</fieldset>
				{rule && (
					<p>
						This rule is added:{" "}
						<code data-rule className="break-all font-semibold">
							allow <Safe>{ruleText(rule)}</Safe>
						</code>
					</p>
				)}
				{save.error && <ProblemBox of={save.error} />}
				<div className="flex flex-wrap justify-end gap-2">
					<button type="button" className="button" data-first onClick={onClose} disabled={save.isPending}>
						Keep refused
					</button>
					<button type="submit" className="button main" disabled={!rule || save.isPending}>
						{save.isPending ? "Saving…" : "Add this rule"}
					</button>
				</div>
			</form>
		</Dialog>
	);
}

export const undoMS = 10_000;

export interface Added {
	sandbox: string;
	machine: string;
	rule: Rule;
	until: number;
}

/** Undo takes a rule away again, in its first seconds. */
export function Undo({ of: a, onOver }: { of: Added; onOver(): void }) {
	const client = useQueryClient();
	const [left, setLeft] = useState(() => Math.ceil((a.until - Date.now()) / 1000));
	const undo = useMutation({ mutationFn: () => change(client, a.sandbox, (p) => withoutRule(p, a.rule)), onSuccess: onOver });
	const held = undo.isPending || !!undo.error;
	useEffect(() => {
		if (held) return;
		const t = setInterval(() => {
			const s = Math.ceil((a.until - Date.now()) / 1000);
			if (s > 0) setLeft(s);
			else onOver();
		}, 250);
		return () => clearInterval(t);
	}, [a, held, onOver]);
	return (
		<div className="flex flex-wrap items-center gap-2 rounded-md border border-accent bg-raised p-2">
			<span role="status" className="min-w-0 break-all">
				Allowed for <Safe>{a.machine}</Safe>: <code>{<Safe>{ruleText(a.rule)}</Safe>}</code>. The next try passes.
			</span>
			<button type="button" className="button" disabled={undo.isPending} onClick={() => undo.mutate()}>
				Undo<span aria-hidden> ({left} s)</span>
			</button>
			{undo.error && <ProblemBox of={undo.error} again={onOver} />}
		</div>
	);
}

const profiles: Record<string, string> = {
	none: "Nothing leaves it but what is allowed here.",
	default: "It reads where packages and public repositories are, and nothing else but what is allowed here.",
	open: "Everything to public addresses leaves it but what is denied here.",
};

/** PolicyView shows what may leave a machine, each rule with the way to take it away. */
export function PolicyView({ machine: m }: { machine: Sandbox }) {
	const policy = usePolicy(m.id);
	const lacks = useLacking("write");
	const client = useQueryClient();
	const [asked, setAsked] = useState<{ list: "allow" | "deny"; rule: Rule } | null>(null);
	const drop = useMutation({
		mutationFn: (a: { list: "allow" | "deny"; rule: Rule }) => change(client, m.id, (p) => withoutRule(p, a.rule, a.list)),
		onSuccess: () => setAsked(null),
	});
	if (policy.error) return <ProblemBox of={policy.error} again={() => void policy.refetch()} />;
	const p = policy.data;
	if (!p) return null;
	const rules = [
		...(p.deny ?? []).map((rule) => ({ list: "deny" as const, rule })),
		...(p.allow ?? []).map((rule) => ({ list: "allow" as const, rule })),
	];
	return (
		<section aria-label="Policy" className="flex min-w-0 flex-col gap-2">
			<h2 className="font-semibold">Profile {p.profile ?? "none"}</h2>
			<p>{profiles[p.profile ?? "none"]}</p>
			{rules.length > 0 && (
				<ul className="flex flex-col gap-1">
					{rules.map((r, i) => (
						<li key={i} className="flex min-w-0 flex-wrap items-center gap-2">
							<span className={r.list === "deny" ? "text-bad" : "text-good"}>{r.list === "deny" ? "✕ deny" : "✓ allow"}</span>
							<code className="min-w-0 break-all">
								<Safe>{ruleText(r.rule)}</Safe>
							</code>
							<button type="button" className="button" disabled={!!lacks} title={lacks || undefined} onClick={() => setAsked(r)}>
								Take away…
							</button>
						</li>
					))}
				</ul>
			)}
			{(p.usual?.length ?? 0) > 0 && (
				<details>
					<summary>{plural(p.usual!.length, "rule")} of the profile default</summary>
					<ul>
						{p.usual!.map((r, i) => (
							<li key={i}>
								<code className="break-all">
									<Safe>{ruleText(r)}</Safe>
								</code>
							</li>
						))}
					</ul>
				</details>
			)}
			{asked && (
				<Dialog
					title={`Take a rule away from ${nameOf(m)}`}
					open
					onClose={() => setAsked(null)}
					text={
						asked.list === "deny"
							? "What it denies may be allowed by others then."
							: "What it allows is refused from the next request on, unless another rule allows it."
					}
				>
					<code className="break-all">
						{asked.list} <Safe>{ruleText(asked.rule)}</Safe>
					</code>
					{drop.error && <ProblemBox of={drop.error} />}
					<div className="flex justify-end gap-2">
						<button type="button" className="button" data-first onClick={() => setAsked(null)}>
							Keep
						</button>
						<button type="button" className="button danger" disabled={drop.isPending} onClick={() => drop.mutate(asked)}>
							Take away
						</button>
					</div>
				</Dialog>
			)}
		</section>
	);
}
