// Doing something with machines: it shows as under way until the server tells how the machine
// is then, and what went wrong stays with the machine, whole.

import { type QueryClient, useQuery, useQueryClient } from "@tanstack/react-query";
import { ChevronDown } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import { createContext, type ReactNode, useContext, useState, useSyncExternalStore } from "react";
import { Link } from "wouter";
import { call, get, key, post } from "../api/http";
import { useInfo } from "../api/queries";
import type { Sandbox, Schemas } from "../api/types";
import { Dialog } from "../ui/dialog";
import { duration, plural } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Field } from "../ui/table";
import { useLacking } from "../ui/table-scope";
import { Safe } from "../ui/text";
import { type Action, actions, doing, nameOf, noMemory, shared, titles, type Verb } from "./machines-actions";

interface Moving {
	doing: ReadonlyMap<string, Verb>;
	failed: ReadonlyMap<string, { verb: Verb; problem: unknown }>;
}

let moving: Moving = { doing: new Map(), failed: new Map() };
const listeners = new Set<() => void>();

function change(id: string, verb: Verb | null, failed: { verb: Verb; problem: unknown } | null): void {
	const next = { doing: new Map(moving.doing), failed: new Map(moving.failed) };
	if (verb) next.doing.set(id, verb);
	else next.doing.delete(id);
	if (failed) next.failed.set(id, failed);
	else next.failed.delete(id);
	moving = next;
	for (const on of listeners) on();
}

function watch(on: () => void): () => void {
	listeners.add(on);
	return () => listeners.delete(on);
}

/** useMoving tells what is under way with machines, and what went wrong. */
export const useMoving = () => useSyncExternalStore(watch, () => moving);

const of = (id: string) => `/v1/sandboxes/${encodeURIComponent(id)}`;

const stale: Partial<Record<Verb, string[]>> = { snapshot: ["snapshots"], destroy: ["info"], fork: ["info"] };

/** act does something with a machine. It is over when the machine's new state is there, not before. */
async function act(client: QueryClient, id: string, verb: Verb, run: () => Promise<unknown>): Promise<void> {
	if (moving.doing.has(id)) return;
	change(id, verb, null);
	try {
		await run();
		await Promise.all(["sandboxes", ...(stale[verb] ?? [])].map((k) => client.invalidateQueries({ queryKey: [k] })));
		change(id, null, null);
	} catch (problem) {
		void client.invalidateQueries({ queryKey: ["sandboxes"] });
		change(id, null, { verb, problem });
	}
}

const atOnce = 4;

/** each does something with several machines, a few at a time. */
async function each(list: Sandbox[], run: (s: Sandbox) => Promise<void>): Promise<void> {
	const rest = [...list];
	const work = async () => {
		for (let s = rest.shift(); s; s = rest.shift()) await run(s);
	};
	await Promise.all(Array.from({ length: Math.min(atOnce, rest.length) }, work));
}

/** Trouble shows what went wrong with a machine, whole. */
export function Trouble({ id }: { id: string }): ReactNode {
	const f = useMoving().failed.get(id);
	if (!f) return null;
	return (
		<div className="flex max-w-3xl flex-col gap-2">
			<ProblemBox of={f.problem} />
			<button type="button" className="button self-start" onClick={() => change(id, moving.doing.get(id) ?? null, null)}>
				Dismiss what {titles[f.verb]} said
			</button>
		</div>
	);
}

export function Doing({ id }: { id: string }): ReactNode {
	const verb = useMoving().doing.get(id);
	return verb ? (
		<span role="status" className="whitespace-nowrap text-accent">
			{doing[verb]}…
		</span>
	) : null;
}

interface Ask {
	verb: Verb;
	list: Sandbox[];
}

const Asking = createContext<(a: Ask) => void>(() => {});

/** Machinery holds the dialogs of actions; rows and bars within it only ask for them. */
export function Machinery({ children, onDestroyed }: { children: ReactNode; onDestroyed?(): void }) {
	const [asked, setAsked] = useState<Ask | null>(null);
	const client = useQueryClient();
	const begin = (a: Ask) => {
		if (asks.has(a.verb)) setAsked(a);
		else void each(a.list, (s) => act(client, s.id, a.verb, () => post(`${of(s.id)}/${a.verb}`)));
	};
	const close = () => setAsked(null);
	const run = (verb: Verb, list: Sandbox[], how: (s: Sandbox) => Promise<unknown>) => {
		close();
		void each(list, (s) => act(client, s.id, verb, () => how(s))).then(() => {
			if (verb === "destroy" && !list.some((s) => moving.failed.has(s.id))) onDestroyed?.();
		});
	};
	return (
		<Asking value={begin}>
			{children}
			{asked?.verb === "destroy" && <Destroy list={asked.list} onClose={close} run={run} />}
			{asked?.verb === "snapshot" && <Save list={asked.list} onClose={close} run={run} />}
			{asked?.verb === "fork" && <Fork list={asked.list} onClose={close} run={run} />}
			{asked?.verb === "extend" && <Extend list={asked.list} onClose={close} run={run} />}
		</Asking>
	);
}

