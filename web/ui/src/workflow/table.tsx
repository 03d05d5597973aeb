import { Link } from "wouter";
import { count, duration, money } from "../ui/format";
import { Safe } from "../ui/text";
import type { WorkflowNode } from "./api";
import type { Row } from "./rows";
import { NodeState } from "./words";

const indentMax = 8;

/** NodeTable is a workflow as an indented table; withRun shows what was done. */
export function NodeTable({ rows, withRun }: { rows: Row[]; withRun: boolean }) {
	const columns = withRun
		? ["Node", "State", "By", "Attempts", "Steps", "Cost", "Machine", "Follows"]
		: ["Node", "By", "Machine", "Follows"];
	return (
		// biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys.
		<section className="relative overflow-x-auto" aria-label="Nodes" tabIndex={0}>
			<table className="table">
				<thead>
					<tr>
						{columns.map((c) => (
							<th key={c} scope="col">
								{c}
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{rows.map((r) => (
						<NodeRows key={r.vertex.node} row={r} withRun={withRun} />
					))}
				</tbody>
			</table>
		</section>
	);
}

function Indent({ depth, children }: { depth: number; children: React.ReactNode }) {
	return (
		<span className="block whitespace-nowrap" style={{ paddingLeft: Math.min(depth, indentMax) * 16 }}>
			<span className="sr-only">level {depth + 1}, </span>
			{children}
		</span>
	);
}

function NodeRows({ row, withRun }: { row: Row; withRun: boolean }) {
	const { vertex: v, attempts } = row;
	const one = attempts.length === 1 ? attempts[0] : undefined;
	return (
		<>
			<tr>
				<th scope="row" className="!font-medium !text-text align-top">
					<Indent depth={row.depth}>
						<RunLink to={one?.run}>{v.node}</RunLink>
						{v.each && <span className="text-quiet"> for each</span>}
					</Indent>
					{v.description && (
						<span
							className="block min-w-40 font-normal text-quiet whitespace-normal"
							style={{ paddingLeft: Math.min(row.depth, indentMax) * 16 }}
						>
							<Safe>{v.description}</Safe>
						</span>
					)}
				</th>
				{withRun && (
					<td>
						<NodeState of={row.state} />
						{one && <Said of={one} />}
					</td>
				)}
				<td>{v.human ? "a person" : <Safe>{v.agent ?? ""}</Safe>}</td>
				{withRun && (
					<>
						<td>{attempts.length || ""}</td>
						<td>{row.steps || ""}</td>
						<td>{row.cost ? money(row.cost) : ""}</td>
					</>
				)}
				<td>{v.sandbox ?? ""}</td>
				<td className="min-w-32">
					{row.after.map((a) => (
						<span key={a} className="block">
							<Safe>{a}</Safe>
						</span>
					))}
				</td>
			</tr>
			{attempts.length > 1 && attempts.map((a) => <AttemptRow key={a.label} of={a} depth={row.depth + 1} />)}
		</>
	);
}

function AttemptRow({ of: a, depth }: { of: WorkflowNode; depth: number }) {
	return (
		<tr className="text-quiet">
			<th scope="row" className="!font-normal align-top">
				<Indent depth={depth}>
					<RunLink to={a.run}>{a.label}</RunLink>
				</Indent>
			</th>
			<td>
				<NodeState of={a.state} />
				<Said of={a} />
			</td>
			<td>
				<Safe>{a.model ?? ""}</Safe>
			</td>
			<td className="whitespace-nowrap">{a.ended_at ? duration(Date.parse(a.ended_at) - Date.parse(a.started_at)) : ""}</td>
			<td>{a.steps || ""}</td>
			<td>{a.cost_usd ? money(a.cost_usd) : a.tokens ? `${count(a.tokens)} tokens` : ""}</td>
			<td>
				{a.sandbox && (
					<Link href={`/vms/${a.sandbox}`} className="underline">
						{a.sandbox.slice(0, 12)}
					</Link>
				)}
			</td>
			<td>
				{a.artifacts?.map((f) => (
					<Safe key={f}>{`${f} `}</Safe>
				))}
			</td>
		</tr>
	);
}

function RunLink({ to, children }: { to?: string; children: string }) {
	if (!to) return <Safe>{children}</Safe>;
	return (
		<Link href={`/runs/${to}`} className="text-accent underline-offset-2 hover:underline">
			<Safe>{children}</Safe>
		</Link>
	);
}

/** Said is what came of an attempt, beside its state. */
function Said({ of: a }: { of: WorkflowNode }) {
	return (
		<>
			{a.choice && (
				<span className="block">
					<Safe>{`${a.choice}${a.by ? ` by ${a.by}` : ""}`}</Safe>
				</span>
			)}
			{a.text && (
				<span className={`block min-w-40 break-words ${a.state === "failed" || a.state === "timed_out" ? "text-bad" : ""}`}>
					<Safe>{a.text}</Safe>
				</span>
			)}
			{a.conflicts?.map((c) => (
				<span key={c} className="block text-warn">
					conflict: <Safe>{c}</Safe>
				</span>
			))}
		</>
	);
}
