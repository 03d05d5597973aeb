// What a machine uses, asked for while it is looked at.

import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { get } from "../api/http";
import type { Sandbox, Schemas } from "../api/types";
import { duration } from "../ui/format";
import { ProblemBox } from "../ui/problem";

type Metrics = Schemas["Metrics"];

/** mb writes bytes in the unit in which machines are asked for. */
const mb = (n: number) => `${(n / 1_048_576).toFixed(n < 10_485_760 ? 1 : 0)} MB`;

const everyMS = 3000;
const keptMax = 40;

/** cpuShare is how much of its processors a machine used between two looks, 0..1; null = not known. */
export function cpuShare(a: Metrics | undefined, b: Metrics, cpus: number): number | null {
	if (!a) return null;
	const us = (Date.parse(b.time) - Date.parse(a.time)) * 1000;
	if (us <= 0 || b.cpu_used_us < a.cpu_used_us || cpus <= 0) return null;
	return Math.min(1, (b.cpu_used_us - a.cpu_used_us) / us / cpus);
}

/** line is the path of shares, 0..1, over a width. */
export function line(shares: (number | null)[], width: number, height: number): string {
	const step = width / Math.max(1, shares.length - 1);
	let d = "";
	let pen = false;
	shares.forEach((s, i) => {
		if (s === null) pen = false;
		else {
			d += `${pen ? "L" : "M"}${(i * step).toFixed(1)} ${(height - 1 - Math.min(1, Math.max(0, s)) * (height - 2)).toFixed(1)}`;
			pen = true;
		}
	});
	return d;
}

/** useSeen tells whether an element is in view, in a tab that is shown. */
function useSeen(ref: React.RefObject<Element | null>): boolean {
	const [seen, setSeen] = useState(false);
	useEffect(() => {
		if (!ref.current) return;
		let inside = false;
		const tell = () => setSeen(inside && !document.hidden);
		const o = new IntersectionObserver((list) => {
			inside = list.some((e) => e.isIntersecting);
			tell();
		});
		o.observe(ref.current);
		document.addEventListener("visibilitychange", tell);
		return () => {
			o.disconnect();
			document.removeEventListener("visibilitychange", tell);
		};
	}, [ref]);
	return seen;
}

export function MachineMetrics({ machine: m }: { machine: Sandbox }) {
	const box = useRef<HTMLElement>(null);
	const seen = useSeen(box);
	const on = m.state === "running";
	const [kept, setKept] = useState<Metrics[]>([]);
	const now = useQuery({
		queryKey: ["metrics", m.id],
		queryFn: ({ signal }) => get<Metrics>(`/v1/sandboxes/${encodeURIComponent(m.id)}/metrics`, signal),
		enabled: on && seen,
		refetchInterval: everyMS,
		staleTime: 0,
		gcTime: 0,
	});
	const last = now.data;
	useEffect(() => {
		if (last) setKept((k) => (k.at(-1)?.time === last.time ? k : [...k, last].slice(-keptMax)));
	}, [last]);
	return (
		<section ref={box} aria-label="What it uses" className="flex min-w-0 flex-col gap-2">
			<h2 className="font-semibold">Uses now</h2>
			{!on && <p className="text-quiet">It is {m.state}: nothing is measured.</p>}
			{on && now.error && <ProblemBox of={now.error} again={() => void now.refetch()} />}
			{on && kept.length > 0 && <Gauges of={kept} cpus={m.cpus} />}
			{on && !!m.idle_timeout_ms && (
				<p className="text-quiet">Being looked at here counts as use: its idle timeout of {duration(m.idle_timeout_ms)} begins anew.</p>
			)}
		</section>
	);
}

function Gauges({ of: kept, cpus }: { of: Metrics[]; cpus: number }) {
	const m = kept.at(-1)!;
	const cpu = kept.map((x, i) => cpuShare(kept[i - 1], x, cpus));
	const part = (a: number, b: number) => (b > 0 ? a / b : 0);
	return (
		<div className="grid grid-cols-1 gap-2 sm:grid-cols-2 lg:grid-cols-4">
			<Gauge name="CPU" text={cpu.at(-1) == null ? "measuring" : `${Math.round(cpu.at(-1)! * 100)} % of ${cpus}`} of={cpu} />
			<Gauge
				name="Memory"
				text={`${mb(m.mem_used_bytes)} of ${mb(m.mem_total_bytes)}`}
				of={kept.map((x) => part(x.mem_used_bytes, x.mem_total_bytes))}
			/>
			<Gauge
				name="Disk"
				text={`${mb(m.disk_used_bytes)} of ${mb(m.disk_total_bytes)}`}
				of={kept.map((x) => part(x.disk_used_bytes, x.disk_total_bytes))}
			/>
			<Gauge
				name="Processes"
				text={`${m.processes}${m.processes_max ? ` of ${m.processes_max}` : ""}, up ${duration(m.uptime_ms)}`}
				of={kept.map((x) => part(x.processes, x.processes_max))}
			/>
		</div>
	);
}

function Gauge({ name, text, of }: { name: string; text: string; of: (number | null)[] }) {
	return (
		<div className="flex min-w-0 flex-col rounded-md border border-line p-2">
			<span className="text-quiet">{name}</span>
			<span className="tabular-nums">{text}</span>
			<svg viewBox="0 0 120 28" className="h-7 w-full text-accent" preserveAspectRatio="none" aria-hidden="true">
				<path d={line(of, 120, 28)} fill="none" stroke="currentColor" strokeWidth="1.5" vectorEffect="non-scaling-stroke" />
			</svg>
		</div>
	);
}