const asks = new Set<Verb>(["destroy", "snapshot", "fork", "extend"]);

/** Actions are the buttons of one machine. */
export function Actions({ of: s, only }: { of: Sandbox; only?: Verb[] }) {
	const info = useInfo().data;
	const begin = useContext(Asking);
	const busy = useMoving().doing.has(s.id);
	const lacks = useLacking("write");
	const list = actions(s, info).filter((a) => !only || only.includes(a.verb));
	return (
		<span className="inline-flex flex-wrap gap-1">
			{list.map((a) => (
				<Do
					key={a.verb}
					action={{ ...a, why: lacks || a.why }}
					busy={busy}
					name={nameOf(s)}
					onClick={() => begin({ verb: a.verb, list: [s] })}
				/>
			))}
		</span>
	);
}

/** ActionMenu is the same for a row of a table. What is off says why, in the menu itself. */
export function ActionMenu({ of: s }: { of: Sandbox }) {
	const info = useInfo().data;
	const begin = useContext(Asking);
	const busy = useMoving().doing.has(s.id);
	const lacks = useLacking("write");
	const list = actions(s, info);
	if (!list.length) return null;
	return (
		<DropdownMenu.Root modal={false}>
			<DropdownMenu.Trigger className="button" disabled={busy} aria-label={`Actions of ${nameOf(s)}`}>
				Actions <ChevronDown size={14} aria-hidden />
			</DropdownMenu.Trigger>
			<DropdownMenu.Portal>
				<DropdownMenu.Content align="end" className="z-30 max-w-[calc(100vw-16px)] rounded-md border border-line bg-ground p-1">
					{list.map(({ verb, why }) => (
						<DropdownMenu.Item
							key={verb}
							disabled={!!(lacks || why)}
							onSelect={() => begin({ verb, list: [s] })}
							className={`flex min-h-7 max-w-64 flex-col justify-center rounded px-3 outline-none data-[highlighted]:bg-accent-ground ${lacks || why ? "text-quiet" : verb === "destroy" ? "cursor-pointer text-bad" : "cursor-pointer"}`}
						>
							{titles[verb]}
							{asks.has(verb) && !(lacks || why) ? "…" : ""}
							{(lacks || why) && <span className="pb-1">{lacks || why}</span>}
						</DropdownMenu.Item>
					))}
				</DropdownMenu.Content>
			</DropdownMenu.Portal>
		</DropdownMenu.Root>
	);
}

/** Do is a button that says why it is off, to those too who do not see a tooltip. */
function Do({ action, busy, name, onClick }: { action: Action; busy: boolean; name: string; onClick(): void }) {
	return (
		<button
			type="button"
			className={`button ${action.verb === "destroy" ? "danger" : ""}`}
			aria-disabled={!!action.why || busy}
			title={action.why || undefined}
			aria-label={`${titles[action.verb]} ${name}${action.why ? `: ${action.why}` : ""}`}
			style={action.why || busy ? { opacity: 0.75, cursor: "not-allowed", color: "var(--quiet)", borderColor: "var(--line)" } : undefined}
			onClick={() => !action.why && !busy && onClick()}
		>
			{titles[action.verb]}
		</button>
	);
}

/** Bulk are the actions that some of the chosen machines can do now. */
export function Bulk({ list, onNone }: { list: Sandbox[]; onNone(): void }) {
	const info = useInfo().data;
	const begin = useContext(Asking);
	const lacks = useLacking("write");
	if (!list.length) return null;
	return (
		<div
			role="toolbar"
			aria-label="With the chosen machines"
			className="flex flex-wrap items-center gap-1 rounded-md border border-accent bg-raised p-2"
		>
			<strong className="mr-2">{plural(list.length, "machine")} chosen</strong>
			{lacks && <span className="text-quiet">{lacks}</span>}
			{!lacks &&
				shared(list, info).map(([verb, some]) => (
					<button
						key={verb}
						type="button"
						className={`button ${verb === "destroy" ? "danger" : ""}`}
						onClick={() => begin({ verb, list: some })}
					>
						{titles[verb]} {some.length}
					</button>
				))}
			<button type="button" className="button plain" onClick={onNone}>
				Choose none
			</button>
		</div>
	);
}

interface Asked {
	list: Sandbox[];
	onClose(): void;
	run(verb: Verb, list: Sandbox[], how: (s: Sandbox) => Promise<unknown>): void;
}

