// What a run's timeline shows of something that its machine could not send.

import { useState } from "react";
import type { RefusedData } from "../run/events";
import { plural } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Safe } from "../ui/text";
import { MachineLink } from "./machines-do";
import { type Added, Allow, AllowButton, Undo, undoMS, useLogs } from "./network-log";
import { blocked, type Decision } from "./network-rules";

const whose = "the machine of this run";

/** Refusal says why, how often by now, and offers to allow it. */
export default function Refusal({ of: r, at }: { of: RefusedData; at: string }) {
	const [asked, setAsked] = useState(false);
	const [added, setAdded] = useState<Added | null>(null);
	const logs = useLogs([r.machine]);
	const d: Decision = { n: 0, time: at, times: 1, host: r.host, port: r.port, method: r.method, path: r.path, allowed: false, why: r.why };
	const seen = { sandbox: r.machine, d };
	const why = blocked(d);
	const tried = logs.seen.filter((s) => s.d.host === r.host && s.d.port === r.port);
	const refused = count(tried.filter((s) => !s.d.allowed));
	const passed = count(tried.filter((s) => s.d.allowed));
	return (
		<div className="flex min-w-0 flex-col gap-1">
			<p className="break-words">
				<Safe>{r.why}</Safe>
				{why && why !== `${r.why}.` && <span className="block text-quiet">{why}</span>}
			</p>
			<p className="text-quiet">
				In <MachineLink id={r.machine} name={r.machine} tab="network" />
				{logs.ready && !logs.error && (
					<>
						, <Safe>{r.host}</Safe>, port {r.port}, was refused {plural(refused, "time")} and let out {plural(passed, "time")} by now.
					</>
				)}
			</p>
			{r.last && <p className="text-quiet">The log of the run tells of no more; the machine's own log does.</p>}
			{logs.error && <ProblemBox of={logs.error} />}
			{added && <Undo key={JSON.stringify(added)} of={added} onOver={() => setAdded(null)} />}
			{!why && !added && (
				<div>
					<AllowButton of={seen} onAllow={() => setAsked(true)} />
				</div>
			)}
			{asked && (
				<Allow
					of={seen}
					machine={whose}
					onClose={() => setAsked(false)}
					onDone={(rule) => {
						setAsked(false);
						setAdded({ sandbox: r.machine, machine: whose, rule, until: Date.now() + undoMS });
					}}
				/>
			)}
		</div>
	);
}

const count = (list: { d: Decision }[]) => list.reduce((n, s) => n + s.d.times, 0);
