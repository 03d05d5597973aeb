// The plan of a way back: what it would do, path by path. Nothing is done before it is agreed to.

import { useCallback, useContext, useEffect, useLayoutEffect, useRef, useState } from "react";
import { get, Problem, post } from "../api/http";
import { useSandbox } from "../api/queries";
import type { Sandbox } from "../api/types";
import { SceneContext } from "../run/context";
import type { RunStore } from "../run/store";
import { Dialog } from "../ui/dialog";
import { ProblemBox } from "../ui/problem";
import { Flat, Safe } from "../ui/text";
import { exact, keyOf } from "./paths";
import type { Applied, Choice, Plan, Request } from "./store";
import { PathTable } from "./table";
import type { Cut } from "./talk";
import { Running, Talk, useCut } from "./talk_part";
import { titleOf, totalOf, verbOf } from "./words";

interface Props {
	sandbox: string;
	request: Request;
	/** refused says why nothing may be done; "" = it may. */
	refused: string;
	onClose(): void;
	/** host: the machine does not run, the files were changed by the host alone. */
	onDone(plan: Plan, applied: Applied, host: boolean, talk?: TalkDone): void;
	/** onFork asks for a fork from an event instead. */
	onFork?(at: number): void;
}

/** TalkDone is what became of the conversation. */
export interface TalkDone {
	cut: Cut;
	/** problem is why it was not taken back; undefined = it was not asked for, or was done. */
	problem?: unknown;
	done: boolean;
}

/** takeBack takes a conversation back to an event. */
export async function takeBack(store: RunStore, cut: Cut): Promise<TalkDone> {
	try {
		await post(`/v1/runs/${encodeURIComponent(store.id)}/rewind`, { to: cut.to });
		await store.newest(); // the stream of a run ends with it
		return { cut, done: true };
	} catch (problem) {
		return { cut, problem, done: false };
	}
}

/** aloneOf reports whether only the host is left to reach the files. */
export const aloneOf = (of?: Pick<Sandbox, "state">) => of?.state === "failed" || of?.state === "stopped";

/** Look is a plan that was made. */
interface Look {
	plan: Plan;
	request: Request;
	/** said is why it was made again. */
	said: string;
	/** fresh are paths that the plan before did not have, or had otherwise; gone are those that only that one had. */
	fresh: ReadonlySet<string>;
	gone: string[];
}

const markOf = (f: { action: string; after?: { size: number } }) => `${f.action} ${f.after?.size ?? ""}`;

/** differ tells what a plan has that an earlier one had not. */
export function differ(before: Plan | null, plan: Plan): { fresh: Set<string>; gone: string[] } {
	const old = new Map((before?.files ?? []).map((f) => [keyOf(f), markOf(f)]));
	const fresh = new Set<string>();
	if (!before) return { fresh, gone: [] };
	for (const f of plan.files ?? []) {
		if (old.get(keyOf(f)) !== markOf(f)) fresh.add(keyOf(f));
		old.delete(keyOf(f));
	}
	return { fresh, gone: (before.files ?? []).filter((f) => old.has(keyOf(f))).map((f) => f.path) };
}

