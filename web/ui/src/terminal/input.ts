// What was typed and is not yet accepted by the command, at its offsets: after a broken
// connection it is sent again from where the command has it, and nothing is lost or doubled.

import { stdinMax } from "./frames";

/** flightMax is how much may be under way without an answer. */
const flightMax = 1 << 20;

export class Input {
	private parts: Uint8Array[] = []; // from acked on
	private size = 0; // of parts
	private acked = 0;
	private sent = 0;

	put(data: Uint8Array): void {
		if (!data.length) return;
		this.parts.push(data);
		this.size += data.length;
	}

	/** begin starts anew at what the command has. first: what was typed before goes behind it. */
	begin(acked: number, first: boolean): void {
		if (first) this.acked = acked;
		else this.ack(acked);
		this.sent = this.acked;
	}

	/** ack drops what the command has. */
	ack(acked: number): void {
		let drop = acked - this.acked;
		if (drop <= 0) return;
		this.acked = acked;
		this.sent = Math.max(this.sent, acked);
		while (drop > 0 && this.parts.length) {
			const head = this.parts[0]!;
			const n = Math.min(drop, head.length);
			if (n === head.length) this.parts.shift();
			else this.parts[0] = head.subarray(n);
			this.size -= n;
			drop -= n;
		}
	}

	/** waits reports whether something was sent that is not accepted. */
	get waits(): boolean {
		return this.sent > this.acked;
	}

	/** pending counts the bytes that are not accepted. */
	get pending(): number {
		return this.size;
	}

	/** next is the next piece to send; null = there is none, or too much is under way. */
	next(): { offset: number; data: Uint8Array } | null {
		const from = this.sent - this.acked;
		const most = Math.min(stdinMax, this.size - from, flightMax - from);
		if (most <= 0) return null;
		const data = new Uint8Array(most);
		this.copy(from, data);
		const offset = this.sent;
		this.sent += most;
		return { offset, data };
	}

	private copy(from: number, into: Uint8Array): void {
		let skip = from;
		let at = 0;
		for (const part of this.parts) {
			if (at === into.length) return;
			if (skip >= part.length) {
				skip -= part.length;
				continue;
			}
			const piece = part.subarray(skip, skip + into.length - at);
			into.set(piece, at);
			at += piece.length;
			skip = 0;
		}
	}
}
