// A folder that a browser hands over, as a tar: that is what the server takes.

export interface Entry {
	path: string;
	bytes: Uint8Array;
}

const block = 512;
export const skillBytesMax = 16 << 20;
export const fileBytesMax = 10 << 20;
export const filesMax = 1000;

/** folderWrong says why files are no skill that the server takes; "" = it may be one. */
export function folderWrong(files: { path: string; size: number }[]): string {
	if (!files.some((f) => /(^|\/)SKILL\.md$/.test(f.path))) return "There is no SKILL.md in this folder.";
	if (files.length > filesMax) return `The folder has ${files.length} files; a skill has at most ${filesMax}.`;
	const large = files.find((f) => f.size > fileBytesMax);
	if (large) return `${large.path} is larger than 10 MiB.`;
	const sum = files.reduce((n, f) => n + f.size, 0);
	return sum > skillBytesMax ? `The folder has ${Math.ceil(sum / (1 << 20))} MiB; a skill has at most 16.` : "";
}

/** program tells a file that is run: a browser does not say which ones are. */
export const program = (bytes: Uint8Array) => bytes[0] === 0x23 && bytes[1] === 0x21;

/** tarOf writes a tar (ustar) of files. A path that has no place in one is an error. */
export function tarOf(entries: Entry[]): Uint8Array<ArrayBuffer> {
	const blocks = entries.map((e) => 1 + Math.ceil(e.bytes.length / block));
	const out = new Uint8Array((blocks.reduce((n, b) => n + b, 0) + 2) * block);
	let at = 0;
	entries.forEach((e, i) => {
		out.set(headerOf(e), at);
		out.set(e.bytes, at + block);
		at += blocks[i]! * block;
	});
	return out;
}

function headerOf(e: Entry): Uint8Array {
	const h = new Uint8Array(block);
	const [prefix, name] = namesOf(e.path);
	h.set(name, 0);
	const text = (s: string, place: number) => h.set(new TextEncoder().encode(s), place);
	const octal = (n: number, width: number, place: number) => text(`${n.toString(8).padStart(width - 1, "0")}\0`, place);
	octal(program(e.bytes) ? 0o755 : 0o644, 8, 100);
	octal(0, 8, 108);
	octal(0, 8, 116);
	octal(e.bytes.length, 12, 124);
	octal(0, 12, 136);
	text("        ", 148);
	text("0", 156);
	text("ustar\x0000", 257);
	h.set(prefix, 345);
	octal(
		h.reduce((n, b) => n + b, 0),
		7,
		148,
	);
	return h;
}

/** namesOf cuts a path into the two fields of a header, at a slash. */
function namesOf(path: string): [Uint8Array, Uint8Array] {
	const whole = new TextEncoder().encode(path);
	if (whole.length <= 100) return [new Uint8Array(), whole];
	for (let i = Math.min(155, whole.length - 1); i > 0; i--)
		if (whole[i] === 0x2f && whole.length - i - 1 <= 100 && whole.length - i - 1 > 0) return [whole.subarray(0, i), whole.subarray(i + 1)];
	throw new Error(`The path ${path} is too long to be sent.`);
}
