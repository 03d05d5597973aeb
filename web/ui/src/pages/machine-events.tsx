// What happened to a machine: its revisions, ends that were not asked for and, for who may see
// it, the audit log.

import { useQuery } from "@tanstack/react-query";
import { get, query } from "../api/http";
import { useLogin } from "../api/queries";
import type { Sandbox, Schemas } from "../api/types";
import { clock } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Table } from "../ui/table";
import { allows } from "../ui/table-scope";
import { Safe } from "../ui/text";

interface Happened {
	id: string;
	at: string;
	what: string;
	who: string;
	result: string;
}

type Audit = Schemas["AuditRecord"];
type Revision = Schemas["Revision"];

/** happened puts all that is known in order of time, the newest first. */
export function happened(m: Sandbox, revisions: Revision[], audit: Audit[]): Happened[] {
	const list: Happened[] = [
		{ id: "made", at: m.created_at, what: "made", who: m.run ?? "", result: m.from ? `from ${m.from}` : "" },
		...(m.deaths ?? []).map((d, i) => ({ id: `d${i}`, at: d.time, what: "ended, unasked", who: "", result: d.reason })),
		...revisions.map((r) => ({ id: `r${r.n}`, at: r.time, what: `revision ${r.n}`, who: r.who, result: r.title })),
		...audit.map((a) => ({ id: `a${a.n}`, at: a.time, what: a.what, who: a.who, result: a.result ?? "" })),
	];
	if (m.ended_at) list.push({ id: "ended", at: m.ended_at, what: m.state, who: "", result: m.reason ?? "" });
	return list.sort((a, b) => Date.parse(b.at) - Date.parse(a.at) || b.id.localeCompare(a.id));
}

const each = 200;

export function Events({ machine: m }: { machine: Sandbox }) {
	const scopes = useLogin().data?.scopes;
	const admin = !!scopes && allows(scopes, "admin");
	const revisions = useQuery({
		queryKey: ["history", "events", m.id],
		queryFn: () => get<Schemas["RevisionPage"]>(`/v1/sandboxes/${encodeURIComponent(m.id)}/history?page_size=${each}`),
	});
	const audit = useQuery({
		queryKey: ["sandboxes", "audit", m.id],
		queryFn: () => get<Schemas["AuditList"]>(`/v1/audit${query({ on: m.id, page_size: each })}`),
		enabled: admin,
	});
	const list = happened(m, revisions.data?.items ?? [], audit.data?.items ?? []);
	return (
		<section aria-label="Events" className="flex min-w-0 flex-col gap-3">
			{scopes && !admin && <p className="text-quiet">Who called what is in the audit log, which needs a key with the scope admin.</p>}
			{revisions.error && <ProblemBox of={revisions.error} />}
			{audit.error && <ProblemBox of={audit.error} />}
			<Table
				label="events"
				rows={list}
				id={(h) => h.id}
				columns={[
					{
						name: "Time",
						cell: (h) => (
							<time dateTime={h.at} className="whitespace-nowrap">
								{clock(h.at)}
							</time>
						),
					},
					{ name: "What", cell: (h) => <Safe>{h.what}</Safe> },
					{ name: "Who", cell: (h) => <Safe>{h.who}</Safe> },
					{ name: "Result", wide: true, cell: (h) => <Safe>{h.result}</Safe> },
				]}
			/>
			{revisions.data?.next_page_token && (
				<p className="text-quiet">The newest {each} revisions are shown; older ones are under Changes.</p>
			)}
		</section>
	);
}
