// A long output in pieces: which lines a piece shows, and a search that reads the whole without
// keeping it.

import { clipLines } from "./lines";

/** pieceBytes is what one row of the pager holds, windowBytes what can be scrolled at once: a
 * page of hundreds of megabytes would be higher than browsers draw. */
export const pieceBytes = 32 << 10;
export const windowBytes = 1 << 20;
const overlapBytes = 4 << 10;
const scanBytes = 1 << 20;

/** Read returns the bytes from..to-1 of an output. */
export type Read = (from: number, to: number, signal?: AbortSignal) => Promise<Uint8Array>;

/** Piece is the text of a piece; of its lines, line holds the byte that was asked for. */
export interface Piece {
	text: string;
	line: number;
}

/** piece is the text of the lines that begin in the n-th piece. A place that a line of the piece
 * before goes on to is told as the first line. */
export async function piece(read: Read, n: number, size: number, at = -1, signal?: AbortSignal): Promise<Piece> {
	const start = n * pieceBytes;
	const from = Math.max(0, start - 1);
	const bytes = await read(from, Math.min(size, start + pieceBytes + overlapBytes), signal);
	const text = linesOf(bytes, start - from, pieceBytes, start + pieceBytes >= size);
	return { text, line: at < start ? -1 : lineAt(bytes, start - from, at - from) };
}

/** lineAt counts the lines from where the first one begins after `skip` bytes to the byte at `at`. */
export function lineAt(bytes: Uint8Array, skip: number, at: number): number {
	let n = skip > 0 && bytes[skip - 1] !== 10 ? -1 : 0;
	for (let i = skip; i < at; i++) if (bytes[i] === 10) n++;
	return Math.max(0, n);
}

/** linesOf cuts the lines that begin in the first `length` bytes after `skip`. */
export function linesOf(bytes: Uint8Array, skip: number, length: number, last: boolean): string {
	let begin = skip;
	if (skip > 0 && bytes[skip - 1] !== 10) {
		const at = bytes.indexOf(10, skip);
		if (at < 0 || at >= skip + length) return `… ${Math.min(length, bytes.length - skip)} bytes of one line`;
		begin = at + 1;
	}
	let end = bytes.length;
	let cut = false;
	if (!last) {
		const at = bytes.indexOf(10, skip + length - 1);
		end = at < 0 ? bytes.length : at;
		cut = at < 0;
	} else if (bytes[end - 1] === 10) end--;
	return clipLines(new TextDecoder().decode(bytes.subarray(begin, end))) + (cut ? " … the line goes on" : "");
}

/** search returns the offset of the next place after `from` that holds the words, or -1. ASCII letters
 * match in both cases. progress is told how far it is. */
export async function search(
	read: Read,
	size: number,
	words: string,
	from: number,
	signal: AbortSignal,
	progress: (at: number) => void,
): Promise<number> {
	const want = new TextEncoder().encode(words.toLowerCase());
	if (!want.length) return -1;
	for (let at = from; at < size; ) {
		const bytes = await read(at, Math.min(size, at + scanBytes), signal);
		const i = indexIn(bytes, want);
		if (i >= 0) return at + i;
		if (at + bytes.length >= size) return -1;
		at += Math.max(1, bytes.length - want.length + 1);
		progress(at);
	}
	return -1;
}

function indexIn(bytes: Uint8Array, want: Uint8Array): number {
	const last = bytes.length - want.length;
	for (let i = 0; i <= last; i++) {
		let j = 0;
		while (j < want.length && lower(bytes[i + j]!) === want[j]) j++;
		if (j === want.length) return i;
	}
	return -1;
}

const lower = (b: number) => (b >= 65 && b <= 90 ? b + 32 : b);
