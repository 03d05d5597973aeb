// What a call would do, before it does it.

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { send } from "../api/http";
import { useSandbox } from "../api/queries";
import { bytes, plural } from "../ui/format";
import { Isolation } from "../ui/state";
import { flat, Safe, visible } from "../ui/text";
import { type Args, hosts, isArgs } from "./args";
import { applied, diff, editsOf, type Hunk, hunks, type Line } from "./diff";
import { Whole } from "./fields";

export interface EffectProps {
	tool: string;
	args: unknown;
	writes: string[];
	reads: string[];
	/** machine is the sandbox in which it would run; "" = it is not known. */
	machine: string;
}

/** shownByEffect names the arguments that Effect shows whole. */
export function shownByEffect(tool: string, args: unknown): string[] {
	if (!isArgs(args)) return [];
	if (typeof args.command === "string") return ["command"];
	if (tool === "write_file" && typeof args.content === "string") return ["file_path", "content"];
	if (tool === "edit_file" && editsOf(args)) return ["file_path", "old_string", "new_string", "edits"];
	return [];
}

export function Effect({ tool, args, writes, reads, machine }: EffectProps) {
	const to = useMemo(() => hosts(args), [args]);
	if (!isArgs(args)) return null;
	const file = shownByEffect(tool, args).includes("file_path");
	return (
		<div className="flex min-w-0 flex-col gap-2">
			{typeof args.command === "string" && <Command command={args.command} machine={machine} />}
			{file && <FileEffect tool={tool} args={args} machine={machine} />}
			<Paths verb="Writes" paths={writes.filter((p) => !file || p !== args.file_path)} />
			<Paths verb="Reads" paths={reads} />
			{to.length > 0 && (
				<p className="break-words">
					<span className="text-quiet">Names {plural(to.length, "host")}: </span>
					<code>{visible(to.slice(0, 30).join(", "))}</code>
					{to.length > 30 && ` and ${to.length - 30} more`}
				</p>
			)}
		</div>
	);
}

function Command({ command, machine }: { command: string; machine: string }) {
	const vm = useSandbox(machine).data;
	return (
		<>
			<Whole name="Command">{`$ ${command}`}</Whole>
			<p className="flex flex-wrap gap-x-3 gap-y-1 text-quiet">
				{vm ? (
					<>
						<span>
							in <code className="text-text">{visible(vm.workdir)}</code>
						</span>
						<span>{vm.root ? "may be root in the machine" : "not as root"}</span>
						<span>
							network <code className="text-text">{visible(vm.network)}</code>
						</span>
						<span>
							machine <Isolation of={vm.isolation} />
						</span>
						{vm.state !== "running" && <span>the machine is {vm.state} now</span>}
					</>
				) : (
					<span>{machine ? "Where it would run is not known yet." : "It has no machine yet: one is made for it."}</span>
				)}
			</p>
		</>
	);
}

function Paths({ verb, paths }: { verb: string; paths: string[] }) {
	if (!paths.length) return null;
	return (
		<p className="break-words">
			<span className="text-quiet">{verb} </span>
			{paths.slice(0, 30).map((p, i) => (
				<span key={p}>
					{i > 0 && ", "}
					<code className="break-all">{visible(p)}</code>
				</span>
			))}
			{paths.length > 30 && ` and ${paths.length - 30} more`}
		</p>
	);
}

const fileBytesMax = 256 << 10;

/** Now is a file as it is: its text, or why there is none to compare with. */
type Now = { text: string } | { none: "new" | "large" | "binary" | "unknown" };

async function readNow(machine: string, path: string): Promise<Now> {
	const at = `/v1/sandboxes/${encodeURIComponent(machine)}/files?path=${encodeURIComponent(path)}`;
	const res = await send(at, { headers: { Accept: "*/*", Range: `bytes=0-${fileBytesMax}` } }).catch((err) => err);
	if (!(res instanceof Response)) {
		if (res?.status === 404) return { none: "new" };
		return res?.status === 416 ? { text: "" } : { none: "unknown" };
	}
	const data = new Uint8Array(await res.arrayBuffer());
	if (data.length > fileBytesMax) return { none: "large" };
	try {
		return { text: new TextDecoder("utf-8", { fatal: true }).decode(data) };
	} catch {
		return { none: "binary" };
	}
}

/** useFile reads a file of a machine that runs; one that sleeps is not woken to look. */
function useFile(machine: string, path: string): Now | undefined {
	const vm = useSandbox(machine).data;
	const q = useQuery({
		queryKey: ["approvals", "file", machine, path],
		queryFn: () => readNow(machine, path),
		enabled: vm?.state === "running" && path !== "",
	});
	return !machine || (vm && vm.state !== "running") ? unknown : q.data;
}

