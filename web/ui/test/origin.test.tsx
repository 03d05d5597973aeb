import { cleanup, fireEvent, screen, within } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import type { Run } from "../src/api/types";
import { itemsOf, Origin, runAt } from "../src/run/origin";
import { type Call, serve, show } from "./server";

afterEach(() => {
	cleanup();
	vi.unstubAllGlobals();
});

const event = (seq: number, kind: string, data: unknown) => ({ seq, v: 1, kind, at: "2026-01-01T00:00:00Z", data });
const says = (seq: number, text: string) => event(seq, "input", { from: "user", blocks: [{ kind: "text", text }] });
const run = (id: string, first_seq: number, more: Partial<Run> = {}) =>
	({ id, thread: "thr_1", first_seq, title: `title of ${id}`, ...more }) as Run;

test("a thread's event is of the last run that began before it", () => {
	const runs = [run("c", 20), run("a", 2), run("b", 9)];
	expect([2, 8, 9, 19, 99].map((seq) => runAt(runs, seq)?.id)).toEqual(["a", "a", "b", "b", "c"]);
	expect(runAt(runs, 1)).toBeUndefined();
});

test("what was taken back is not taken over", () => {
	const events = [says(2, "one"), says(3, "two"), event(4, "thread.rewound", { to: 2 })];
	expect(itemsOf("t", events).map((i) => i.kind)).toEqual(["input", "note"]);
});

test("a fork names its origin, and shows what it took over when asked", async () => {
	const hostile = "x\u202e<img src=x onerror=alert(1)>";
	const calls = serve({
		"GET /v1/runs": (c: Call) =>
			c.query.get("thread") === "thr_1" ? { items: [run("run_b", 9), run("run_a", 2, { title: hostile })] } : {},
		"GET /v1/runs/run_a/events": { items: [says(3, hostile), event(4, "run.ended", { state: "succeeded", reason: "done" })], before: 3 },
	});
	show(<Origin run={run("run_f", 30, { thread: "thr_2", fork: { thread: "thr_1", seq: 5 } })} />);
	const link = await screen.findByRole("link");
	expect([link.getAttribute("href"), link.textContent]).toEqual(["/runs/run_a?at=5", "x\\u{202e}<img src=x onerror=alert(1)>"]);
	expect(calls.some((c) => c.path.endsWith("/events"))).toBe(false);
	fireEvent.click(screen.getByRole("button", { name: "Show what it took over" }));
	const list = await screen.findByRole("list", { name: "What it took over" });
	const lines = within(list).getAllByRole("listitem");
	expect(lines.map((l) => l.textContent)).toEqual(["userx\\u{202e}<img src=x onerror=alert(1)>", "enddone"]);
	expect(document.querySelector("img")).toBeNull();
	expect(calls.find((c) => c.path.endsWith("/events"))!.query.get("before")).toBe("6");
	expect(screen.getByText(/1 event before these/)).toBeTruthy();
});

test("an origin that is gone is said to be so, and a run that is no fork says nothing", async () => {
	serve({ "GET /v1/runs": { items: [] } });
	const { container, again } = show(<Origin run={run("r", 2)} />);
	expect(container.textContent).toBe("");
	again(<Origin run={run("r", 2, { fork: { thread: "thr_9", seq: 4 } })} />);
	expect(await screen.findByText(/from a run that is gone, or is not yours, at event 4/)).toBeTruthy();
	expect(screen.queryByRole("button")).toBeNull();
});
