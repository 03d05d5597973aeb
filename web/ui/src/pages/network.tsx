// What left machines and what was refused, over all of them or of one.

import { Page } from "../ui/table";
import { Refused } from "../ui/table-scope";
import { visible } from "../ui/text";
import { useParam } from "../ui/url";
import { useMachines } from "./machines";
import { nameOf } from "./machines-actions";
import { DecisionLog, machinesMax } from "./network-log";

export default function NetworkPage() {
	const machines = useMachines();
	const [one, setOne] = useParam("vm");
	const all = [...(machines.data?.items ?? [])].sort(
		(a, b) => usedAt(b.last_used_at ?? b.created_at) - usedAt(a.last_used_at ?? a.created_at),
	);
	const shown = one ? all.filter((m) => m.id === one) : all.slice(0, machinesMax);
	return (
		<Page
			title="Network"
			actions={
				<label className="flex min-w-0 flex-wrap items-center gap-2">
					Machine
					<select className="field min-w-0 max-w-full" value={one} onChange={(e) => setOne(e.target.value)}>
						<option value="">all</option>
						{all.map((m) => (
							<option key={m.id} value={m.id}>
								{visible(nameOf(m))}
							</option>
						))}
					</select>
				</label>
			}
		>
			<p className="text-quiet">
				What machines sent, and whether it passed. Private addresses, those of the host and of clouds' metadata are refused whatever a rule
				says.
			</p>
			{machines.error && <Refused of={machines.error} want="read" what="Decisions about networks" again={() => void machines.refetch()} />}
			{!one && all.length > machinesMax && (
				<p className="text-quiet">
					Of the {machinesMax} machines that were used last; {all.length - machinesMax} are left out. Choose one of them above.
				</p>
			)}
			{machines.data && one && !shown.length && <p>This machine was deleted, or it is not yours.</p>}
			{machines.data && <DecisionLog machines={shown} one={!!one} />}
		</Page>
	);
}

const usedAt = (at: string) => Date.parse(at);
