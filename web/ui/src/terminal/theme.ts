// The colours of a terminal are those of the page, and change with them.

import type { ITheme } from "@xterm/xterm";

/** themeOf reads the page's palette. */
export function themeOf(element: Element): ITheme {
	const style = getComputedStyle(element);
	const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
	const dark = style.colorScheme === "dark";
	const cyan = dark ? "#6cc7d9" : "#0b6b7d";
	return {
		background: of("ground"),
		foreground: of("text"),
		cursor: of("text"),
		cursorAccent: of("ground"),
		selectionBackground: of("accent"),
		selectionForeground: of("on-accent"),
		selectionInactiveBackground: of("line"),
		black: dark ? "#44444e" : "#1b1b1f",
		red: of("bad"),
		green: of("good"),
		yellow: of("warn"),
		blue: of("accent"),
		magenta: of("pause"),
		cyan,
		white: dark ? "#c8c8d0" : "#5d5d68",
		brightBlack: of("quiet"),
		brightRed: of("bad"),
		brightGreen: of("good"),
		brightYellow: of("warn"),
		brightBlue: of("accent"),
		brightMagenta: of("pause"),
		brightCyan: cyan,
		brightWhite: of("text"),
	};
}

/** onTheme calls when the palette of the page has changed. */
export function onTheme(on: () => void): () => void {
	const seen = new MutationObserver(on);
	seen.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
	const dark = matchMedia("(prefers-color-scheme: dark)");
	dark.addEventListener("change", on);
	return () => {
		seen.disconnect();
		dark.removeEventListener("change", on);
	};
}