const titleOf = (verb: Verb, list: Sandbox[]) =>
	list.length === 1 ? `${titles[verb]} ${nameOf(list[0]!)}` : `${titles[verb]} ${plural(list.length, "machine")}`;

function Names({ list }: { list: Sandbox[] }) {
	return (
		<ul className="max-h-48 list-disc overflow-auto pl-5">
			{list.map((s) => (
				<li key={s.id} className="break-words">
					<Safe>{nameOf(s)}</Safe> {s.name && <code className="text-quiet">{s.id}</code>}
				</li>
			))}
		</ul>
	);
}

function Buttons({ onClose, verb, off, keep = "Cancel" }: { onClose(): void; verb: Verb; off?: boolean; keep?: string }) {
	return (
		<div className="flex flex-wrap justify-end gap-2">
			<button type="button" className="button" data-first={verb === "destroy" || undefined} onClick={onClose}>
				{keep}
			</button>
			<button type="submit" className={`button ${verb === "destroy" ? "danger" : "main"}`} disabled={off}>
				{titles[verb]}
			</button>
		</div>
	);
}

interface Held {
	s: Sandbox;
	/** current revision; 0 = no history. null = it could not be seen */
	current: number | null;
	unsaved: number;
}

async function heldBy(s: Sandbox): Promise<Held> {
	try {
		const page = await get<Schemas["RevisionPage"]>(`${of(s.id)}/history?page_size=1`);
		return { s, current: page.current, unsaved: page.unsaved?.files ?? 0 };
	} catch {
		return { s, current: null, unsaved: 0 };
	}
}

/** Destroy names what goes. Where there is a history, or it could not be looked for, the name is to be typed. */
function Destroy({ list, onClose, run }: Asked) {
	const ids = list.map((s) => s.id);
	const held = useQuery({
		queryKey: ["history", "held", ids],
		staleTime: 0,
		queryFn: async () => {
			const out: Held[] = [];
			const rest = [...list];
			const work = async () => {
				for (let s = rest.shift(); s; s = rest.shift()) out.push(await heldBy(s));
			};
			await Promise.all(Array.from({ length: Math.min(atOnce, list.length) }, work));
			return out;
		},
	});
	const [typed, setTyped] = useState("");
	const word = list.length === 1 ? nameOf(list[0]!) : `destroy ${list.length}`;
	const risky = held.data?.filter((h) => h.current !== 0) ?? [];
	const off = !held.data || (risky.length > 0 && typed.trim() !== word);
	return (
		<Dialog
			title={titleOf("destroy", list)}
			open
			onClose={onClose}
			text={`${list.length === 1 ? "Its machine and its files go" : "These machines and their files go"}, and that cannot be taken back.`}
		>
			<form
				className="flex flex-col gap-3"
				onSubmit={(e) => {
					e.preventDefault();
					if (!off) run("destroy", list, (s) => call(of(s.id), { method: "DELETE" }));
				}}
			>
				<Names list={list} />
				{!held.data && <p className="text-quiet">Looking for histories…</p>}
				<Kept held={risky} />
				{risky.length > 0 && (
					<Field label={`Type ${word} to go on`}>
						<input className="field" value={typed} onChange={(e) => setTyped(e.target.value)} autoComplete="off" spellCheck={false} />
					</Field>
				)}
				<Buttons onClose={onClose} verb="destroy" off={off} keep="Keep" />
			</form>
		</Dialog>
	);
}

/** Kept says what destroying takes away and what it leaves. */
function Kept({ held }: { held: Held[] }) {
	const unseen = held.filter((h) => h.current === null);
	const kept = held.filter((h) => h.current !== null);
	const unsaved = kept.filter((h) => h.unsaved > 0);
	const names = (list: Held[]) => <Safe>{list.map((h) => nameOf(h.s)).join(", ")}</Safe>;
	return (
		<>
			{unsaved.map((h) => (
				<p key={h.s.id} className="break-words">
					<strong className="text-bad">
						<Safe>{nameOf(h.s)}</Safe>: {plural(h.unsaved, "file")} changed since its last revision and will be lost.
					</strong>
				</p>
			))}
			{kept.length > 0 && (
				<p className="break-words">
					{kept.length === 1 ? `It has a history, now at revision ${kept[0]!.current}` : `${kept.length} of them have a history`}; whether
					that was exported is not known here. It is kept for seven days, and can be given to another machine by{" "}
					<code className="break-words">skete history move {kept.length === 1 ? kept[0]!.s.id : "ID"} NEW</code>
				</p>
			)}
			{unseen.length > 0 && <p className="break-words">Whether these have a history could not be looked at: {names(unseen)}.</p>}
		</>
	);
}

function useMemory(list: Sandbox[], what: "snapshot" | "fork") {
	const info = useInfo().data;
	const why = list.map((s) => noMemory(s, info, what)).find(Boolean) ?? "";
	const [wanted, setWanted] = useState(true);
	return { why, on: wanted && !why, setWanted };
}

