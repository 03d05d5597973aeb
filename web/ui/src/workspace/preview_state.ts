// How the app behind a port is, in words.

import type { Schemas } from "../api/types";

export type Service = Schemas["Service"];
export type Port = Schemas["Port"];

export interface AppState {
	word: "waiting" | "starting" | "ready" | "unready" | "crashed" | "stopped";
	/** text says it for people. */
	text: string;
	/** service that serves the port, if one is declared. */
	service?: Service;
}

const ended = (s: Service): string => (s.last_exit ? `, last with exit code ${s.last_exit.code}` : "");
const because = (s: Service): string => (s.reason ? `: ${s.reason}` : "");

/** serviceState is how a service is. */
export function serviceState(s: Service): AppState {
	switch (s.state) {
		case "ready":
			return { word: "ready", text: `${s.name} is ready${because(s)}`, service: s };
		case "starting":
			return { word: "starting", text: `${s.name} is starting`, service: s };
		case "unready":
			return { word: "unready", text: `${s.name} runs, and is not ready${because(s)}`, service: s };
		case "backoff":
			return { word: "crashed", text: `${s.name} crashed${ended(s)}; it is started again soon${because(s)}`, service: s };
		case "crash-loop":
			return { word: "crashed", text: `${s.name} crashes again and again${ended(s)}${because(s)}`, service: s };
		case "failed":
			return { word: "crashed", text: `${s.name} crashed${ended(s)}${because(s)}`, service: s };
		case "stopped":
			return { word: "stopped", text: `${s.name} is stopped`, service: s };
	}
	return { word: "waiting", text: `${s.name} is ${String(s.state)}`, service: s };
}

/** appState is how the app at a port is: by the service that serves it, else by whether something listens. */
export function appState(port: number, services: readonly Service[], ports: readonly Port[]): AppState {
	const service = services.find((s) => s.ports?.includes(port));
	const listens = ports.some((p) => p.port === port);
	if (!service) return listens ? { word: "ready", text: `port ${port} is open` } : { word: "waiting", text: `waiting for port ${port}` };
	const state = serviceState(service);
	if (state.word !== "ready" || listens) return state;
	return { word: "waiting", text: `${service.name} runs; waiting for port ${port}`, service };
}

/** resolver is the address at which a machine finds names. */
const resolver = "127.0.0.53";
/** Ports from here on are given to programs that asked for none. */
const anyPort = 32768;

/** choices are the ports to choose from: those of services by name, then those that are open. */
export function choices(services: readonly Service[], ports: readonly Port[]): { port: number; label: string }[] {
	const seen = new Map<number, string>();
	for (const s of services) for (const p of s.ports ?? []) seen.set(p, `${p} ${s.name}`);
	for (const p of ports) if (p.address !== resolver && !seen.has(p.port)) seen.set(p.port, String(p.port));
	return [...seen].map(([port, label]) => ({ port, label }));
}

/** firstPort is what is shown before one is chosen; 0 = there is none. */
export function firstPort(services: readonly Service[], ports: readonly Port[]): number {
	const ready = services.find((s) => s.state === "ready" && s.ports?.length);
	return ready?.ports?.[0] ?? choices(services, ports).find((c) => c.port < anyPort)?.port ?? 0;
}

/** portOf reads a port that was typed; 0 = it is none. */
export function portOf(text: string): number {
	const n = /^\d{1,5}$/.test(text.trim()) ? Number(text) : 0;
	return n >= 1 && n <= 65535 ? n : 0;
}

/** pathOf is where in an app to arrive, always beneath its origin. */
export function pathOf(text: string): string {
	const path = text.trim();
	return `/${path.replace(/^[/\\]+/, "")}`;
}

/** may is what a frame of an app may do; freed = also open windows, which may do no more than it, and save files. */
export const may = (freed: boolean): string => `allow-scripts allow-forms allow-same-origin${freed ? " allow-popups allow-downloads" : ""}`;

/** apart checks that an app has an origin of its own; what it says is not believed otherwise. */
export function apart(made: Schemas["Preview"], page: string): { url: URL; origin: string } | null {
	let url: URL;
	let address: URL;
	try {
		url = new URL(made.url);
		address = new URL(made.address);
	} catch {
		return null;
	}
	const web = url.protocol === "http:" || url.protocol === "https:";
	if (!web || url.origin === page || address.origin !== url.origin) return null;
	return { url, origin: url.origin };
}

/** elsewhere is where this page must be for its frames to be shown: a server shows apps in pages of its name, not of its address. "" = here. */
export function elsewhere(app: string, page: string): string {
	const to = new URL(app);
	const here = new URL(page);
	const address = /^[\d.]+$|^\[/.test(here.hostname);
	const domain = to.hostname.split(".preview.")[1];
	if (!address || !domain) return "";
	here.hostname = domain;
	return here.href;
}