export default function PlanDialog({ sandbox, request, refused, onClose, onDone, onFork }: Props) {
	const scene = useContext(SceneContext);
	const base = `/v1/sandboxes/${encodeURIComponent(sandbox)}/history`;
	const [look, setLook] = useState<Look | null>(null);
	const [problem, setProblem] = useState<unknown>(null);
	const [busy, setBusy] = useState<"" | "asking" | "applying">("asking");
	const [unsure, setUnsure] = useState(false); // the answer to an apply was lost
	const [too, setToo] = useState(false); // the conversation
	const [chosen, setChosen] = useState<ReadonlyMap<string, Choice["choice"]>>(new Map());
	const asks = useRef(0);

	const ask = useCallback(
		async (r: Request, before: Plan | null, said: string) => {
			const mine = ++asks.current;
			setBusy("asking");
			setProblem(null);
			setUnsure(false);
			try {
				const plan = await post<Plan>(`${base}/plan`, r);
				if (mine !== asks.current) return;
				setLook({ plan, request: r, said, ...differ(before, plan) });
				setChosen(new Map());
			} catch (err) {
				if (mine !== asks.current) return;
				setLook(null);
				setProblem(err);
			}
			setBusy("");
		},
		[base],
	);
	// biome-ignore lint/correctness/useExhaustiveDependencies: a dialog is of one request; another one has its own.
	useEffect(() => {
		void ask(request, null, "");
		return () => {
			asks.current++;
		};
	}, [ask]);

	const plan = look?.plan;
	const host = aloneOf(useSandbox(sandbox).data);
	const cut = useCut(sandbox, scene, request, plan);
	const run = scene?.store.snapshot();
	const over = !scene || !run || run.fold.thread(scene.root).over();
	const conflicts = plan?.conflicts ?? [];
	const ready = !busy && !refused && plan && (conflicts.length ? conflicts.every((c) => chosen.get(keyOf(c))) : plan.total > 0);

	const choose = (r: Request) => {
		const choices = conflicts.map((c) => ({ ...exact(c), choice: chosen.get(keyOf(c))! }));
		return ask({ ...r, choices: (r.choices ?? []).concat(choices) }, null, "");
	};

	const apply = async () => {
		if (!look || !ready) return;
		if (conflicts.length) return choose(look.request);
		setBusy("applying");
		setProblem(null);
		try {
			const applied = await post<Applied>(`${base}/apply`, { plan: look.plan.id });
			const now = await get<Sandbox>(`/v1/sandboxes/${encodeURIComponent(sandbox)}`).catch(() => undefined);
			const asked = scene && cut && (too && over ? await takeBack(scene.store, cut) : { cut, done: false });
			onDone(look.plan, applied, aloneOf(now), asked ?? undefined);
			return;
		} catch (err) {
			if (err instanceof Problem && err.status === 409) {
				await ask(look.request, look.plan, `The files changed meanwhile (${err.detail || err.title}). This is what would happen now.`);
				return;
			}
			setUnsure(err instanceof Problem && (err.status === 0 || err.status >= 500));
			setProblem(err);
		}
		setBusy("");
	};

	// Another plan is another question: what agreed to the last one must not agree to this one.
	const keep = useRef<HTMLButtonElement>(null);
	const id = plan?.id;
	useLayoutEffect(() => {
		if (id) keep.current?.focus(); // before a key can come that is meant for what is seen
	}, [id]);
	const close = () => {
		if (busy !== "applying") onClose(); // its result is to be seen
	};

	const label = conflicts.length ? "Show the plan" : unsure ? `${verbOf(request)}: ask again` : verbOf(request);
	return (
		<Dialog title={titleOf(request, plan)} open wide onClose={close} text={<Said look={look} busy={busy} refused={refused} host={host} />}>
			{problem !== null && (
				<>
					<ProblemBox of={problem} again={look ? undefined : () => void ask(request, null, "")} />
					{look && (
						<p>
							{unsure
								? "It is not known whether it was done. To ask again does it once at most."
								: "Nothing of the plan was confirmed as done: look at the files before you go on."}
						</p>
					)}
				</>
			)}
			{look && <Paths sandbox={sandbox} look={look} chosen={chosen} onChoose={(k, c) => setChosen(new Map(chosen).set(k, c))} />}
			{look && look.plan.total > 0 && <Running sandbox={sandbox} going={!over} />}
			{cut && onFork && <Talk cut={cut} over={over} too={too} onToo={setToo} onFork={onFork} />}
			<div className="sticky bottom-0 flex flex-wrap justify-end gap-2 bg-ground pt-1">
				<button ref={keep} type="button" className="button" data-first disabled={busy === "applying"} onClick={close}>
					Keep as it is
				</button>
				<button type="button" className="button main" disabled={!ready} onClick={(e) => e.detail < 2 && void apply()}>
					{busy === "applying" ? "Doing it…" : label}
				</button>
			</div>
		</Dialog>
	);
}

