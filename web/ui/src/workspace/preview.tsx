// The app that a machine serves, in a frame of its own origin.

import { ExternalLink, Link2, RotateCw } from "lucide-react";
import { type FormEvent, useCallback, useEffect, useRef, useState } from "react";
import { post } from "../api/http";
import { useLogin, useSandbox } from "../api/queries";
import type { Schemas } from "../api/types";
import { onDomain } from "../live/events";
import { Copy } from "../ui/copy";
import { ProblemBox } from "../ui/problem";
import { Safe } from "../ui/text";
import { useParam } from "../ui/url";
import type { PaneProps } from "./pane";
import { useInside } from "./preview_data";
import { LinksDialog } from "./preview_links";
import { Crashed, Services } from "./preview_services";
import { type AppState, apart, appState, choices, elsewhere, firstPort, may, pathOf, portOf, type Service } from "./preview_state";
import { AppWord } from "./preview_word";
import { offOf } from "./terminal_off";
import { OffBox } from "./terminal_offbox";

const widths: [string, number][] = [
	["As wide as the pane", 0],
	["Phone, 390", 390],
	["Tablet, 768", 768],
	["Desktop, 1280", 1280],
];

export default function PreviewPane({ sandbox, past, hidden }: PaneProps) {
	const machine = useSandbox(sandbox).data;
	const scopes = useLogin().data?.scopes;
	const off = offOf("The preview", past, machine, !scopes || scopes.some((s) => s === "write" || s === "admin"));
	const inside = useInside(sandbox, !off && !hidden);
	const [typed, setPort] = useParam("port");
	const port = portOf(typed) || firstPort(inside.services, inside.ports);
	const [path, setPath] = useState("/");
	const [width, setWidth] = useState(0);
	const [links, setLinks] = useState(false);
	const app = appState(port, inside.services, inside.ports);
	// Which previews may open windows and save files. It is asked anew for each, and after a reload of the page.
	const [free, setFree] = useState<readonly string[]>([]);
	const own = `${sandbox} ${port}`;
	const freed = free.includes(own);
	const frame = useFrame({ sandbox, port, path, freed, app, on: !off && !hidden && inside.known });
	useRestored(sandbox, app.service, frame.reload);

	if (off) return <OffBox sandbox={sandbox} off={off} />;
	return (
		<div className="flex min-h-0 min-w-0 flex-1 flex-col">
			<div className="flex shrink-0 flex-wrap items-center gap-1 border-line border-b p-1">
				<PortField port={port} list={choices(inside.services, inside.ports)} onPort={(n) => setPort(n ? String(n) : "")} />
				<select aria-label="Width of the app" className="field" value={width} onChange={(e) => setWidth(Number(e.target.value))}>
					{widths.map(([word, px]) => (
						<option key={px} value={px}>
							{word}
						</option>
					))}
				</select>
				<button type="button" className="button icon" aria-label="Reload the app" disabled={!frame.shown} onClick={frame.reload}>
					<RotateCw size={14} aria-hidden />
				</button>
				{frame.shown && (
					<a
						className="button icon"
						aria-label="Open the app in a new tab"
						href={`/preview/${frame.shown.url.hostname.split(".")[0]}?to=${encodeURIComponent(path)}`}
						target="_blank"
						rel="noopener noreferrer"
					>
						<ExternalLink size={14} aria-hidden />
					</a>
				)}
				<label className="button" title="Otherwise the app can neither save files nor open windows">
					<input
						type="checkbox"
						checked={freed}
						disabled={!port}
						onChange={(e) => setFree(e.target.checked ? [...free, own] : free.filter((f) => f !== own))}
					/>
					Downloads and popups
				</label>
				<button type="button" className="button" onClick={() => setLinks(true)}>
					<Link2 size={14} aria-hidden />
					Public links
				</button>
			</div>
			{frame.shown && <Address origin={frame.shown.origin} path={path} onPath={setPath} />}
			<div role="status" className="shrink-0 px-2 py-1">
				{port > 0 ? <AppWord of={app} /> : inside.known && <NoPort />}
			</div>
			{inside.error && <ProblemBox of={inside.error} />}
			{frame.error !== null && <ProblemBox of={frame.error} again={frame.reload} />}
			<Stage sandbox={sandbox} app={app} frame={frame} width={width} />
			<Services sandbox={sandbox} services={inside.services} />
			<LinksDialog sandbox={sandbox} port={port} open={links} onClose={() => setLinks(false)} />
		</div>
	);
}

function NoPort() {
	return (
		<p className="text-quiet">
			No program listens on a port yet. Start one in the terminal, for example <code>python3 -m http.server 8000</code>: it is found here.
		</p>
	);
}

interface Shown {
	url: URL;
	origin: string;
	port: number;
	/** freed: it may open windows and save files. */
	freed: boolean;
	/** turn makes each load a frame of its own. */
	turn: number;
}

interface Wanted {
	sandbox: string;
	port: number;
	path: string;
	freed: boolean;
	app: AppState;
	on: boolean;
}

interface Frame {
	shown: Shown | null;
	error: unknown;
	reload(): void;
}

