// Text of models, guests and servers elsewhere, made safe to look at.

import type { ReactNode } from "react";

// Characters that turn the direction of text, have no width, or control a terminal.
const hidden = /(?![\n\t])[\p{Cc}\p{Cf}\u2028\u2029]/gu;

/** visible writes characters that hide or turn others as escapes. */
export function visible(s: string): string {
	return s.replace(hidden, (c) => `\\u{${c.codePointAt(0)!.toString(16)}}`);
}

/** Safe shows what a person is to decide by: a command, a path, a host. */
export function Safe({ children }: { children: string }): ReactNode {
	return visible(children);
}

/** flat is visible for what is one line: in a name a line break hides as well. */
export const flat = (s: string): string => visible(s).replaceAll("\n", "\\u{a}");

/** Flat shows the name of a file, whose bytes are a machine's. */
export function Flat({ children }: { children: string }): ReactNode {
	return flat(children);
}

/** clip cuts a text to so many characters of its first line. */
export function clip(s: string, most: number): string {
	const line = s.trimStart().split("\n", 1)[0] ?? "";
	return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}
