// Setting a secret. Its value is in the field until it is sent, and nowhere else: not in the
// state of the page, not in a cache, not in storage.

import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useRef, useState } from "react";
import { call } from "../api/http";
import type { Schemas } from "../api/types";
import { Dialog } from "../ui/dialog";
import { ProblemBox } from "../ui/problem";
import { Field } from "../ui/table";
import { Safe } from "../ui/text";

export type Secret = Schemas["Secret"];
export type Grant = Schemas["SecretGrant"];

export const path = (name: string) => `/v1/secrets/${encodeURIComponent(name)}`;

/** placeholder is what programs in machines see of a secret. */
export const placeholder = (name: string) => `skete-secret-${name}`;

export const ways: [Grant["as"], string, string][] = [
	["bearer", "Authorization: Bearer VALUE", ""],
	["basic", "user and password (basic)", "User"],
	["header", "a header of its own", "Header"],
	["query", "a parameter of the address", "Parameter"],
	["aws", "signing requests as for AWS (ID:SECRET)", ""],
];

/** howText says how a grant sends its secret. */
export function howText(g: Grant): string {
	const s = {
		bearer: "as Authorization: Bearer",
		basic: `as the password of ${g.key ?? ""}`,
		header: `in the header ${g.key ?? ""}`,
		query: `in the parameter ${g.key ?? ""}`,
		aws: "by signing requests",
	}[g.as];
	const only = [g.methods?.join(", "), g.paths?.join(", "), g.ports?.length ? `port ${g.ports.join(", ")}` : ""].filter(Boolean).join(" ");
	const to = [...(g.agents ?? []).map((a) => `agent ${a}`), ...(g.sandboxes ?? []).map((b) => `machine ${b}`)];
	return [
		s,
		only && `only ${only}`,
		g.oauth && "at a token endpoint",
		g.env && `placeholder in $${g.env}`,
		to.length ? `for ${to.join(", ")}` : "for all machines",
	]
		.filter(Boolean)
		.join("; ");
}

/** hostsOf reads hosts that are written with spaces, commas or lines between them. */
export function hostsOf(text: string): string[] {
	return [
		...new Set(
			text
				.split(/[\s,]+/)
				.filter(Boolean)
				.map((h) => h.toLowerCase()),
		),
	];
}

