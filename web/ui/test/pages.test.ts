import { expect, test } from "vitest";
import { clipLines, headTail, lineMax } from "../src/run/lines";
import { piece, pieceBytes, type Read, search } from "../src/run/pages";

function reader(text: string): { read: Read; size: number; most: () => number } {
	const bytes = new TextEncoder().encode(text);
	let most = 0;
	const read: Read = async (from, to) => {
		most = Math.max(most, to - from);
		return bytes.slice(from, to);
	};
	return { read, size: bytes.length, most: () => most };
}

async function whole(text: string): Promise<string> {
	const { read, size } = reader(text);
	const out: string[] = [];
	for (let n = 0; n * pieceBytes < size; n++) out.push((await piece(read, n, size)).text);
	return out.join("\n");
}

test("the pieces of an output have each line once", async () => {
	const lines = Array.from({ length: 9000 }, (_, i) => `line ${i} ${"é".repeat(i % 40)}`);
	expect(await whole(lines.join("\n"))).toBe(lines.join("\n"));
	expect(await whole(`${lines.join("\n")}\n`)).toBe(lines.join("\n"));
});

test("a line that begins at the border of a piece is not lost", async () => {
	for (const before of [pieceBytes - 2, pieceBytes - 1, pieceBytes, pieceBytes + 1]) {
		const text = `${"a".repeat(before)}\nthe end`;
		expect((await whole(text)).split("the end").length - 1).toBe(1);
	}
});

test("one line of megabytes is cut, and says so", async () => {
	const { read, size } = reader("x".repeat(200_000));
	expect((await piece(read, 0, size)).text).toMatch(/… \d+ more characters … the line goes on$/);
	expect((await piece(read, 1, size)).text).toBe(`… ${pieceBytes} bytes of one line`);
});

test("a piece tells which of its lines holds a byte", async () => {
	const text = Array.from({ length: 9000 }, (_, i) => `line ${i}`).join("\n");
	const { read, size } = reader(text);
	for (const words of ["line 0\n", "line 17\n", "ine 17\n", "line 4000\n", "line 8999"]) {
		const at = text.indexOf(words);
		const { text: shown, line } = await piece(read, Math.floor(at / pieceBytes), size, at);
		expect(shown.split("\n")[line]).toContain(words.trim());
	}
	expect((await piece(read, 1, size)).line).toBe(-1);
});

test("a search goes through all of it and keeps no more than a part", async () => {
	const text = `${"no\n".repeat(1_000_000)}the Needle${"\nno".repeat(10)}`;
	const { read, size, most } = reader(text);
	const signal = new AbortController().signal;
	const seen: number[] = [];
	expect(await search(read, size, "needle", 0, signal, (n) => seen.push(n))).toBe(3_000_004);
	expect(seen.length).toBeGreaterThan(1);
	expect(most()).toBeLessThanOrEqual(1 << 20);
	expect(await search(read, size, "needle", 3_000_005, signal, () => {})).toBe(-1);
	expect(await search(read, size, "", 0, signal, () => {})).toBe(-1);
});

test("words across the border of two reads are found", async () => {
	const { read, size } = reader(`${"a".repeat((1 << 20) - 3)}needle`);
	expect(await search(read, size, "NEEDLE", 0, new AbortController().signal, () => {})).toBe((1 << 20) - 3);
});

test("the head and the tail of an output, with what is between counted", () => {
	const lines = Array.from({ length: 1000 }, (_, i) => String(i));
	const { head, cut, tail } = headTail(`${lines.join("\n")}\n`, 100, 200);
	expect([head.split("\n").length, cut, tail.split("\n").length]).toEqual([100, 700, 200]);
	expect(tail.endsWith("999")).toBe(true);
	expect(headTail("a\nb\n", 100, 200)).toEqual({ head: "a\nb", cut: 0, tail: "" });
});

test("a long line is cut with a count", () => {
	expect(clipLines(`ok\n${"x".repeat(lineMax + 5)}`)).toBe(`ok\n${"x".repeat(lineMax)}… 5 more characters`);
});
