// Making a machine.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useRef, useState } from "react";
import { useLocation } from "wouter";
import { call, get, key } from "../api/http";
import { useInfo } from "../api/queries";
import type { Sandbox, Schemas } from "../api/types";
import { Dialog } from "../ui/dialog";
import { bytes, duration } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Field } from "../ui/table";
import { visible } from "../ui/text";
import { terms } from "./machines-do";

export const useTemplates = () => useQuery({ queryKey: ["templates"], queryFn: () => get<Schemas["TemplateList"]>("/v1/templates") });

type Form = Pick<Schemas["CreateSandbox"], "name" | "template" | "provider" | "require" | "network"> & {
	cpus: string;
	memory: string;
	ttl: number;
};

/** bodyOf reads the form; a text says what is wrong with it. */
export function bodyOf(f: Form): Schemas["CreateSandbox"] | string {
	const cpus = f.cpus.trim() ? Number(f.cpus) : undefined;
	const memory = f.memory.trim() ? Number(f.memory) : undefined;
	if (cpus !== undefined && !(cpus > 0)) return "CPUs: a number above 0, such as 0.5 or 2.";
	if (memory !== undefined && !(Number.isInteger(memory) && memory > 0)) return "Memory: a whole number of megabytes, such as 1024.";
	return {
		name: f.name?.trim() || undefined,
		template: f.template || undefined,
		provider: f.provider || undefined,
		require: f.require || undefined,
		network: f.network || undefined,
		cpus,
		memory_mb: memory,
		ttl_ms: f.ttl || undefined,
	};
}

export function Create({ onClose }: { onClose(): void }) {
	const info = useInfo().data;
	const templates = useTemplates();
	const client = useQueryClient();
	const [, go] = useLocation();
	const [f, setForm] = useState<Form>({ name: "", cpus: "", memory: "", ttl: 0 });
	const [problem, setProblem] = useState<unknown>(null);
	const [busy, setBusy] = useState(false);
	const once = useRef(key());
	const set = (part: Partial<Form>) => {
		once.current = key();
		setForm({ ...f, ...part });
	};
	const make = async () => {
		const body = bodyOf(f);
		if (typeof body === "string") {
			setProblem(new Error(body));
			return;
		}
		setBusy(true);
		setProblem(null);
		try {
			const s = await call<Sandbox>("/v1/sandboxes", { method: "POST", headers: { "Idempotency-Key": once.current }, body });
			await client.invalidateQueries({ queryKey: ["sandboxes"] });
			go(`/vms/${s.id}`);
		} catch (err) {
			setProblem(err);
			setBusy(false);
		}
	};
	const limits = info?.limits;
	return (
		<Dialog title="New machine" open onClose={() => !busy && onClose()}>
			<form
				className="flex flex-col gap-3"
				onSubmit={(e) => {
					e.preventDefault();
					void make();
				}}
			>
				<div className="grid grid-cols-1 gap-3 sm:grid-cols-2">
					<Field label="Name" hint="May be left out; it can stand for the id">
						<input className="field" data-first maxLength={64} value={f.name} onChange={(e) => set({ name: e.target.value })} />
					</Field>
					<Field label="Template">
						<Select value={f.template ?? ""} onChange={(v) => set({ template: v || undefined })} first="default">
							{(templates.data?.items ?? []).map((t) => (
								<option key={t.name} value={t.name}>
									{visible(t.name)} ({bytes(t.bytes)})
								</option>
							))}
						</Select>
					</Field>
					<Field label="CPUs" hint={limits && `At most ${limits.cpus_max}`}>
						<input className="field" inputMode="decimal" placeholder="1" value={f.cpus} onChange={(e) => set({ cpus: e.target.value })} />
					</Field>
					<Field label="Memory, MB" hint={limits && `At most ${limits.memory_mb_max}`}>
						<input
							className="field"
							inputMode="numeric"
							placeholder="512"
							value={f.memory}
							onChange={(e) => set({ memory: e.target.value })}
						/>
					</Field>
					<Field label="Network">
						<Select
							value={f.network ?? ""}
							onChange={(v) => set({ network: (v || undefined) as Form["network"] })}
							first="the server's default"
						>
							<option value="none">none: nothing leaves it</option>
							<option value="default">default: reading packages and public repositories</option>
							<option value="open">open: everything to public addresses</option>
						</Select>
					</Field>
					<Field label="Ends after">
						<select className="field" value={f.ttl} onChange={(e) => set({ ttl: Number(e.target.value) })}>
							<option value={0}>the server's default</option>
							{terms(limits?.ttl_ms_max).map((t) => (
								<option key={t} value={t}>
									{duration(t)}
								</option>
							))}
						</select>
					</Field>
					<Field label="Provider" hint={info && `auto is ${info.default_provider || "none now"}`}>
						<Select value={f.provider ?? ""} onChange={(v) => set({ provider: v || undefined })} first="auto">
							{(info?.providers ?? []).map((p) => (
								<option key={p.name} value={p.name} disabled={!p.ok}>
									{p.name}: {p.isolation === "none" ? "no isolation" : p.isolation}
									{p.ok ? "" : " (does not work here)"}
								</option>
							))}
						</Select>
					</Field>
					<Field label="Isolation at least">
						<Select
							value={f.require ?? ""}
							onChange={(v) => set({ require: (v || undefined) as Form["require"] })}
							first="what the provider gives"
						>
							{["microvm", "microvm-emulated", "user-kernel", "container"].map((r) => (
								<option key={r}>{r}</option>
							))}
						</Select>
					</Field>
				</div>
				{problem !== null && <ProblemBox of={problem} />}
				<div className="flex justify-end gap-2">
					<button type="button" className="button" onClick={onClose} disabled={busy}>
						Cancel
					</button>
					<button type="submit" className="button main" disabled={busy}>
						{busy ? "Creating…" : "Create"}
					</button>
				</div>
			</form>
		</Dialog>
	);
}

interface SelectProps {
	value: string;
	onChange(v: string): void;
	first: string;
	children: ReactNode;
	"aria-describedby"?: string;
}

function Select({ value, onChange, first, children, "aria-describedby": hint }: SelectProps) {
	return (
		<select className="field w-full" value={value} aria-describedby={hint} onChange={(e) => onChange(e.target.value)}>
			<option value="">{first}</option>
			{children}
		</select>
	);
}
