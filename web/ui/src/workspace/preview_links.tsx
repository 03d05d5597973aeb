// Public links: each person who has one sees an app and uses it, without a login.

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { call } from "../api/http";
import type { Schemas } from "../api/types";
import { Copy } from "../ui/copy";
import { Dialog } from "../ui/dialog";
import { ProblemBox } from "../ui/problem";
import { Safe, visible } from "../ui/text";
import { linksKey, useLinks } from "./preview_data";

const hourMS = 3_600_000;
const times: [string, number][] = [
	["1 hour", hourMS],
	["1 day", 24 * hourMS],
	["7 days", 7 * 24 * hourMS],
];

const base = (sandbox: string) => `/v1/sandboxes/${encodeURIComponent(sandbox)}/previews`;

interface Props {
	sandbox: string;
	port: number;
	open: boolean;
	onClose(): void;
}

export function LinksDialog({ sandbox, port, open, onClose }: Props) {
	return (
		<Dialog
			title="Public links"
			text={
				<>
					Who has a public link sees the app behind it and uses it, <strong>without a login</strong>, until the link expires or is taken
					back. The app does what it is asked.
				</>
			}
			open={open}
			onClose={onClose}
			wide
		>
			{open && <Links sandbox={sandbox} />}
			{open && port > 0 && <Make sandbox={sandbox} port={port} />}
			<div className="flex justify-end">
				<button type="button" className="button" data-first onClick={onClose}>
					Close
				</button>
			</div>
		</Dialog>
	);
}

function Make({ sandbox, port }: { sandbox: string; port: number }) {
	const client = useQueryClient();
	const [name, setName] = useState("");
	const [ttl, setTTL] = useState(times[1]![1]);
	const [sure, setSure] = useState(false);
	const make = useMutation({
		mutationFn: () =>
			call<Schemas["Preview"]>(base(sandbox), {
				method: "POST",
				body: { port, public: true, name: name.trim() || undefined, ttl_ms: ttl },
			}),
		onSuccess: () => {
			setSure(false);
			setName("");
		},
		onSettled: () => client.invalidateQueries({ queryKey: linksKey(sandbox) }),
	});
	return (
		<form
			className="flex flex-col gap-2 border-line border-t pt-2"
			onSubmit={(e) => {
				e.preventDefault();
				if (sure) make.mutate();
			}}
		>
			<strong>Make port {port} public</strong>
			<div className="flex flex-wrap gap-2">
				<label className="flex min-w-0 flex-1 flex-col">
					Name, for people
					<input className="field" maxLength={64} value={name} onChange={(e) => setName(e.target.value)} />
				</label>
				<label className="flex flex-col">
					For
					<select className="field" value={ttl} onChange={(e) => setTTL(Number(e.target.value))}>
						{times.map(([word, ms]) => (
							<option key={ms} value={ms}>
								{word}
							</option>
						))}
					</select>
				</label>
			</div>
			<label className="flex items-start gap-2">
				<input type="checkbox" className="mt-1" checked={sure} onChange={(e) => setSure(e.target.checked)} />
				Anyone with the link may see and use what port {port} of this machine serves.
			</label>
			<button type="submit" className="button danger self-start" disabled={!sure || make.isPending}>
				Make a public link
			</button>
			{make.isError && <ProblemBox of={make.error} />}
		</form>
	);
}

function Links({ sandbox }: { sandbox: string }) {
	const links = useLinks(sandbox, true);
	const client = useQueryClient();
	const revoke = useMutation({
		mutationFn: (id: string) => call<void>(`${base(sandbox)}/${encodeURIComponent(id)}`, { method: "DELETE" }),
		onSettled: () => client.invalidateQueries({ queryKey: linksKey(sandbox) }),
	});
	if (links.isError) return <ProblemBox of={links.error} again={() => void links.refetch()} />;
	const items = links.data?.items ?? [];
	if (links.isSuccess && !items.length) return <p className="text-quiet">There is none.</p>;
	return (
		<ul className="flex flex-col gap-2">
			{items.map((l) => (
				<li key={l.id} className="flex flex-wrap items-center gap-2 rounded border border-line p-2">
					<span className="min-w-0 flex-1 break-words">
						<Safe>{l.name || `port ${l.port}`}</Safe>
						<span className="text-quiet">
							{" "}
							port {l.port}
							{l.created_by && `, by ${visible(l.created_by)}`}, until {new Date(l.expires_at).toLocaleString()}
						</span>
						<code className="block break-all select-all">{visible(l.url)}</code>
					</span>
					<Copy text={l.url} word="Copy" />
					<button
						type="button"
						className="button danger"
						disabled={revoke.isPending}
						aria-label={`Take back ${visible(l.name || `the link to port ${l.port}`)}`}
						onClick={() => revoke.mutate(l.id ?? "")}
					>
						Take back
					</button>
				</li>
			))}
			{revoke.isError && <ProblemBox of={revoke.error} />}
		</ul>
	);
}
