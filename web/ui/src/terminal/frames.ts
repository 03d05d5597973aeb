// Frames of the WebSockets of commands, as package api of the server has them: a byte that
// says what it is, then JSON, or an offset of eight bytes and data.

import type { Schemas } from "../api/types";

export type ProcessInfo = Schemas["Process"];

const toServer = { stdin: 0x12, signal: 0x14, resize: 0x15, credit: 0x16 } as const;

/** stdinMax is what a frame of stdin may hold. */
export const stdinMax = 256 << 10;

/** Frame is what the server says. */
export type Frame =
	| { kind: "started" | "exited"; process: ProcessInfo }
	| { kind: "output"; offset: number; data: Uint8Array }
	| { kind: "gap"; from: number; to: number }
	| { kind: "ack"; acked: number; closed: boolean }
	| { kind: "problem"; problem: Schemas["Problem"] }
	| { kind: "other" };

function jsonOf(body: Uint8Array): unknown {
	return JSON.parse(new TextDecoder().decode(body));
}

function offsetOf(body: Uint8Array): number {
	const n = new DataView(body.buffer, body.byteOffset, body.byteLength).getBigUint64(0);
	if (n > BigInt(Number.MAX_SAFE_INTEGER)) throw new Error("an offset is too large");
	return Number(n);
}

/** parseFrame reads a message. It throws on one that is none. */
export function parseFrame(message: ArrayBuffer): Frame {
	const all = new Uint8Array(message);
	const body = all.subarray(1);
	switch (all[0]) {
		case 0x01:
			return { kind: "started", process: jsonOf(body) as ProcessInfo };
		case 0x02:
			return { kind: "output", offset: offsetOf(body), data: body.subarray(8) };
		case 0x04: {
			const gap = jsonOf(body) as Schemas["OutputEvent"];
			return gap.stream === "stderr" ? { kind: "other" } : { kind: "gap", from: gap.from ?? 0, to: gap.to ?? 0 };
		}
		case 0x05:
			return { kind: "exited", process: jsonOf(body) as ProcessInfo };
		case 0x06: {
			const ack = jsonOf(body) as Schemas["StdinAck"];
			return { kind: "ack", acked: ack.acked ?? 0, closed: ack.closed ?? false };
		}
		case 0x07:
			return { kind: "problem", problem: jsonOf(body) as Schemas["Problem"] };
		case undefined:
			throw new Error("a frame is empty");
	}
	return { kind: "other" };
}

function offsetFrame(kind: number, offset: number, data: Uint8Array): Uint8Array<ArrayBuffer> {
	const out = new Uint8Array(9 + data.length);
	out[0] = kind;
	new DataView(out.buffer).setBigUint64(1, BigInt(offset));
	out.set(data, 9);
	return out;
}

function jsonFrame(kind: number, value: unknown): Uint8Array<ArrayBuffer> {
	const body = new TextEncoder().encode(JSON.stringify(value));
	const out = new Uint8Array(1 + body.length);
	out[0] = kind;
	out.set(body, 1);
	return out;
}

export const stdinFrame = (offset: number, data: Uint8Array) => offsetFrame(toServer.stdin, offset, data);
export const creditFrame = (limit: number) => offsetFrame(toServer.credit, limit, new Uint8Array());
export const resizeFrame = (cols: number, rows: number) => jsonFrame(toServer.resize, { cols, rows });
export const signalFrame = (signal: number) => jsonFrame(toServer.signal, { signal });
