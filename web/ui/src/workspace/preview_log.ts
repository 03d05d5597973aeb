// Logs of services: text of programs, shown without what it would do to a terminal.

import { query, send } from "../api/http";
import type { Schemas } from "../api/types";

/** tailBytes of a log are read at first. */
const tailBytes = 32 << 10;
/** keepBytes of it are kept on the screen. */
export const keepChars = 256 << 10;

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const escapes = /\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[P^_X][^\x1b]*(?:\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]?|\x1b./g;

/** plain is the text of a log without colours and movements. */
export const plain = (text: string): string => text.replace(escapes, "").replace(/\r+\n/g, "\n").replace(/\r/g, "\n");

export interface LogPart {
	text: string;
	/** next is the offset behind it. */
	next: number;
}

/** logOf reads the events of a log. */
export function logOf(body: string, from: number): LogPart {
	const decoder = new TextDecoder();
	let text = "";
	let next = from;
	for (const line of body.split("\n")) {
		if (!line.startsWith("data:")) continue;
		const e = JSON.parse(line.slice(5)) as Schemas["ServiceLogEvent"];
		if (e.gap_to) {
			text += `\n[${e.gap_to - e.offset} bytes of the log were not kept]\n`;
			next = e.gap_to;
			continue;
		}
		const data = Uint8Array.from(atob(e.data ?? ""), (c) => c.charCodeAt(0));
		text += decoder.decode(data, { stream: true });
		next = e.offset + data.length;
	}
	return { text: text + decoder.decode(), next };
}

/** readLog reads on from an offset; -1 = the newest lines. */
export async function readLog(sandbox: string, name: string, from: number, signal?: AbortSignal): Promise<LogPart> {
	const at = from < 0 ? -(tailBytes + 1) : from;
	const path = `/v1/sandboxes/${encodeURIComponent(sandbox)}/services/${encodeURIComponent(name)}/logs`;
	const res = await send(`${path}${query({ from: at })}&follow=false`, { headers: { Accept: "text/event-stream" }, signal });
	return logOf(await res.text(), Math.max(from, 0));
}
