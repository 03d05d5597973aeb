// Why a run does not go on, and what a person can do about it: a budget that is used up, a
// machine that is lost.

import { useQuery } from "@tanstack/react-query";
import { CircleDollarSign, ServerCrash } from "lucide-react";
import { type ReactNode, useState } from "react";
import { Link, useLocation } from "wouter";
import { get, post } from "../api/http";
import { useSandbox } from "../api/queries";
import type { Schemas } from "../api/types";
import { money, plural } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Safe } from "../ui/text";
import { onlyLooks, useMay } from "../undo/store";
import { historyOf } from "../workspace/changes-data";
import type { ThreadFold } from "./fold";
import { isLost } from "./lost";

type Budget = Schemas["Budget"];

/** raises are the budgets that end a run, by its reason, and by how much a person raises them here. */
const raises: Record<string, { of: string; by: string; add: Budget }> = {
	cost: { of: "money", by: "$5", add: { cost_usd: 5 } },
	steps: { of: "steps", by: "50 steps", add: { steps: 50 } },
	tokens: { of: "tokens", by: "500,000 tokens", add: { tokens: 500_000 } },
	wall: { of: "time", by: "30 minutes", add: { wall_ms: 1_800_000 } },
};

interface Props {
	run: string;
	thread: ThreadFold;
	machine: string;
	onFork(): void;
}

export default function Halted({ run, thread: t, machine, onFork }: Props) {
	const sandbox = useSandbox(machine).data;
	const raise = t.over() ? raises[t.reason] : undefined;
	return (
		<>
			{raise && <BudgetRow key={t.endedAt} run={run} thread={t} raise={raise} />}
			{sandbox && isLost(sandbox) && <LostRow sandbox={sandbox} onFork={onFork} />}
		</>
	);
}

function BudgetRow({ run, thread: t, raise }: { run: string; thread: ThreadFold; raise: (typeof raises)[string] }) {
	const [left, setLeft] = useState(false);
	const [, open] = useLocation();
	const newest = useQuery({
		queryKey: ["runs", "newest", t.id],
		queryFn: ({ signal }) => get<Schemas["RunPage"]>(`/v1/runs?thread=${encodeURIComponent(t.id)}&page_size=1`, signal),
	}).data?.items?.[0];
	if (left) return null;
	if (newest && newest.id !== run) {
		return (
			<p className="border-line border-b px-3 py-2 text-quiet">
				The budget of {raise.of} was used up. The conversation went on in{" "}
				<Link href={`/runs/${encodeURIComponent(newest.id)}`} className="underline underline-offset-2">
					a later run
				</Link>
				.
			</p>
		);
	}
	const go = async () => {
		const made = await post<Schemas["Run"]>(`/v1/runs/${encodeURIComponent(run)}/resume`, { add: raise.add });
		if (made.id !== run) open(`/runs/${made.id}`); // it goes on as another run of the conversation
	};
	return (
		<Row
			label="The budget is used up"
			icon={<CircleDollarSign size={16} aria-hidden className="shrink-0" />}
			doing="Raising"
			yes={`Raise by ${raise.by} and go on`}
			onYes={go}
			no="Leave it stopped"
			onNo={() => setLeft(true)}
		>
			<strong>Needs you:</strong> the budget of {raise.of} is used up, so the run stopped. It used {money(t.costUSD)} in{" "}
			{plural(t.step, "step")}.
		</Row>
	);
}

type Lost = Pick<Schemas["Sandbox"], "id" | "reason" | "provider">;

function LostRow({ sandbox, onFork }: { sandbox: Lost; onFork(): void }) {
	const kept = useQuery({
		queryKey: ["history", sandbox.id, "safe"],
		queryFn: ({ signal }) => get<Schemas["RevisionPage"]>(`${historyOf(sandbox.id)}?page_size=100`, signal),
	});
	const safe = kept.data?.items?.find((r) => r.state !== "local")?.n ?? 0;
	return (
		<Row
			label="The machine is lost"
			icon={<ServerCrash size={16} aria-hidden className="shrink-0" />}
			doing="Starting"
			yes="Start it again"
			onYes={() => post(`/v1/sandboxes/${encodeURIComponent(sandbox.id)}/start`)}
			no="Restore into a new machine"
			onNo={onFork}
		>
			<strong>The machine is lost:</strong> <Safe>{sandbox.reason || "it has ended"}</Safe>.{" "}
			{safe > 0 ? `Its files are kept up to revision #${safe}.` : kept.data && "No revision of its files is kept."}
		</Row>
	);
}

interface RowProps {
	label: string;
	icon: ReactNode;
	yes: string;
	doing: string;
	onYes(): Promise<unknown>;
	no: string;
	onNo(): void;
	children: ReactNode;
}

/** Row is a question to a person: what is so, and the two ways on. */
function Row({ label, icon, yes, doing, onYes, no, onNo, children }: RowProps) {
	const [busy, setBusy] = useState(false);
	const [problem, setProblem] = useState<unknown>(null);
	const may = useMay();
	const go = async () => {
		setBusy(true); // until the log tells that it goes on
		setProblem(null);
		try {
			await onYes();
		} catch (err) {
			setProblem(err);
			setBusy(false);
		}
	};
	return (
		<section aria-label={label} className="flex flex-col gap-2 border-warn border-b border-l-4 bg-warn-ground px-3 py-2">
			<div className="flex flex-wrap items-center gap-2 text-warn">
				{icon}
				<p role="status" className="min-w-0 flex-1 basis-48 break-words">
					{children}
				</p>
				<button type="button" className="button main" disabled={busy || !may} title={may ? undefined : onlyLooks} onClick={() => void go()}>
					{busy ? `${doing}…` : yes}
				</button>
				<button type="button" className="button" disabled={busy || !may} onClick={onNo}>
					{no}
				</button>
			</div>
			{problem !== null && <ProblemBox of={problem} />}
		</section>
	);
}
