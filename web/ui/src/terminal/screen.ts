// An xterm for one session: its looks, its keys, what it may do and what it asks first.

import "@xterm/xterm/css/xterm.css";
import { FitAddon } from "@xterm/addon-fit";
import { SearchAddon } from "@xterm/addon-search";
import { Terminal } from "@xterm/xterm";
import { guard } from "./guard";
import { asks, type Paste, pasteOf } from "./paste";
import type { Screen, TerminalSession } from "./session";
import { onTheme, themeOf } from "./theme";

const scrollback = 5000;
const resizeMS = 100;
const pieceBytes = 8 << 10;

export interface ScreenOptions {
	session: TerminalSession;
	element: HTMLElement;
	screenReader: boolean;
	/** onLink is called when a person points at a link. */
	onLink(text: string): void;
	/** onPaste is called with what is to be asked about first. */
	onPaste(paste: Paste): void;
	/** onLeave moves the focus out of the terminal. */
	onLeave(): void;
	onSearch(): void;
}

export class TerminalScreen implements Screen {
	private readonly term: Terminal;
	private readonly fitter = new FitAddon();
	private readonly searcher = new SearchAddon();
	private readonly undo: (() => void)[] = [];
	private resizing: ReturnType<typeof setTimeout> | undefined;
	private control = false; // the next character is one with Ctrl

	constructor(private readonly o: ScreenOptions) {
		this.term = new Terminal({
			scrollback,
			minimumContrastRatio: 4.5,
			fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--font-mono").trim() || "monospace",
			fontSize: 13,
			screenReaderMode: o.screenReader,
			theme: themeOf(document.documentElement),
			linkHandler: { activate: (_, text) => o.onLink(text), allowNonHttpProtocols: false },
		});
		guard(this.term.parser, () => o.session.snapshot().word === "live" && !o.session.replaying && this.focused());
		this.term.loadAddon(this.fitter);
		this.term.loadAddon(this.searcher);
		this.term.open(o.element);
		this.term.attachCustomKeyEventHandler((e) => this.key(e));
		this.term.onData((text) => this.type(text));
		this.term.onBinary((text) => o.session.type(Uint8Array.from(text, (c) => c.charCodeAt(0) & 0xff)));
		this.term.onResize(() => this.resized());
		this.listen();
		this.fit();
	}

	/** write hands over small pieces: xterm lets the page do other things only between two. */
	write(data: Uint8Array, done: () => void): void {
		let from = 0;
		for (; data.length - from > pieceBytes; from += pieceBytes) this.term.write(data.subarray(from, from + pieceBytes));
		this.term.write(data.subarray(from), done);
	}

	size(): { cols: number; rows: number } {
		return { cols: this.term.cols, rows: this.term.rows };
	}

	focus(): void {
		this.term.focus();
	}

	readOnly(on: boolean): void {
		this.term.options.disableStdin = on;
	}

	screenReader(on: boolean): void {
		this.term.options.screenReaderMode = on;
	}

	paste(text: string): void {
		this.term.paste(text);
		this.term.focus();
	}

	find(text: string, back: boolean): boolean {
		return back ? this.searcher.findPrevious(text) : this.searcher.findNext(text);
	}

	/** press types a key that a phone does not have. */
	press(key: "esc" | "tab" | "up" | "down" | "left" | "right"): void {
		const arrow = this.term.modes.applicationCursorKeysMode ? "\x1bO" : "\x1b[";
		const keys = { esc: "\x1b", tab: "\t", up: `${arrow}A`, down: `${arrow}B`, right: `${arrow}C`, left: `${arrow}D` };
		this.type(keys[key]);
		this.term.focus();
	}

	/** holdControl makes the next character one with Ctrl. */
	holdControl(): void {
		this.control = true;
		this.term.focus();
	}

	close(): void {
		clearTimeout(this.resizing);
		for (const f of this.undo) f();
		this.term.dispose();
	}

	private focused(): boolean {
		return this.o.element.contains(document.activeElement);
	}

	private type(text: string): void {
		if (this.term.options.disableStdin) return;
		this.o.session.type(new TextEncoder().encode(this.control ? controlled(text) : text));
		this.control = false;
	}

	private key(e: KeyboardEvent): boolean {
		if (e.type !== "keydown" || !e.ctrlKey || !e.shiftKey) return true;
		if (e.key === "F6") this.o.onLeave();
		else if (e.key === "F") this.o.onSearch();
		else if (e.key === "C" && this.term.hasSelection()) void navigator.clipboard?.writeText(this.term.getSelection());
		else return true;
		e.preventDefault();
		return false;
	}

	private listen(): void {
		const { element } = this.o;
		const pasted = (e: ClipboardEvent) => {
			const paste = pasteOf(e.clipboardData?.getData("text/plain") ?? "");
			if (!asks(paste)) return;
			e.preventDefault();
			e.stopPropagation();
			this.o.onPaste(paste);
		};
		const dropped = (e: DragEvent) => e.preventDefault();
		element.addEventListener("paste", pasted, true);
		element.addEventListener("drop", dropped, true);
		const seen = new ResizeObserver(() => this.fit());
		seen.observe(element);
		const theme = onTheme(() => {
			this.term.options.theme = themeOf(document.documentElement);
		});
		this.undo.push(
			() => element.removeEventListener("paste", pasted, true),
			() => element.removeEventListener("drop", dropped, true),
			() => seen.disconnect(),
			theme,
		);
	}

	private fit(): void {
		if (!this.o.element.clientWidth || !this.o.element.clientHeight) return;
		this.fitter.fit();
	}

	private resized(): void {
		clearTimeout(this.resizing);
		this.resizing = setTimeout(() => this.o.session.resize(this.term.cols, this.term.rows), resizeMS);
	}
}

/** controlled is what Ctrl makes of a character. */
export function controlled(text: string): string {
	const c = text.charCodeAt(0) & ~0x20;
	return text.length === 1 && c >= 0x40 && c <= 0x5f ? String.fromCharCode(c & 0x1f) : text;
}
