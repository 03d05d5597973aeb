// Keys of the run screen. They are off while a person types, and those of one letter can be
// turned off for good (WCAG 2.1.4).

import { useEffect, useRef } from "react";

const offKey = "skete.keys.off";

export const lettersOn = () => localStorage.getItem(offKey) !== "1";

export function setLetters(on: boolean): void {
	if (on) localStorage.removeItem(offKey);
	else localStorage.setItem(offKey, "1");
}

const ownKey = "skete.keys";

/** ownKeys are the keys that a person chose, by those that they take the place of. */
export function ownKeys(): Record<string, string> {
	try {
		return JSON.parse(localStorage.getItem(ownKey) ?? "") ?? {};
	} catch {
		return {};
	}
}

export const setOwnKeys = (to: Record<string, string>): void => localStorage.setItem(ownKey, JSON.stringify(to));

/** typing: the keys belong to a field, a terminal or a dialog. */
export function typing(target: EventTarget | null): boolean {
	if (!(target instanceof Element)) return false;
	return !!target.closest('input, textarea, select, [contenteditable="true"], [role="dialog"], .xterm, .cm-editor');
}

/** nameOf writes a key as the tables name it: "j", "Ctrl \\", "g l". */
export function nameOf(e: KeyboardEvent, before: string): string {
	const ctrl = e.ctrlKey || e.metaKey;
	if (e.altKey) return "";
	if (ctrl) return `Ctrl ${e.key}`;
	return before === "g" && e.key !== "g" ? `g ${e.key}` : e.key;
}

/** useKeys calls the action of a key. An action that returns false leaves the key to the browser. */
export function useKeys(actions: readonly [string, () => unknown][]): void {
	const now = useRef(actions);
	now.current = actions;
	useEffect(() => {
		let before = "";
		const on = (e: KeyboardEvent) => {
			const name = nameOf(e, before);
			before = e.key === "g" && !e.ctrlKey && !e.metaKey ? "g" : "";
			if (e.defaultPrevented || typing(e.target)) return;
			if (/^(g )?.$/.test(name) && !lettersOn()) return;
			const own = ownKeys();
			const action = now.current.find(([key]) => (own[key] ?? key) === name)?.[1];
			if (action && action() !== false) e.preventDefault();
		};
		document.addEventListener("keydown", on);
		return () => document.removeEventListener("keydown", on);
	}, []);
}
