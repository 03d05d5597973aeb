// The shells of a machine that this tab of the browser has. Their keys are kept for its next
// load; a copy of the tab has the same keys, and must not write to the same shells: each is
// held by a lock of the browser.

import { call, key } from "../api/http";
import { TerminalSession } from "./session";

const stored = (sandbox: string) => `skete.terminals.${sandbox}`;
/** tabsMax shells are enough for one machine and one tab. */
export const tabsMax = 8;
const claimTries = 5;
const claimMS = 200;

export interface Tab {
	session: TerminalSession;
	/** number is the name that people see. */
	number: number;
}

interface Kept {
	key: string;
	number: number;
}

/** kept reads what was kept; what is no list of keys is none. */
export function kept(text: string | null): Kept[] {
	let list: unknown;
	try {
		list = JSON.parse(text ?? "[]");
	} catch {
		return [];
	}
	if (!Array.isArray(list)) return [];
	return list.filter((k): k is Kept => /^[\w.:-]{1,128}$/.test(String(k?.key)) && Number.isSafeInteger(k?.number)).slice(0, tabsMax);
}

const socketURL = (path: string) => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`;

export class Tabs {
	private list: readonly Tab[] = [];
	private listeners = new Set<() => void>();
	private locks = new Map<string, () => void>();
	private opened: Promise<void> | undefined;

	constructor(readonly sandbox: string) {}

	readonly watch = (on: () => void): (() => void) => {
		this.listeners.add(on);
		return () => this.listeners.delete(on);
	};

	readonly snapshot = (): readonly Tab[] => this.list;

	/** restore takes the shells of the last load; without one there is a new one. Once. */
	restore(): Promise<void> {
		this.opened ??= this.reopen();
		return this.opened;
	}

	private async reopen(): Promise<void> {
		const mine: Tab[] = [];
		for (const k of kept(sessionStorage.getItem(stored(this.sandbox)))) {
			if (await this.claim(k.key)) mine.push({ session: this.session(k.key, true), number: k.number });
		}
		this.set(mine);
		if (!mine.length) await this.add();
	}

	/** add begins a new shell. */
	async add(): Promise<Tab | null> {
		if (this.list.length >= tabsMax) return null;
		const id = `ui-${key()}`;
		await this.claim(id);
		const number = 1 + Math.max(0, ...this.list.map((t) => t.number));
		const tab = { session: this.session(id, false), number };
		this.set([...this.list, tab]);
		return tab;
	}

	/** replace begins a new shell in the place of one that has ended. */
	async replace(old: Tab): Promise<void> {
		const id = `ui-${key()}`;
		await this.claim(id);
		const tab = { session: this.session(id, false), number: old.number };
		this.release(old.session);
		this.set(this.list.map((t) => (t === old ? tab : t)));
	}

	/** close ends a shell. */
	close(tab: Tab): void {
		tab.session.hangUp();
		this.release(tab.session);
		this.set(this.list.filter((t) => t !== tab));
	}

	private session(id: string, known: boolean): TerminalSession {
		return new TerminalSession({ sandbox: this.sandbox, key: id, known, url: socketURL, call });
	}

	private release(session: TerminalSession): void {
		session.rest();
		this.locks.get(session.key)?.();
		this.locks.delete(session.key);
	}

	/** claim holds a shell for this tab; false = another one has it. The last load may let go of it a moment later. */
	private async claim(id: string): Promise<boolean> {
		if (this.locks.has(id) || !navigator.locks) return true;
		for (let i = 0; i < claimTries; i++) {
			if (await this.hold(id)) return true;
			await new Promise((done) => setTimeout(done, claimMS));
		}
		return false;
	}

	private hold(id: string): Promise<boolean> {
		return new Promise((got) => {
			const held = navigator.locks.request(`skete.terminal.${id}`, { ifAvailable: true }, (lock) => {
				got(lock !== null);
				return lock && new Promise<void>((free) => this.locks.set(id, free));
			});
			held.catch(() => got(true)); // a page that may not have locks
		});
	}

	private set(list: readonly Tab[]): void {
		this.list = list;
		const keys: Kept[] = list.map((t) => ({ key: t.session.key, number: t.number }));
		try {
			sessionStorage.setItem(stored(this.sandbox), JSON.stringify(keys));
		} catch {
			// storage is off: the shells do not outlive this load
		}
		for (const on of this.listeners) on();
	}
}

const all = new Map<string, Tabs>();

/** tabsOf are the shells of a machine; they stay when its screen is left, and hold no connection then. */
export function tabsOf(sandbox: string): Tabs {
	let tabs = all.get(sandbox);
	if (!tabs) {
		tabs = new Tabs(sandbox);
		all.set(sandbox, tabs);
	}
	return tabs;
}
