// Which changes a person has looked at. A mark is of what the change was: another change of the
// same path has none.

import { useCallback, useState } from "react";
import { type Change, keyOf } from "../undo/paths";

const marksMax = 2000;
const nameOf = (sandbox: string) => `skete.reviewed.${sandbox}`;

/** hash is FNV-1a of a text. It tells changes apart; it guards nothing. */
function hash(s: string): string {
	let h = 0x811c9dc5;
	for (let i = 0; i < s.length; i++) h = Math.imul(h ^ s.charCodeAt(i), 0x01000193);
	return (h >>> 0).toString(36);
}

/** signOf names a change. Where no lines tell what it is, the trees do. */
export function signOf(f: Change, trees: string): string {
	return hash(JSON.stringify([keyOf(f), f.action, f.before, f.after, f.hunks?.length ? f.hunks : trees]));
}

function read(sandbox: string): Set<string> {
	try {
		const list: unknown = JSON.parse(sessionStorage.getItem(nameOf(sandbox)) ?? "[]");
		return new Set(Array.isArray(list) ? list.filter((s) => typeof s === "string") : []);
	} catch {
		return new Set();
	}
}

export function useReviewed(sandbox: string) {
	const [marks, setMarks] = useState(() => read(sandbox));
	const toggle = useCallback(
		(sign: string) =>
			setMarks((old) => {
				const to = new Set(old);
				if (!to.delete(sign)) to.add(sign);
				try {
					sessionStorage.setItem(nameOf(sandbox), JSON.stringify([...to].slice(-marksMax)));
				} catch {
					// Storage is off or full: the marks last as long as the page.
				}
				return to;
			}),
		[sandbox],
	);
	return { marks, toggle };
}