/** badHost says what is wrong with a host of a grant; "" = it looks like one. */
export function badHost(host: string): string {
	if (host.includes("://") || host.includes("/")) return `${host}: a host alone, without https:// and a path`;
	if (host === "*") return "A secret is sent to hosts that are named, or *.name; not to all.";
	if (host.length > 255 || !/^(\*\.)?[^\s*@:?#]+$/.test(host)) return `${host} is no name of a host`;
	return "";
}

const week = 7 * 86_400_000;

interface FormProps {
	/** of is the secret that gets a new version; null = a new one is made */
	of: Secret | null;
	onClose(): void;
}

export function SecretForm({ of, onClose }: FormProps) {
	const form = useRef<HTMLFormElement>(null);
	const client = useQueryClient();
	const [problem, setProblem] = useState<unknown>(null);
	const [busy, setBusy] = useState(false);
	const [as, setAs] = useState<Grant["as"]>("bearer");
	const keyName = ways.find(([w]) => w === as)?.[2];
	const submit = async (e: FormEvent<HTMLFormElement>) => {
		e.preventDefault();
		const field = (name: string) => e.currentTarget.elements.namedItem(name) as HTMLInputElement | HTMLSelectElement | null;
		const text = (name: string) => field(name)?.value.trim() ?? "";
		const value = field("value") as HTMLInputElement;
		const hosts = hostsOf(text("hosts"));
		const bad = of ? "" : !hosts.length ? "Name at least one host that it is sent to." : hosts.map(badHost).find(Boolean);
		if (bad) {
			setProblem(new Error(bad));
			return;
		}
		const body: Schemas["PutSecret"] = { value: value.value, ttl_ms: Number(text("ttl")) };
		value.value = ""; // from here on it is in the request alone
		if (!of) body.grants = hosts.map((host) => ({ host, as, key: text("key") || undefined, env: text("env") || undefined }));
		setBusy(true);
		setProblem(null);
		try {
			await call<Secret>(path(of?.name ?? text("name")), { method: "PUT", body });
			await client.invalidateQueries({ queryKey: ["secrets"] });
			onClose();
		} catch (err) {
			setProblem(err);
			setBusy(false);
			value.focus();
		} finally {
			body.value = "";
		}
	};
	return (
		<Dialog
			title={of ? `Rotate ${of.name}` : "New secret"}
			open
			onClose={() => !busy && onClose()}
			text="The value cannot be read again, here or anywhere. Machines never see it: the host adds it to requests on their way out."
		>
			<form ref={form} className="flex min-w-0 flex-col gap-3" autoComplete="off" onSubmit={(e) => void submit(e)}>
				{!of && (
					<Field label="Name" hint="Letters, digits, - and _">
						<input className="field" name="name" required maxLength={63} autoComplete="off" spellCheck={false} data-first />
					</Field>
				)}
				<Field label="Value" hint={problem ? "Enter it again: it is not kept." : "Of one line. Longer ones: skete secret set NAME < FILE"}>
					<input
						className="field"
						name="value"
						type="password"
						required
						maxLength={65536}
						autoComplete="off"
						spellCheck={false}
						data-1p-ignore
						data-lpignore="true"
					/>
				</Field>
				{!of && (
					<>
						<Field
							label="Sent to"
							hint="Hosts, or *.name for all beneath a name; over TLS alone, and only where a machine's network allows the request"
						>
							<input
								className="field"
								name="hosts"
								required
								placeholder="api.example.com *.example.net"
								autoComplete="off"
								spellCheck={false}
							/>
						</Field>
						<Field label="How it is sent">
							<select className="field w-full" value={as} onChange={(e) => setAs(e.target.value as Grant["as"])}>
								{ways.map(([way, text]) => (
									<option key={way} value={way}>
										{text}
									</option>
								))}
							</select>
						</Field>
						{keyName && (
							<Field label={keyName}>
								<input className="field" name="key" required maxLength={128} autoComplete="off" spellCheck={false} />
							</Field>
						)}
						<Field
							label="Variable for programs (may be left out)"
							hint="It holds a placeholder, skete-secret-NAME, in machines that start from then on"
						>
							<input
								className="field"
								name="env"
								maxLength={128}
								pattern="[A-Za-z_][A-Za-z0-9_]*"
								placeholder="FORGE_TOKEN"
								autoComplete="off"
								spellCheck={false}
							/>
						</Field>
					</>
				)}
				<Field label="It lives for">
					<select className="field w-full" name="ttl" defaultValue={week}>
						<option value={week / 7}>a day</option>
						<option value={week}>a week</option>
						<option value={30 * (week / 7)}>30 days</option>
						<option value={-1}>ever</option>
					</select>
				</Field>
				{problem !== null && <ProblemBox of={problem} />}
				<div className="flex justify-end gap-2">
					<button type="button" className="button" onClick={onClose} disabled={busy}>
						Cancel
					</button>
					<button type="submit" className="button main" disabled={busy}>
						{busy ? "Saving…" : of ? "Save a new version" : "Save"}
					</button>
				</div>
			</form>
		</Dialog>
	);
}

/** HostsForm changes where a secret is sent. What is said of hosts that stay is kept. */
export function HostsForm({ of, onClose }: { of: Secret; onClose(): void }) {
	const client = useQueryClient();
	const [grants, setGrants] = useState<Grant[]>(of.grants ?? []);
	const [host, setHost] = useState("");
	const [problem, setProblem] = useState<unknown>(null);
	const [busy, setBusy] = useState(false);
	const like = grants.find((g) => !g.oauth) ?? of.grants?.find((g) => !g.oauth);
	const add = () => {
		const hosts = hostsOf(host).filter((h) => !grants.some((g) => g.host === h));
		const bad = hosts.map(badHost).find(Boolean);
		if (bad) {
			setProblem(new Error(bad));
			return;
		}
		setProblem(null);
		setGrants([
			...grants,
			...hosts.map(
				(h): Grant => ({
					host: h,
					as: like?.as ?? "bearer",
					key: like?.key,
					env: like?.env,
					agents: like?.agents,
					sandboxes: like?.sandboxes,
				}),
			),
		]);
		setHost("");
	};
	const save = async () => {
		setBusy(true);
		setProblem(null);
		try {
			await call<Secret>(path(of.name), { method: "PATCH", body: { grants } });
			await client.invalidateQueries({ queryKey: ["secrets"] });
			onClose();
		} catch (err) {
			setProblem(err);
			setBusy(false);
		}
	};
	return (
		<Dialog title={`Where ${of.name} is sent`} open onClose={() => !busy && onClose()} text="From the next request on.">
			<form
				className="flex min-w-0 flex-col gap-3"
				onSubmit={(e) => {
					e.preventDefault();
					if (host.trim()) add();
					else void save();
				}}
			>
				<ul className="flex flex-col gap-1">
					{grants.map((g, i) => (
						<li key={i} className="flex min-w-0 flex-wrap items-center gap-2">
							<span className="min-w-0 flex-1 break-words">
								<strong className="break-all">
									<Safe>{g.host}</Safe>
								</strong>{" "}
								<span className="text-quiet">
									<Safe>{howText(g)}</Safe>
								</span>
							</span>
							<button
								type="button"
								className="button"
								aria-label={`Take ${g.host} away`}
								onClick={() => setGrants(grants.filter((_, j) => j !== i))}
							>
								Take away
							</button>
						</li>
					))}
					{!grants.length && <li>Nowhere: it is kept and not sent.</li>}
				</ul>
				<div className="flex min-w-0 flex-wrap items-end gap-2">
					<Field label="Add hosts" hint={like ? `Sent ${howText({ ...like, methods: [], paths: [], ports: [] })}` : undefined}>
						<input className="field" value={host} onChange={(e) => setHost(e.target.value)} autoComplete="off" spellCheck={false} />
					</Field>
					<button type="button" className="button" onClick={add} disabled={!host.trim()}>
						Add
					</button>
				</div>
				{problem !== null && <ProblemBox of={problem} />}
				<div className="flex justify-end gap-2">
					<button type="button" className="button" onClick={onClose} disabled={busy}>
						Cancel
					</button>
					<button type="submit" className="button main" disabled={busy}>
						{host.trim() ? "Add the hosts" : "Save"}
					</button>
				</div>
			</form>
		</Dialog>
	);
}
