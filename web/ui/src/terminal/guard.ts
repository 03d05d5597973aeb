// What programs in a terminal may make it do. They may draw. They may ask what kind of
// terminal it is, and are answered only while it is live and a person is at it: answers are
// input of the shell. The title, the clipboard, the palette and the window are not theirs.

import type { IParser } from "@xterm/xterm";

const titles = [0, 1, 2];
const clipboard = 52;
/** palette: 4 and 10 to 12 set a colour, or ask with ?; 104, 110 to 112 put it back. */
const colours = [4, 10, 11, 12];
const resets = [104, 110, 111, 112];

/** guard takes away what programs may not do. answers reports whether questions are answered. */
export function guard(parser: IParser, answers: () => boolean): void {
	const never = () => true;
	const asked = () => !answers();
	for (const n of [...titles, clipboard, ...resets]) parser.registerOscHandler(n, never);
	for (const n of colours) parser.registerOscHandler(n, (data) => !(answers() && isQuestion(data)));
	parser.registerCsiHandler({ final: "t" }, never);
	parser.registerCsiHandler({ final: "c" }, asked);
	parser.registerCsiHandler({ prefix: ">", final: "c" }, asked);
	parser.registerCsiHandler({ prefix: "=", final: "c" }, asked);
	parser.registerCsiHandler({ final: "n" }, asked);
	parser.registerCsiHandler({ prefix: "?", final: "n" }, asked);
	parser.registerCsiHandler({ prefix: ">", final: "q" }, asked);
	parser.registerCsiHandler({ intermediates: "$", final: "p" }, asked);
	parser.registerCsiHandler({ prefix: "?", intermediates: "$", final: "p" }, asked);
	parser.registerDcsHandler({ intermediates: "$", final: "q" }, asked);
}

/** isQuestion tells a question for colours from a change of them. */
export function isQuestion(data: string): boolean {
	const parts = data.split(";");
	return parts.every((p) => p === "?" || /^\d+$/.test(p)) && parts.includes("?");
}