function Memory({ of: m }: { of: ReturnType<typeof useMemory> }) {
	return (
		<label className="flex items-start gap-2">
			<input type="checkbox" className="mt-1" checked={m.on} disabled={!!m.why} onChange={(e) => m.setWanted(e.target.checked)} />
			<span>
				With its memory: what runs goes on from there
				<span className="block text-quiet">{m.why || "Without it, the files alone."}</span>
			</span>
		</label>
	);
}

function Save({ list, onClose, run }: Asked) {
	const memory = useMemory(list, "snapshot");
	const [name, setName] = useState("");
	return (
		<Dialog title={titleOf("snapshot", list)} open onClose={onClose} text="It is saved as it is, and goes on.">
			<form
				className="flex flex-col gap-3"
				onSubmit={(e) => {
					e.preventDefault();
					run("snapshot", list, (s) =>
						call(`${of(s.id)}/snapshots`, {
							method: "POST",
							headers: { "Idempotency-Key": key() },
							body: { name: name.trim() || undefined, disk_only: !memory.on || undefined },
						}),
					);
				}}
			>
				{list.length > 1 && <Names list={list} />}
				<Field label="Name (for people; may be left out)">
					<input className="field" value={name} maxLength={64} onChange={(e) => setName(e.target.value)} />
				</Field>
				<Memory of={memory} />
				<Buttons onClose={onClose} verb="snapshot" />
			</form>
		</Dialog>
	);
}

function Fork({ list, onClose, run }: Asked) {
	const memory = useMemory(list, "fork");
	const [count, setCount] = useState("1");
	const [name, setName] = useState("");
	const n = Number(count);
	const bad = !Number.isInteger(n) || n < 1 || n > 100;
	return (
		<Dialog title={titleOf("fork", list)} open onClose={onClose} text="New machines go on from where this one is; it is not changed.">
			<form
				className="flex flex-col gap-3"
				onSubmit={(e) => {
					e.preventDefault();
					if (bad) return;
					run("fork", list, (s) =>
						call(`${of(s.id)}/fork`, {
							method: "POST",
							headers: { "Idempotency-Key": key() },
							body: { count: n, name: (list.length === 1 && name.trim()) || undefined, disk_only: !memory.on || undefined },
						}),
					);
				}}
			>
				{list.length > 1 && <Names list={list} />}
				<Field label="How many" hint="1 to 100; all or none are made">
					<input className="field w-24" inputMode="numeric" value={count} aria-invalid={bad} onChange={(e) => setCount(e.target.value)} />
				</Field>
				{list.length === 1 && (
					<Field label="Name (may be left out)" hint={n > 1 ? "They are named NAME-1, NAME-2, …" : undefined}>
						<input className="field" value={name} maxLength={64} onChange={(e) => setName(e.target.value)} />
					</Field>
				)}
				<Memory of={memory} />
				<Buttons onClose={onClose} verb="fork" off={bad} />
			</form>
		</Dialog>
	);
}

const hour = 3_600_000;

/** terms are the times to choose from, those alone that the server allows. */
export function terms(max: number | undefined): number[] {
	return [hour / 4, hour, 4 * hour, 24 * hour, 7 * 24 * hour, 30 * 24 * hour].filter((t) => !max || t <= max);
}

function Extend({ list, onClose, run }: Asked) {
	const max = useInfo().data?.limits.ttl_ms_max;
	const [ttl, setTTL] = useState(hour);
	return (
		<Dialog title={titleOf("extend", list)} open onClose={onClose} text="The time that is left counts anew, from now on.">
			<form
				className="flex flex-col gap-3"
				onSubmit={(e) => {
					e.preventDefault();
					run("extend", list, (s) => call(of(s.id), { method: "PATCH", body: { ttl_ms: ttl } }));
				}}
			>
				{list.length > 1 && <Names list={list} />}
				<Field label="Time from now on" hint={max ? `This server allows ${duration(max)} at most.` : undefined}>
					<select className="field" value={ttl} onChange={(e) => setTTL(Number(e.target.value))}>
						{terms(max).map((t) => (
							<option key={t} value={t}>
								{duration(t)}
							</option>
						))}
						<option value={0}>{max ? "as long as the server allows" : "no end"}</option>
					</select>
				</Field>
				<Buttons onClose={onClose} verb="extend" />
			</form>
		</Dialog>
	);
}

/** MachineLink leads to a machine. */
export function MachineLink({ id, name, tab }: { id: string; name?: string; tab?: string }) {
	return (
		<Link href={`/vms/${id}${tab ? `/${tab}` : ""}`} className="break-words text-accent underline-offset-2 hover:underline">
			<Safe>{name || id}</Safe>
		</Link>
	);
}
