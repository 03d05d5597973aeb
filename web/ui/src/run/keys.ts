// Keys of the run screen. They are off while a person types, and those of one letter can be
// turned off for good (WCAG 2.1.4).

import { useEffect, useRef } from "react";

const offKey = "skete.keys.off";

export const lettersOn = () => localStorage.getItem(offKey) !== "1";

export function setLetters(on: boolean): void {
	if (on) localStorage.removeItem(offKey);
	else localStorage.setItem(offKey, "1");
}

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
			const action = now.current.find(([key]) => key === name)?.[1];
			if (action && action() !== false) e.preventDefault();
		};
		document.addEventListener("keydown", on);
		return () => document.removeEventListener("keydown", on);
	}, []);
}

/** keyTable is what the help says. */
export const keyTable: [string, string][] = [
	["j, k", "next, previous item"],
	["J, K", "next, previous step"],
	["Enter", "open or close the item; open a sub-agent"],
	["e", "open or close all of the item's kind"],
	["o", "open the item's file in the workspace"],
	[".", "what can be done from the item: revert only its step, fork, copy"],
	["u", "undo to before the item's step; shows the plan"],
	["Ctrl Z, Ctrl Shift Z", "undo, redo; shows the plan"],
	["/", "find in the run"],
	["n, N", "next, previous place that was found"],
	["f", "follow what comes, or stay here"],
	["g l", "go to what is live"],
	["[, ]", "look at the revision before, after, as it was"],
	["p", "play what was recorded, or pause"],
	["t", "the bar by time, or by event"],
	["A", "go to what waits for you"],
	["1 to 4", "panes of the workspace"],
	["Ctrl `", "the terminal"],
	["Ctrl \\", "show or hide the workspace"],
	["F6", "next part of the page"],
	["?", "this list"],
];
