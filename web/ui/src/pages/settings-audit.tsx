// The audit log: who did what.

import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { get, query } from "../api/http";
import type { Schemas } from "../api/types";
import { clock } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Table } from "../ui/table";
import { csv, save } from "../ui/table-csv";
import { Refused } from "../ui/table-scope";
import { Safe, visible } from "../ui/text";
import { useParam } from "../ui/url";

type Entry = Schemas["AuditRecord"];

const pageSize = 100;

export function Audit() {
	const [who, setWho] = useParam("who");
	const [what, setWhat] = useParam("what");
	const [on, setOn] = useParam("on");
	const log = useInfiniteQuery({
		queryKey: ["audit", who, what, on],
		queryFn: ({ pageParam }) => get<Schemas["AuditList"]>(`/v1/audit${query({ who, what, on, before: pageParam, page_size: pageSize })}`),
		initialPageParam: 0,
		getNextPageParam: (last) => ((last.items?.length ?? 0) === pageSize ? last.items!.at(-1)!.n : undefined),
		staleTime: 0,
	});
	if (log.error) return <Refused of={log.error} want="admin" what="The audit log" again={() => void log.refetch()} />;
	const rows = log.data?.pages.flatMap((p) => p.items ?? []) ?? [];
	return (
		<div className="flex min-w-0 flex-col gap-3">
			<div className="flex min-w-0 flex-wrap items-end gap-2">
				<Filter label="Who" hint="the name of a key or login, run run_…" value={who} onChange={setWho} />
				<Filter label="What" hint="tool.started, or api for all that begin so" value={what} onChange={setWhat} />
				<Filter label="On" hint="a machine, run or other thing" value={on} onChange={setOn} />
				<button type="button" className="button" onClick={() => void log.refetch()}>
					Look again
				</button>
				<button type="button" className="button" disabled={!rows.length} onClick={() => save("audit.csv", auditCSV(rows))}>
					CSV of {rows.length} shown
				</button>
				<a className="button" href="/v1/audit/export" download="audit.log">
					All, as it is in its files
				</a>
				<Verify />
			</div>
			{log.data && (
				<Table
					label="audit log"
					rows={rows}
					id={(r) => String(r.n)}
					empty={<p>No record is like that.</p>}
					columns={[
						{ name: "No.", number: true, cell: (r) => r.n },
						{
							name: "Time",
							cell: (r) => (
								<time dateTime={r.time} className="whitespace-nowrap">
									{clock(r.time)}
								</time>
							),
						},
						{ name: "Who", cell: (r) => <Safe>{r.who}</Safe> },
						{ name: "What", cell: (r) => <Safe>{r.what}</Safe> },
						{
							name: "On",
							cell: (r) => (
								<span className="break-all">
									<Safe>{r.on ?? ""}</Safe>
								</span>
							),
						},
						{ name: "Result", cell: (r) => <Safe>{r.result ?? ""}</Safe> },
						{ name: "Tenant", cell: (r) => <Safe>{r.tenant ?? ""}</Safe> },
						{ name: "Detail", wide: true, cell: (r) => <Detail of={r} /> },
					]}
				/>
			)}
			{log.hasNextPage && (
				<button type="button" className="button self-start" disabled={log.isFetchingNextPage} onClick={() => void log.fetchNextPage()}>
					Older ones
				</button>
			)}
		</div>
	);
}

function Detail({ of: r }: { of: Entry }) {
	const list = Object.entries(r.detail ?? {}).filter(([, v]) => v);
	if (!list.length) return null;
	return (
		<details>
			<summary className="break-all">
				<Safe>{(r.detail?.call ?? list[0]![1]).slice(0, 80)}</Safe>
			</summary>
			<pre className="max-w-lg whitespace-pre-wrap break-all">{list.map(([k, v]) => `${visible(k)}: ${visible(v)}`).join("\n")}</pre>
		</details>
	);
}

export function auditCSV(rows: Entry[]): string {
	return csv(
		["n", "time", "who", "what", "on", "result", "tenant", "node", "detail"],
		rows.map((r) => [r.n, r.time, r.who, r.what, r.on, r.result, r.tenant, r.node, r.detail ? JSON.stringify(r.detail) : ""]),
	);
}

function Filter({ label, hint, value, onChange }: { label: string; hint: string; value: string; onChange(v: string): void }) {
	const [text, setText] = useState(value);
	const submit = (e: FormEvent) => {
		e.preventDefault();
		onChange(text.trim());
	};
	return (
		<form onSubmit={submit} className="min-w-0">
			<label className="flex min-w-0 flex-col">
				{label}
				<input
					type="search"
					className="field min-w-0"
					placeholder={hint}
					value={text}
					onChange={(e) => setText(e.target.value)}
					onBlur={() => onChange(text.trim())}
				/>
			</label>
		</form>
	);
}

function Verify() {
	const verify = useMutation({ mutationFn: () => get<Schemas["AuditReport"]>("/v1/audit/verify") });
	const r = verify.data;
	return (
		<>
			<button type="button" className="button" disabled={verify.isPending} onClick={() => verify.mutate()}>
				{verify.isPending ? "Looking…" : "Is it what was written?"}
			</button>
			<span role="status" className={`min-w-0 break-all ${r?.bad?.length ? "text-bad" : "text-good"}`}>
				{r &&
					(r.bad?.length
						? `✕ Not all of it: ${r.bad.map((b) => `record ${b.n}, ${b.why}`).join("; ")}`
						: `✓ All ${r.records} records are. The last has the hash ${r.hash}.`)}
			</span>
			{verify.error && <ProblemBox of={verify.error} />}
		</>
	);
}