function Said({ look, busy, refused, host }: { look: Look | null; busy: string; refused: string; host: boolean }) {
	if (refused) return <span className="text-warn">{refused}</span>;
	if (busy === "asking" && !look) return <span className="text-quiet">Looking at the files…</span>;
	if (!look) return <span>There is no plan.</span>;
	return (
		<span aria-live="polite" data-plan={look.plan.id}>
			{look.said && <strong className="text-warn">{look.said} </strong>}
			{totalOf(look.plan)}
			{host && " The machine does not run: this goes through the host, which has its files."}
		</span>
	);
}

interface PathsProps {
	sandbox: string;
	look: Look;
	chosen: ReadonlyMap<string, Choice["choice"]>;
	onChoose(key: string, choice: Choice["choice"]): void;
}

function Paths({ sandbox, look, chosen, onChoose }: PathsProps) {
	const { plan, fresh, gone } = look;
	return (
		<>
			{(plan.conflicts?.length ?? 0) > 0 && <Conflicts plan={plan} chosen={chosen} onChoose={onChoose} />}
			{gone.length > 0 && (
				<p>
					No longer part of it: <Flat>{gone.slice(0, 20).join(", ")}</Flat>
					{gone.length > 20 && ` and ${gone.length - 20} more`}
				</p>
			)}
			{plan.total > 0 && <PathTable sandbox={sandbox} plan={plan} whole={plan.do !== "revert"} fresh={fresh} />}
			{plan.cut && <p className="text-quiet">and {plan.total - (plan.files?.length ?? 0)} more paths, which are not listed here</p>}
			{(plan.left?.length ?? 0) > 0 && (
				<details>
					<summary>Stays as it is: {plan.left!.length}</summary>
					<ul className="max-h-40 overflow-auto">
						{plan.left!.slice(0, 200).map((l) => (
							<li key={keyOf(l)} className="[overflow-wrap:anywhere]">
								<bdi className="font-mono">
									<Flat>{l.path}</Flat>
								</bdi>{" "}
								<span className="text-quiet">
									<Safe>{l.why}</Safe>
								</span>
							</li>
						))}
					</ul>
				</details>
			)}
		</>
	);
}

const ways: [Choice["choice"], string][] = [
	["keep", "keep what is now"],
	["take", "take what was before"],
	["markers", "write both, with markers"],
];

function Conflicts({ plan, chosen, onChoose }: { plan: Plan } & Pick<PathsProps, "chosen" | "onChoose">) {
	return (
		<fieldset className="flex max-h-[40vh] flex-col gap-2 overflow-auto rounded-md border border-warn p-2">
			<legend className="px-1 text-warn">Changed again since: choose for each</legend>
			{plan.conflicts!.map((c) => (
				<label key={keyOf(c)} className="flex flex-wrap items-center justify-between gap-2">
					<span className="min-w-0 [overflow-wrap:anywhere]">
						<bdi className="font-mono font-semibold">
							<Flat>{c.path}</Flat>
						</bdi>{" "}
						<Safe>{c.why}</Safe>
					</span>
					<select
						required
						className="field"
						value={chosen.get(keyOf(c)) ?? ""}
						onChange={(e) => onChoose(keyOf(c), e.target.value as Choice["choice"])}
					>
						<option value="" disabled>
							choose…
						</option>
						{ways
							.filter(([w]) => w !== "markers" || c.markers)
							.map(([w, text]) => (
								<option key={w} value={w}>
									{text}
								</option>
							))}
					</select>
				</label>
			))}
		</fieldset>
	);
}
