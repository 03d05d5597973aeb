// Colours of a terminal in the output of commands. Only SGR (ESC [ … m) is understood; every other
// sequence is dropped, so that output of the past can neither move nor ask anything. The result
// is data for spans with classes: there is no HTML in it.

import { visible } from "./text";

/** Span is a piece of text that looks the same. */
export interface Span {
	text: string;
	/** look is class names of styles.css; "" = plain. */
	look: string;
}

interface Look {
	fg: string;
	bg: string;
	bold: boolean;
	dim: boolean;
	italic: boolean;
	underline: boolean;
	inverse: boolean;
	strike: boolean;
}

const plain: Look = { fg: "", bg: "", bold: false, dim: false, italic: false, underline: false, inverse: false, strike: false };

const names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

// Bounds, so that hostile output costs no more than its length.
const paramsMax = 32;
const sequenceMax = 4096;

/** escaped writes what hides or turns text as escapes. A carriage return is where a line was begun anew. */
const escaped = (s: string) => visible(s.replaceAll("\r\n", "\n").replaceAll("\r", "\n"));

/** spans reads output of a program. Pieces that look the same are one span. */
export function spans(text: string): Span[] {
	const out: Span[] = [];
	let look = plain;
	let from = 0;
	const add = (to: number) => {
		if (to <= from) return;
		const piece = escaped(text.slice(from, to));
		const cls = classes(look);
		const last = out.at(-1);
		if (last && last.look === cls) last.text += piece;
		else out.push({ text: piece, look: cls });
	};
	for (let i = next(text, 0); i >= 0; i = next(text, from)) {
		add(i);
		const [end, params] = sequence(text, i);
		from = end;
		if (params !== null) look = applied(look, params);
	}
	add(text.length);
	return out;
}

/** unstyled is the text alone. */
export function unstyled(text: string): string {
	return spans(text)
		.map((s) => s.text)
		.join("");
}

const starts = new Set([0x1b, 0x90, 0x98, 0x9b, 0x9d, 0x9e, 0x9f]); // ESC, and what begins a string or CSI in one byte

function next(text: string, from: number): number {
	for (let i = from; i < text.length; i++) if (starts.has(text.charCodeAt(i))) return i;
	return -1;
}

/** sequence returns where the one at i ends, and the parameters if it is SGR. */
function sequence(text: string, i: number): [number, string | null] {
	const c = text[i];
	if (c === "\x9b") return control(text, i + 1);
	if (c !== "\x1b") return [afterString(text, i + 1), null];
	const kind = text[i + 1];
	if (kind === "[") return control(text, i + 2);
	if (kind !== undefined && "]PX^_".includes(kind)) return [afterString(text, i + 2), null];
	let end = i + 1;
	while (end < text.length && within(text, end, 0x20, 0x2f)) end++; // ESC ( B and the like
	return [within(text, end, 0x30, 0x7e) ? end + 1 : end, null];
}

/** control reads a CSI: parameters, intermediates, a last byte. */
function control(text: string, i: number): [number, string | null] {
	let end = i;
	const most = i + sequenceMax;
	while (end < most && within(text, end, 0x30, 0x3f)) end++;
	const params = text.slice(i, end);
	let between = end;
	while (between < most && within(text, between, 0x20, 0x2f)) between++;
	if (!within(text, between, 0x40, 0x7e)) return [between, null]; // broken off: what follows is text
	const sgr = text[between] === "m" && between === end && /^[0-9;:]*$/.test(params);
	return [between + 1, sgr ? params : null];
}

/** afterString skips an OSC, DCS and the like: to BEL or ST. One without an end hides no line beyond its own. */
function afterString(text: string, i: number): number {
	for (let j = i; j < text.length; j++) {
		const c = text[j];
		if (c === "\x07" || c === "\x9c") return j + 1;
		if (c === "\x1b") return text[j + 1] === "\\" ? j + 2 : j;
		if (c === "\n" || j - i > sequenceMax) return j;
	}
	return text.length;
}

