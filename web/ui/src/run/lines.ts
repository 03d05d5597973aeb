// Lines of an output that is here: those that are shown, and how much of each.

export const lineMax = 4096;

/** clipLines cuts lines that are too long to be read, and says by how much. */
export function clipLines(text: string): string {
	if (text.length <= lineMax) return text;
	return text
		.split("\n")
		.map((l) => (l.length > lineMax ? `${l.slice(0, lineMax)}… ${l.length - lineMax} more characters` : l))
		.join("\n");
}

/** headTail keeps the first and the last lines of a text; cut counts those between. */
export function headTail(text: string, head: number, tail: number): { head: string; cut: number; tail: string } {
	const lines = text.split("\n");
	if (lines.at(-1) === "") lines.pop();
	if (lines.length <= head + tail) return { head: lines.join("\n"), cut: 0, tail: "" };
	return { head: lines.slice(0, head).join("\n"), cut: lines.length - head - tail, tail: lines.slice(-tail).join("\n") };
}
