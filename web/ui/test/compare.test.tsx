import { cleanup, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import ComparePage from "../src/run/compare";
import { commonOf, pair, sideOf, tipOf } from "../src/run/compare-data";
import { type Call, change, layOut, rev, serve, show } from "./server";

beforeEach(layOut);
afterEach(() => {
	cleanup();
	vi.unstubAllGlobals();
	history.replaceState(null, "", "/");
});

test("an address names revisions or runs, and nothing else", () => {
	expect(sideOf("88", "run_a")).toEqual({ n: 88 });
	expect(sideOf("run_b", "run_a")).toEqual({ run: "run_b" });
	expect(sideOf("", "run_a")).toEqual({ run: "run_a" });
	for (const bad of ["0", "-1", "1e3", "run_../x", "9".repeat(16), "run_B"]) expect(sideOf(bad, "run_a")).toBeNull();
});

test("two histories share the newest revision that is the same in both, at or before both tips", () => {
	const a = [rev(5, { root: "r5a" }), rev(3, { root: "r3", run: "run_a" }), rev(2), rev(1)];
	const b = [rev(5, { root: "r5b" }), rev(3, { root: "other" }), rev(2), rev(1)];
	expect(commonOf(a, b, 5)).toBe(2);
	expect(commonOf(a, b, 1)).toBe(1);
	expect(commonOf(a, [rev(2, { time: "2020-01-01T00:00:00Z" })], 5)).toBe(0);
	expect(tipOf(a, "run_a")?.n).toBe(3);
	expect(tipOf(a, "run_b")?.n).toBe(5);
	expect(tipOf([], "run_b")).toBeUndefined();
});

test("paths tell which side changed them, and whether both made the same", () => {
	const lines = (text: string) => ({
		hunks: [{ before: 1, before_lines: 0, after: 1, after_lines: 1, lines: [{ kind: "add" as const, text }] }],
	});
	const both = pair(
		[change("a", "change", lines("x")), change("c", "change", lines("x")), change("d", "change", { binary: true })],
		[change("b"), change("a", "change", lines("x")), change("c", "change", lines("y")), change("d", "change", { binary: true })],
	);
	expect(both.map((p) => [p.path.path, !!p.a, !!p.b, p.same])).toEqual([
		["a", true, true, true],
		["b", false, true, false],
		["c", true, true, false],
		["d", true, true, false],
	]);
});

const run = (id: string, sandbox: string) => ({
	id,
	thread: `thr_${id}`,
	sandbox,
	title: `the title of ${id}\u202e`,
	agent: "a",
	state: "succeeded",
	steps: 4,
	cost_usd: 1.25,
	created_at: "2026-01-01T00:00:00Z",
	ended_at: "2026-01-01T00:01:30Z",
});

test("two runs are compared with what they share, each in its own machine", async () => {
	const calls = serve({
		"GET /v1/runs/run_a": run("run_a", "sbx_a"),
		"GET /v1/runs/run_b": { ...run("run_b", "sbx_b"), cost_usd: 2.5, steps: 7 },
		"GET /v1/sandboxes/sbx_a/history": { items: [rev(3, { root: "x" }), rev(2), rev(1)] },
		"GET /v1/sandboxes/sbx_b/history": { items: [rev(4, { root: "y" }), rev(2), rev(1)] },
		"GET /v1/sandboxes/sbx_a/history/diff": (c: Call) => ({ from: Number(c.query.get("from")), to: 3, files: [change("only-a", "add")] }),
		"GET /v1/sandboxes/sbx_b/history/diff": (c: Call) => ({
			from: Number(c.query.get("from")),
			to: 4,
			files: [change("only-b", "remove")],
		}),
	});
	history.replaceState(null, "", "/runs/run_b/compare?a=run_a&b=run_b");
	show(<ComparePage id="run_b" />);
	expect(await screen.findByText("Each is compared with #2, the last revision that they share.")).toBeTruthy();
	const table = await screen.findByRole("table", { name: "Paths" });
	expect(
		within(table)
			.getAllByRole("row")
			.slice(1)
			.map((r) => r.textContent),
	).toEqual([expect.stringMatching(/^only-amade.*as it was/), expect.stringMatching(/^only-bas it wasremoved/)]);
	const sides = screen.getByRole("table", { name: "The two sides" });
	await waitFor(() => expect(sides.textContent).toMatch(/Steps47Cost\$1\.25\$2\.50Time1 min 30 s1 min 30 s/));
	expect(sides.textContent).toContain("\\u{202e}");
	expect(calls.filter((c) => c.path.endsWith("/diff")).map((c) => [c.path.split("/")[3], c.query.get("from"), c.query.get("to")])).toEqual([
		["sbx_a", "2", "3"],
		["sbx_b", "2", "4"],
	]);
	expect(calls.filter((c) => c.method !== "GET")).toEqual([]);
});

test("an address without two sides says what it may be", async () => {
	serve({ "GET /v1/runs/run_a": run("run_a", "sbx_a") });
	history.replaceState(null, "", "/runs/run_a/compare?a=3&b=x");
	show(<ComparePage id="run_a" />);
	expect(await screen.findByText(/names no two revisions and no two runs/)).toBeTruthy();
	cleanup();
	history.replaceState(null, "", "/runs/run_a/compare?a=3");
	show(<ComparePage id="run_a" />);
	expect(await screen.findByText(/A revision is compared with a revision/)).toBeTruthy();
});
