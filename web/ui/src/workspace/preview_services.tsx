// Services of a machine: how they are, their logs, and what can be done with them.

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { post } from "../api/http";
import { Dialog } from "../ui/dialog";
import { ProblemBox } from "../ui/problem";
import { Safe, visible } from "../ui/text";
import { insideKey } from "./preview_data";
import { keepChars, plain, readLog } from "./preview_log";
import { type AppState, type Service, serviceState } from "./preview_state";
import { AppWord } from "./preview_word";

const logMS = 2000;

type Verb = "start" | "stop" | "restart";

export function useService(sandbox: string) {
	const client = useQueryClient();
	return useMutation({
		mutationFn: ({ name, verb }: { name: string; verb: Verb }) =>
			post<Service>(`/v1/sandboxes/${encodeURIComponent(sandbox)}/services/${encodeURIComponent(name)}/${verb}`),
		onSettled: () => client.invalidateQueries({ queryKey: insideKey(sandbox, "services") }),
	});
}

export function Services({ sandbox, services }: { sandbox: string; services: readonly Service[] }) {
	const act = useService(sandbox);
	const [log, setLog] = useState<string | null>(null);
	return (
		<details className="shrink-0 border-line border-t">
			<summary className="min-h-7 px-2 py-1">
				{services.length === 1 ? "1 service" : `${services.length} services`}
				{services.some((s) => serviceState(s).word === "crashed") && <span className="ml-2 text-bad">one has crashed</span>}
			</summary>
			{services.length === 0 && (
				<p className="p-2 text-quiet">
					None is declared. <code>skete service add</code> or a file <code>skete.yaml</code> in the workspace declares one.
				</p>
			)}
			<ul className="max-h-60 overflow-auto">
				{services.map((s) => (
					<li key={s.name} className="flex flex-wrap items-center gap-2 border-line border-t px-2 py-1">
						<span className="min-w-0 flex-1 break-words">
							<AppWord of={serviceState(s)} />
						</span>
						<Verbs service={s} busy={act.isPending} onAct={(verb) => act.mutate({ name: s.name, verb })} />
						<button type="button" className="button" aria-label={`Log of ${visible(s.name)}`} onClick={() => setLog(s.name)}>
							Log
						</button>
					</li>
				))}
			</ul>
			{act.isError && <ProblemBox of={act.error} />}
			<Dialog title={`Log of ${visible(log ?? "")}`} open={log !== null} onClose={() => setLog(null)} wide>
				{log !== null && <Log sandbox={sandbox} name={log} />}
			</Dialog>
		</details>
	);
}

function Verbs({ service, busy, onAct }: { service: Service; busy: boolean; onAct(verb: Verb): void }) {
	const verbs: [Verb, string][] = service.wanted
		? [
				["restart", "Restart"],
				["stop", "Stop"],
			]
		: [["start", "Start"]];
	return verbs.map(([verb, word]) => (
		<button
			key={verb}
			type="button"
			className="button"
			disabled={busy}
			aria-label={`${word} ${visible(service.name)}`}
			onClick={() => onAct(verb)}
		>
			{word}
		</button>
	));
}

/** Log shows the end of a log, and what comes. */
export function Log({ sandbox, name }: { sandbox: string; name: string }) {
	const { text, error } = useLog(sandbox, name);
	const box = useRef<HTMLPreElement>(null);
	const below = useRef(true);
	// biome-ignore lint/correctness/useExhaustiveDependencies: a longer text is what moves the view.
	useEffect(() => {
		if (below.current && box.current) box.current.scrollTop = box.current.scrollHeight;
	}, [text]);
	return (
		<>
			{error !== null && <ProblemBox of={error} />}
			<pre
				ref={box}
				// biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by keys.
				tabIndex={0}
				className="max-h-[60vh] min-h-20 overflow-auto rounded bg-sunken p-2 break-all whitespace-pre-wrap"
				onScroll={(e) => {
					const b = e.currentTarget;
					below.current = b.scrollHeight - b.scrollTop - b.clientHeight < 20;
				}}
			>
				{text === "" ? "There is nothing yet." : <Safe>{text}</Safe>}
			</pre>
		</>
	);
}

function useLog(sandbox: string, name: string): { text: string; error: unknown } {
	const [text, setText] = useState("");
	const [error, setError] = useState<unknown>(null);
	useEffect(() => {
		const stop = new AbortController();
		let timer: ReturnType<typeof setTimeout> | undefined;
		let next = -1;
		const read = async () => {
			try {
				const part = await readLog(sandbox, name, next, stop.signal);
				next = part.next;
				if (part.text) setText((old) => (old + plain(part.text)).slice(-keepChars));
				setError(null);
			} catch (err) {
				if (stop.signal.aborted) return;
				setError(err);
			}
			if (!stop.signal.aborted) timer = setTimeout(() => void read(), logMS);
		};
		setText("");
		void read();
		return () => {
			stop.abort();
			clearTimeout(timer);
		};
	}, [sandbox, name]);
	return { text, error };
}

/** Crashed shows why an app is not there, and restarts it. */
export function Crashed({ sandbox, app }: { sandbox: string; app: AppState & { service: Service } }) {
	const act = useService(sandbox);
	const { name } = app.service;
	const verb: Verb = app.service.wanted ? "restart" : "start";
	return (
		<div className="flex flex-col items-start gap-2 p-3">
			<AppWord of={app} />
			<button type="button" className="button main" disabled={act.isPending} onClick={() => act.mutate({ name, verb })}>
				{verb === "start" ? "Start" : "Restart"} <Safe>{name}</Safe>
			</button>
			{act.isError && <ProblemBox of={act.error} />}
			<div className="w-full">
				<Log sandbox={sandbox} name={name} />
			</div>
		</div>
	);
}
