// The message to a run that is being written. Other parts of the page add to it; what is in it is
// sent by a person alone. It lasts as long as the tab, without what looks like a key.

import { useCallback, useSyncExternalStore } from "react";
import { keyLike } from "../pages/home-keys";

const nameOf = (run: string) => `skete.draft.${run}`;

const drafts = new Map<string, string>();
const listeners = new Set<() => void>();

export function draftOf(run: string): string {
	return drafts.get(run) ?? sessionStorage.getItem(nameOf(run)) ?? "";
}

export function setDraft(run: string, text: string): void {
	drafts.set(run, text);
	if (text && !keyLike(text)) sessionStorage.setItem(nameOf(run), text);
	else sessionStorage.removeItem(nameOf(run));
	for (const on of listeners) on();
}

/** addToDraft puts a paragraph behind what is written already. */
export function addToDraft(run: string, text: string): void {
	if (!text) return;
	const before = draftOf(run).trimEnd();
	setDraft(run, before ? `${before}\n\n${text}` : text);
}

function watch(on: () => void): () => void {
	listeners.add(on);
	return () => listeners.delete(on);
}

export function useDraft(run: string): [string, (text: string) => void] {
	const text = useSyncExternalStore(watch, () => draftOf(run));
	const set = useCallback((to: string) => setDraft(run, to), [run]);
	return [text, set];
}
