import { expect, test } from "vitest";
import { spans, unstyled } from "../src/ui/sgr";

const e = "\x1b";

const cases: [name: string, input: string, want: [text: string, look: string][]][] = [
	["plain text", "hello\n\tworld", [["hello\n\tworld", ""]]],
	[
		"a colour and its end",
		`a${e}[31mred${e}[0mb`,
		[
			["a", ""],
			["red", "sgr-red"],
			["b", ""],
		],
	],
	[
		"an empty sequence ends all",
		`${e}[1;32mok${e}[m.`,
		[
			["ok", "sgr-green sgr-bold"],
			[".", ""],
		],
	],
	["bright and ground", `${e}[91;44mx`, [["x", "sgr-bright-red sgr-on-blue"]]],
	[
		"256 colours",
		`${e}[38;5;196mx${e}[39my`,
		[
			["x", "sgr-bright-red"],
			["y", ""],
		],
	],
	["true colour with colons", `${e}[38:2:0:0:255mx`, [["x", "sgr-bright-blue"]]],
	["inverse of nothing", `${e}[7mx`, [["x", "sgr-inverse sgr-on-inverse"]]],
	["hidden text stays in sight", `${e}[8msecret`, [["secret", ""]]],
	["equal looks are one span", `${e}[31ma${e}[31mb`, [["ab", "sgr-red"]]],
	["one-byte CSI", "\x9b31mx", [["x", "sgr-red"]]],
	["cursor and screen are dropped", `a${e}[2J${e}[H${e}[1A${e}[?25lb`, [["ab", ""]]],
	["the clipboard is dropped", `a${e}]52;c;ZXZpbA==\x07b`, [["ab", ""]]],
	["a title is dropped", `a${e}]0;evil${e}\\b`, [["ab", ""]]],
	["a link shows its text", `${e}]8;;https://evil.example${e}\\text${e}]8;;${e}\\`, [["text", ""]]],
	["device control is dropped", `a${e}Pq#0;2${e}\\b`, [["ab", ""]]],
	["an OSC without an end hides its line alone", `a${e}]0;evil\nb`, [["a\nb", ""]]],
	["a sequence that is broken off", `a${e}[31`, [["a", ""]]],
	["a lone escape", `a${e}`, [["a", ""]]],
	["character sets", `a${e}(Bb`, [["ab", ""]]],
	["private parameters are no colours", `${e}[?31mx${e}[>4;2my`, [["xy", ""]]],
	["an intermediate makes it another", `${e}[31 mx`, [["x", ""]]],
	["markup is text", "<img src=x onerror=alert(1)>", [["<img src=x onerror=alert(1)>", ""]]],
	["no class names from output", `${e}[31;evil"mx`, [['vil"mx', ""]]],
	["turned text is written out", "a\u202eb\u200bc", [["a\\u{202e}b\\u{200b}c", ""]]],
	["other controls are written out", "a\x08\x00b", [["a\\u{8}\\u{0}b", ""]]],
	["a line begun anew", "10%\r20%\r\nend", [["10%\n20%\nend", ""]]],
	["numbers out of range", `${e}[99999999999999999999;38;5;999mx`, [["x", "sgr-bright-white"]]],
];

test.each(cases)("%s", (_name, input, want) => {
	expect(spans(input).map((s) => [s.text, s.look])).toEqual(want);
});

test("looks are from a fixed set, whatever the output", () => {
	let seed = 7;
	const random = (n: number) => {
		seed = (seed * 1103515245 + 12345) % 2147483648;
		return seed % n;
	};
	const alphabet = [`${e}[`, e, ";", ":", "m", "3", "8", "4", "2", "1", "5", "x", "\n", "]", "\x07", "\x9b", "P", '"', "<"];
	for (let i = 0; i < 2000; i++) {
		const text = Array.from({ length: 30 }, () => alphabet[random(alphabet.length)]).join("");
		for (const s of spans(text)) {
			expect(s.look).toMatch(/^(sgr-[a-z-]+( sgr-[a-z-]+)*)?$/);
			expect(s.text).not.toMatch(/\p{Cc}(?<![\n\t])/u);
		}
	}
});

test("thousands of parameters and strings cost their length", () => {
	const hostile = `${e}[${"1;".repeat(100_000)}mx${`${e}]`.repeat(100_000)}\nend`;
	expect(unstyled(hostile).endsWith("\nend")).toBe(true);
});