const unknown: Now = { none: "unknown" };

const whyNot = {
	new: "",
	large: `The file has more than ${bytes(fileBytesMax)} now: it is not compared.`,
	binary: "The file is no text now: it is not compared.",
	unknown: "The file cannot be read now: what it holds is not known.",
};

function FileEffect({ tool, args, machine }: { tool: string; args: Args; machine: string }) {
	const path = typeof args.file_path === "string" ? args.file_path : "";
	const now = useFile(machine, path);
	const plan = useMemo(() => (tool === "write_file" ? written(String(args.content), now) : edited(args, now)), [tool, args, now]);
	const parts = useMemo(() => hunks(plan.lines), [plan]);
	const count = (kind: Line["kind"]) => plan.lines.filter((l) => l.kind === kind).length;
	return (
		<section aria-label="Effect on the file" className="flex min-w-0 flex-col gap-1">
			<p className="flex flex-wrap gap-x-2">
				<span>{plan.verb}</span>
				<code className="break-all">{flat(path)}</code>
				<span className="text-good">+{count("add")}</span>
				<span className="text-bad">−{count("remove")}</span>
			</p>
			{plan.warn && <p className="text-warn">{plan.warn}</p>}
			<Hunks of={parts} numbers={plan.numbers} />
		</section>
	);
}

interface Plan {
	verb: string;
	warn: string;
	lines: Line[];
	/** numbers: lines are those of the file. */
	numbers: boolean;
}

function written(content: string, now: Now | undefined): Plan {
	if (now && "text" in now) {
		const lines = diff(now.text, content);
		return { verb: "Replaces", warn: now.text === content ? "It changes nothing: the file is so already." : "", lines, numbers: true };
	}
	const fresh = now?.none === "new";
	return { verb: fresh ? "Makes" : "Writes", warn: now ? whyNot[now.none] : "", lines: diff("", content), numbers: true };
}

function edited(args: Args, now: Now | undefined): Plan {
	const edits = editsOf(args) ?? [];
	const verb = edits.some((e) => e.replace_all) ? "Changes, at every place," : "Changes";
	const after = now && "text" in now ? applied(now.text, edits) : null;
	if (now && "text" in now && after !== null) return { verb, warn: "", lines: diff(now.text, after), numbers: true };
	const lines = edits.flatMap((e) => diff(e.old_string, e.new_string));
	let warn = now && "none" in now ? whyNot[now.none] : "";
	if (now && "none" in now && now.none === "new") warn = "There is no such file now: the call would fail.";
	if (now && "text" in now) warn = "The text to replace is not in the file just once as it is now: the call would fail.";
	return { verb, warn, lines, numbers: false };
}

const rowsFirst = 200;
const marks = { same: ["", " "], add: ["added: ", "+"], remove: ["removed: ", "−"] } as const;
const grounds = { same: "", add: "bg-added", remove: "bg-removed" };

function Hunks({ of, numbers }: { of: Hunk[]; numbers: boolean }) {
	const [all, setAll] = useState(false);
	const total = of.reduce((n, h) => n + h.lines.length, 0);
	let budget = all ? total : rowsFirst;
	if (!of.length) return null;
	return (
		<>
			{/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls needs the keys. */}
			<section aria-label="Changed lines" tabIndex={0} className="max-h-72 overflow-auto rounded border border-line font-mono text-[12px]">
				{of.map((h, n) => {
					const lines = h.lines.slice(0, Math.max(0, budget));
					budget -= lines.length;
					return lines.length ? (
						<div key={n} className={n ? "border-line border-t" : ""}>
							{numbers && <div className="bg-sunken px-2 text-quiet">line {h.after}</div>}
							{lines.map((l, i) => (
								<div key={i} className={`flex gap-2 px-2 ${grounds[l.kind]}`}>
									<span className="sr-only">{marks[l.kind][0]}</span>
									<span aria-hidden className="select-none">
										{marks[l.kind][1]}
									</span>
									<span className="min-w-0 flex-1 break-all whitespace-pre-wrap">
										<Safe>{l.text || " "}</Safe>
									</span>
								</div>
							))}
						</div>
					) : null;
				})}
			</section>
			{total > rowsFirst && !all && (
				<button type="button" className="button self-start" onClick={() => setAll(true)}>
					Show all {total} lines
				</button>
			)}
		</>
	);
}
