import { expect, test } from "vitest";
import { base64 } from "../src/api/base64";
import type { Schemas } from "../src/api/types";
import { questionOf, splitName } from "../src/pages/skills-detail";
import { folderWrong, tarOf } from "../src/pages/skills-tar";

const bytes = (s: string) => new TextEncoder().encode(s);

interface Found {
	path: string;
	mode: string;
	text: string;
	sum: boolean;
}

/** untar reads a tar as its standard says. */
function untar(tar: Uint8Array): Found[] {
	const out: Found[] = [];
	const text = (from: number, most: number) => new TextDecoder().decode(tar.subarray(from, from + most)).split("\0")[0]!;
	for (let at = 0; tar[at]; ) {
		const size = Number.parseInt(text(at + 124, 12), 8);
		const prefix = text(at + 345, 155);
		const header = tar.slice(at, at + 512).fill(32, 148, 156);
		out.push({
			path: (prefix ? `${prefix}/` : "") + text(at, 100),
			mode: text(at + 100, 8),
			text: new TextDecoder().decode(tar.subarray(at + 512, at + 512 + size)),
			sum: header.reduce((n, b) => n + b, 0) === Number.parseInt(text(at + 148, 8), 8),
		});
		at += 512 + Math.ceil(size / 512) * 512;
	}
	return out;
}

test("a folder becomes a tar with all its files, and programs can be run", () => {
	const long = `s/${"d".repeat(90)}/${"f".repeat(60)}.md`;
	const tar = tarOf([
		{ path: "s/SKILL.md", bytes: bytes("---\nname: s\n---\n") },
		{ path: "s/scripts/a.py", bytes: bytes("#!/usr/bin/env python3\n") },
		{ path: "s/ä.md", bytes: bytes("x".repeat(1000)) },
		{ path: "s/empty", bytes: bytes("") },
		{ path: long, bytes: bytes("end") },
	]);
	expect(tar.length % 512).toBe(0);
	expect(untar(tar).map((f) => [f.path, f.mode, f.text.length, f.sum])).toEqual([
		["s/SKILL.md", "0000644", 16, true],
		["s/scripts/a.py", "0000755", 23, true],
		["s/ä.md", "0000644", 1000, true],
		["s/empty", "0000644", 0, true],
		[long, "0000644", 3, true],
	]);
});

test("a path that no tar can hold is refused by its name", () => {
	expect(() => tarOf([{ path: `s/${"x".repeat(120)}`, bytes: bytes("") }])).toThrow("too long");
});

test("a folder that is no skill is refused before it is read", () => {
	const skill = { path: "s/SKILL.md", size: 10 };
	expect(folderWrong([skill])).toBe("");
	expect(folderWrong([{ path: "s/README.md", size: 1 }])).toContain("SKILL.md");
	expect(folderWrong([skill, { path: "s/big", size: 11 << 20 }])).toContain("s/big");
	expect(folderWrong([skill, ...[1, 2].map((n) => ({ path: `s/${n}`, size: 9 << 20 }))])).toContain("19 MiB");
	expect(folderWrong(Array.from({ length: 1001 }, () => skill))).toContain("1001");
});

test("bytes are written as base64, also many", () => {
	const many = Uint8Array.from({ length: 100_000 }, (_, i) => i % 256);
	expect(base64(many)).toBe(Buffer.from(many).toString("base64"));
});

test("an address names a version behind the at", () => {
	expect([splitName("a"), splitName("a@b1")]).toEqual([
		["a", ""],
		["a", "b1"],
	]);
});

test("a question names what it is about, and trust is said of a whole version", () => {
	const v: Schemas["SkillVersion"] = { version: "f".repeat(64), description: "", bytes: 1, files: 1, installed_at: "" };
	const s = { name: "s\u202e", version: v.version } as Schemas["Skill"];
	expect(questionOf({ trust: v }, s)).toMatchObject({ body: { trust: v.version } });
	expect(questionOf({ trust: { ...v, trusted_by: "ana" } }, s)).toMatchObject({ body: { distrust: v.version } });
	expect(questionOf({ go: v }, s).body).toEqual({ version: v.version });
	expect(questionOf("remove", s)).toMatchObject({ body: null, title: "Remove the skill s\\u{202e}?" });
});