function within(text: string, i: number, low: number, high: number): boolean {
	const c = text.charCodeAt(i);
	return c >= low && c <= high;
}

/** applied is the look after an SGR sequence. */
function applied(old: Look, params: string): Look {
	const list = params.split(/[;:]/, paramsMax).map((p) => (p === "" ? 0 : Math.min(Number(p), 9999)));
	let look = old;
	for (let i = 0; i < list.length; i++) {
		const p = list[i]!;
		if (p === 38 || p === 48) {
			const [colour, used] = extended(list, i + 1);
			look = p === 38 ? { ...look, fg: colour } : { ...look, bg: colour };
			i += used;
		} else look = simple(look, p);
	}
	return look;
}

function simple(look: Look, p: number): Look {
	if (p === 0) return plain;
	if (p >= 30 && p <= 37) return { ...look, fg: names[p - 30]! };
	if (p >= 90 && p <= 97) return { ...look, fg: `bright-${names[p - 90]}` };
	if (p >= 40 && p <= 47) return { ...look, bg: names[p - 40]! };
	if (p >= 100 && p <= 107) return { ...look, bg: `bright-${names[p - 100]}` };
	switch (p) {
		case 1:
			return { ...look, bold: true };
		case 2:
			return { ...look, dim: true };
		case 3:
			return { ...look, italic: true };
		case 4:
			return { ...look, underline: true };
		case 7:
			return { ...look, inverse: true };
		case 9:
			return { ...look, strike: true };
		case 22:
			return { ...look, bold: false, dim: false };
		case 23:
			return { ...look, italic: false };
		case 24:
			return { ...look, underline: false };
		case 27:
			return { ...look, inverse: false };
		case 29:
			return { ...look, strike: false };
		case 39:
			return { ...look, fg: "" };
		case 49:
			return { ...look, bg: "" };
	}
	return look; // hidden text (8) too stays in sight
}

/** extended reads 5;N and 2;R;G;B, as the nearest of the sixteen, which are readable in each theme. */
function extended(list: number[], i: number): [string, number] {
	if (list[i] === 5) return [indexed(list[i + 1] ?? 0), 2];
	if (list[i] === 2) return [nearest(list[i + 1] ?? 0, list[i + 2] ?? 0, list[i + 3] ?? 0), 4];
	return ["", 1];
}

function indexed(n: number): string {
	if (n < 8) return names[n]!;
	if (n < 16) return `bright-${names[n - 8]}`;
	if (n >= 232) return nearest((n - 232) * 10 + 8, (n - 232) * 10 + 8, (n - 232) * 10 + 8);
	const level = (v: number) => (v ? v * 40 + 55 : 0);
	const c = Math.min(n, 231) - 16;
	return nearest(level(Math.floor(c / 36)), level(Math.floor(c / 6) % 6), level(c % 6));
}

function nearest(r: number, g: number, b: number): string {
	const most = Math.max(r, g, b);
	if (most < 50) return "black";
	const bit = (v: number) => (v > most * 0.6 ? 1 : 0);
	const name = names[bit(r) + 2 * bit(g) + 4 * bit(b)]!;
	return most > 200 ? `bright-${name}` : name;
}

function classes(l: Look): string {
	const out: string[] = [];
	const fg = l.inverse ? l.bg || "inverse" : l.fg;
	const bg = l.inverse ? l.fg || "inverse" : l.bg;
	if (fg) out.push(`sgr-${fg}`);
	if (bg) out.push(`sgr-on-${bg}`);
	if (l.bold) out.push("sgr-bold");
	if (l.dim) out.push("sgr-dim");
	if (l.italic) out.push("sgr-italic");
	if (l.underline) out.push("sgr-underline");
	if (l.strike) out.push("sgr-strike");
	return out.join(" ");
}
