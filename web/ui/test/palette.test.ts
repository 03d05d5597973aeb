import { expect, test } from "vitest";
import type { Schemas } from "../src/api/types";
import { entriesOf, score } from "../src/palette-entries";

const run = (id: string, title: string) => ({ id, title, state: "running", agent: "default" }) as Schemas["Run"];

test("the palette has the pages, and all that is known", () => {
	const entries = entriesOf({
		runs: [run("run_1", "Fix \u202eit"), run("run_2", "")],
		workflows: [{ name: "article", versions: [] }],
		sandboxes: null,
	});
	expect(new Set(entries.map((e) => e.id)).size).toBe(entries.length);
	const of = (group: string) => entries.filter((e) => e.group === group).map((e) => [e.name, e.to]);
	expect(of("Runs")).toEqual([
		["Fix \\u{202e}it", "/runs/run_1"],
		["run_2", "/runs/run_2"],
	]);
	expect(of("Workflows")).toEqual([["article", "/workflows/article"]]);
	expect(of("Go to").map(([name]) => name)).toContain("Approvals");
	expect(entries.every((e) => e.to.startsWith("/"))).toBe(true);
});

test("what is typed is looked for as it stands, in names before all else", () => {
	expect(score("Example: mend a failing test", "run_1 running", "mend test")).toBe(0.8);
	expect(score("Machines", "sandboxes", "mend")).toBe(0);
	expect(score("Machines", "sandboxes", "MACH")).toBe(1);
	expect(score("Machines", "sandboxes", "sandbox")).toBe(0.4);
});
