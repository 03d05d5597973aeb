// Addresses at which people without a key read the run.

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { call, get, post } from "../api/http";
import type { Schemas } from "../api/types";
import { Copy } from "../ui/copy";
import { Dialog } from "../ui/dialog";
import { ProblemBox } from "../ui/problem";
import { visible } from "../ui/text";

const dayMS = 24 * 3_600_000;
const times: [string, number][] = [
	["1 day", dayMS],
	["7 days", 7 * dayMS],
	["30 days", 30 * dayMS],
];

const base = (run: string) => `/v1/runs/${encodeURIComponent(run)}/shares`;
const sharesKey = (run: string) => ["shares", run];

export function Share({ run, open, onClose }: { run: string; open: boolean; onClose(): void }) {
	return (
		<Dialog
			title="Share this run"
			text={
				<>
					Who has the address reads what was said and done in the run, and what comes, <strong>without a login</strong>, until it expires or
					is taken back. Nothing can be done there, and it leads to nothing else.
				</>
			}
			open={open}
			onClose={onClose}
			wide
		>
			{open && <Make run={run} />}
			{open && <Shares run={run} />}
			<div className="flex justify-end">
				<button type="button" className="button" onClick={onClose}>
					Close
				</button>
			</div>
		</Dialog>
	);
}

function Make({ run }: { run: string }) {
	const client = useQueryClient();
	const [ttl, setTTL] = useState(times[1]![1]);
	const make = useMutation({
		mutationFn: () => post<Schemas["Share"]>(base(run), { ttl_ms: ttl }),
		onSettled: () => client.invalidateQueries({ queryKey: sharesKey(run) }),
	});
	const address = make.data?.path ? location.origin + make.data.path : "";
	return (
		<form
			className="flex flex-col gap-2"
			onSubmit={(e) => {
				e.preventDefault();
				make.mutate();
			}}
		>
			<div className="flex flex-wrap items-end gap-2">
				<label className="flex flex-col">
					For
					<select className="field" data-first value={ttl} onChange={(e) => setTTL(Number(e.target.value))}>
						{times.map(([word, ms]) => (
							<option key={ms} value={ms}>
								{word}
							</option>
						))}
					</select>
				</label>
				<button type="submit" className="button main" disabled={make.isPending}>
					Make an address
				</button>
			</div>
			{address && (
				<p role="status" className="flex flex-wrap items-center gap-2 rounded border border-line p-2">
					<span className="min-w-0 flex-1 basis-48">
						It is shown this once:
						<code className="block break-all select-all">{address}</code>
					</span>
					<Copy text={address} word="Copy" />
				</p>
			)}
			{make.isError && <ProblemBox of={make.error} />}
		</form>
	);
}

function Shares({ run }: { run: string }) {
	const client = useQueryClient();
	const shares = useQuery({
		queryKey: sharesKey(run),
		queryFn: ({ signal }) => get<Schemas["ShareList"]>(base(run), signal),
	});
	const end = useMutation({
		mutationFn: (id: string) => call<void>(`${base(run)}/${encodeURIComponent(id)}`, { method: "DELETE" }),
		onSettled: () => client.invalidateQueries({ queryKey: sharesKey(run) }),
	});
	if (shares.isError) return <ProblemBox of={shares.error} again={() => void shares.refetch()} />;
	const items = shares.data?.items ?? [];
	if (!items.length) return shares.isSuccess ? <p className="text-quiet">It is not shared.</p> : null;
	return (
		<ul aria-label="Addresses" className="flex flex-col gap-2">
			{items.map((s) => (
				<li key={s.id} className="flex flex-wrap items-center gap-2 rounded border border-line p-2">
					<span className="min-w-0 flex-1 basis-48 break-words">
						<code>{s.id}</code>
						<span className="text-quiet">
							{" "}
							{s.by_name && `by ${visible(s.by_name)}, `}until {new Date(s.expires_at).toLocaleString()}
						</span>
					</span>
					<button
						type="button"
						className="button danger"
						disabled={end.isPending}
						aria-label={`Take back ${s.id}`}
						onClick={() => end.mutate(s.id)}
					>
						Take back
					</button>
				</li>
			))}
			{end.isError && <ProblemBox of={end.error} />}
		</ul>
	);
}
