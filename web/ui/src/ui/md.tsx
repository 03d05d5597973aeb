// The one module that sets HTML: Markdown of models, cleaned. No images, no raw HTML; links
// lead to http, https and mail alone, and show where.

import DOMPurify, { type Config } from "dompurify";
import { Marked } from "marked";
import { memo, useMemo, useState } from "react";
import { useSlow } from "./slow";
import { visible } from "./text";

const escaped = (s: string) => s.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

const marked = new Marked({
	gfm: true,
	breaks: false,
	renderer: {
		html: ({ text }) => escaped(text),
		image: ({ href, text }) => escaped(`[image: ${text || "no text"}, ${hostOf(href)}]`),
		link({ href, tokens }) {
			const inner = this.parser.parseInline(tokens);
			const to = safeLink(href);
			return to ? `<a href="${escaped(to)}" title="${escaped(visible(to))}">${inner}</a>` : inner;
		},
	},
});

function hostOf(href: string): string {
	try {
		return new URL(href).host || href;
	} catch {
		return href;
	}
}

/** safeLink returns the whole address of a link that may be followed, or "". */
export function safeLink(href: string): string {
	try {
		const url = new URL(href);
		return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : "";
	} catch {
		return "";
	}
}

const config: Config = {
	ALLOWED_TAGS: "a b blockquote br code del em h1 h2 h3 h4 h5 h6 hr i li ol p pre strong sub sup table tbody td th thead tr ul".split(" "),
	ALLOWED_ATTR: ["href", "title", "align", "start"],
	ALLOW_DATA_ATTR: false,
	ALLOW_ARIA_ATTR: false,
	RETURN_TRUSTED_TYPE: true,
};

let hooked = false;

function clean(html: string): string {
	if (!hooked) {
		hooked = true;
		DOMPurify.addHook("afterSanitizeAttributes", (n) => {
			if (n.tagName !== "A") return;
			n.setAttribute("target", "_blank");
			n.setAttribute("rel", "noopener noreferrer nofollow");
		});
	}
	return DOMPurify.sanitize(html, config) as unknown as string;
}

const rawMax = 64 << 10;
const paceMS = 50;

// Blocks come back as rows scroll by, and when what was streamed is settled: they are parsed once.
const parsed = new Map<string, string>();
const parsedMax = 1000;
const parsedLength = 4096;

function htmlOf(text: string): string {
	let html = parsed.get(text);
	if (html !== undefined) return html;
	html = clean(marked.parse(text, { async: false }));
	if (text.length > parsedLength) return html;
	if (parsed.size >= parsedMax) parsed.delete(parsed.keys().next().value!);
	parsed.set(text, html);
	return html;
}

const Block = memo(function Block({ text }: { text: string }) {
	const html = useMemo(() => htmlOf(text), [text]);
	// biome-ignore lint/security/noDangerouslySetInnerHtml: this is the one place, and it is cleaned.
	return <div className="md" dangerouslySetInnerHTML={{ __html: html }} />;
});

/** blocks cuts Markdown where a block ends, so that one that is settled is not parsed again. */
export function blocks(text: string): string[] {
	const out: string[] = [];
	let fence = "";
	let part: string[] = [];
	for (const line of text.split("\n")) {
		const mark = /^ {0,3}(```+|~~~+)/.exec(line)?.[1];
		if (mark && !fence) fence = mark;
		else if (mark && fence && mark[0] === fence[0] && mark.length >= fence.length) fence = "";
		if (line.trim() === "" && !fence && part.length && !/^(\s|[-*+] |\d+[.)] |>)/.test(part.at(-1) ?? "")) {
			out.push(part.join("\n"));
			part = [];
		} else part.push(line);
	}
	if (part.join("").trim()) out.push(part.join("\n"));
	return out;
}

// Characters that turn the direction of text, or control a terminal. Joiners stay: scripts and
// emoji need them.
const turning = /(?![\n\t\r])[\p{Cc}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

const unturned = (s: string) => s.replace(turning, (c) => `\\u{${c.codePointAt(0)!.toString(16)}}`);

/** Markdown shows what a model wrote. While it is streamed it is drawn 20 times a second at most. */
export const Markdown = memo(function Markdown({ text, streaming = false }: { text: string; streaming?: boolean }) {
	const paced = useSlow(text, paceMS);
	const shown = unturned(streaming ? paced : text);
	if (shown.length > rawMax) return <Long text={shown} />;
	return (
		<div className="md">
			{blocks(shown).map((b, i) => (
				<Block key={i} text={b} />
			))}
		</div>
	);
});

/** Long is text that is too long to be parsed: as it is, and a part at a time. */
function Long({ text }: { text: string }) {
	const [most, setMost] = useState(rawMax);
	return (
		<>
			<pre className="whitespace-pre-wrap break-words">{text.slice(0, most)}</pre>
			{text.length > most && (
				<button type="button" className="button mt-1" onClick={() => setMost(most + rawMax)}>
					Show more ({Math.ceil((text.length - most) / 1024)} KB)
				</button>
			)}
		</>
	);
}