/** useFrame asks for a way in, which is good once, when there is an app to see, and for another to see it anew. */
function useFrame({ sandbox, port, path, freed, app, on }: Wanted): Frame {
	const [shown, setShown] = useState<Shown | null>(null);
	const [error, setError] = useState<unknown>(null);
	const [turn, setTurn] = useState(0);
	const reload = useCallback(() => setTurn((n) => n + 1), []);
	const there = app.word === "ready" || app.word === "unready";
	const wanted = `${sandbox} ${port} ${path} ${freed} ${turn}`;
	const done = useRef("");
	const was = useRef(there);
	// An app that was away and is back is loaded again, but a dev server tells its page by itself.
	if (there !== was.current) {
		was.current = there;
		if (there && !app.service?.known_as) done.current = "";
	}
	useEffect(() => {
		if (!on || !there || !port || done.current === wanted) return;
		done.current = wanted;
		const current = () => done.current === wanted;
		post<Schemas["Preview"]>(`/v1/sandboxes/${encodeURIComponent(sandbox)}/previews`, { port, path })
			.then((made) => {
				if (!current()) return;
				const to = apart(made, location.origin);
				setError(to ? null : new Error("The preview has no origin of its own, so it is not shown."));
				setShown((old) => to && { ...to, port, freed, turn: (old?.turn ?? 0) + 1 });
			})
			.catch((err: unknown) => {
				if (!current()) return;
				setShown(null);
				setError(err);
			});
	}, [sandbox, port, path, freed, there, on, wanted]);
	// What a frame may do is set when it is made; one that may do other things than is wanted now is not left there.
	return { shown: shown?.port === port && shown.freed === freed ? shown : null, error, reload };
}

/** useRestored loads the app again after files went back, unless its dev server tells it. */
function useRestored(sandbox: string, service: Service | undefined, reload: () => void): void {
	const known = !!service?.known_as;
	useEffect(
		() =>
			onDomain((e) => {
				if (e.type === "workspace.restored" && e.id === sandbox && !known) reload();
			}),
		[sandbox, known, reload],
	);
}

function Stage({ sandbox, app, frame, width }: { sandbox: string; app: AppState; frame: Frame; width: number }) {
	const { service } = app;
	const other = frame.shown ? elsewhere(frame.shown.origin, location.href) : "";
	const crashed = service && (app.word === "crashed" || app.word === "stopped");
	return (
		<div className="flex min-h-0 min-w-0 flex-1 flex-col overflow-auto bg-sunken">
			{crashed && <Crashed sandbox={sandbox} app={{ ...app, service }} />}
			{other && (
				<p className="p-3">
					This page was opened by the server's address. It shows apps when it is opened by the server's name:{" "}
					<a className="break-all underline" href={other}>
						<Safe>{other}</Safe>
					</a>
				</p>
			)}
			{frame.shown && !other && (
				<iframe
					key={frame.shown.turn}
					title="The app of this machine"
					src={frame.shown.url.href}
					sandbox={may(frame.shown.freed)}
					referrerPolicy="no-referrer"
					allow=""
					className={crashed ? "hidden" : "min-h-40 flex-1 self-center border-0"}
					style={{ width: width || "100%", flexShrink: 0, background: "white", colorScheme: "light" }}
				/>
			)}
		</div>
	);
}

/** Address is the app's own; the part behind its origin can be changed. */
function Address({ origin, path, onPath }: { origin: string; path: string; onPath(path: string): void }) {
	const [text, setText] = useState(path);
	useEffect(() => setText(path), [path]);
	const go = (e: FormEvent) => {
		e.preventDefault();
		onPath(pathOf(text));
	};
	return (
		<form onSubmit={go} className="flex shrink-0 flex-wrap items-center gap-1 border-line border-b p-1">
			<code className="min-w-0 break-all" data-origin>
				<Safe>{origin}</Safe>
			</code>
			<input aria-label="Path in the app" className="field min-w-20 flex-1" value={text} onChange={(e) => setText(e.target.value)} />
			<button type="submit" className="button">
				Go
			</button>
			<Copy text={origin + path} word="Copy address" />
		</form>
	);
}

interface PortFieldProps {
	port: number;
	list: { port: number; label: string }[];
	onPort(port: number): void;
}

/** PortField chooses a port that is there, or takes another. */
function PortField({ port, list, onPort }: PortFieldProps) {
	const [text, setText] = useState<string | null>(null);
	const known = list.some((c) => c.port === port);
	if (text === null)
		return (
			<select
				aria-label="Port"
				className="field"
				value={port}
				onChange={(e) => (e.target.value === "other" ? setText("") : onPort(Number(e.target.value)))}
			>
				{!known && <option value={port}>{port || "No port"}</option>}
				{list.map((c) => (
					<option key={c.port} value={c.port}>
						{c.label}
					</option>
				))}
				<option value="other">Another port</option>
			</select>
		);
	const bad = text !== "" && !portOf(text);
	return (
		<form
			className="flex flex-wrap items-center gap-1"
			onSubmit={(e) => {
				e.preventDefault();
				if (!portOf(text)) return;
				onPort(portOf(text));
				setText(null);
			}}
		>
			<input
				// biome-ignore lint/a11y/noAutofocus: it was just asked for.
				autoFocus
				aria-label="Port"
				aria-invalid={bad}
				inputMode="numeric"
				className="field w-20"
				value={text}
				onChange={(e) => setText(e.target.value)}
				onKeyDown={(e) => e.key === "Escape" && setText(null)}
			/>
			<button type="submit" className="button" disabled={!portOf(text)}>
				Show
			</button>
			{bad && <span className="text-bad">A port is a number from 1 to 65535.</span>}
		</form>
	);
}
