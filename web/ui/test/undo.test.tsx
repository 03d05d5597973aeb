import { cleanup, fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Schemas } from "../src/api/types";
import { type Scene, SceneContext } from "../src/run/context";
import { draftOf, setDraft } from "../src/run/draft";
import { RunFold } from "../src/run/fold";
import PlanDialog, { differ } from "../src/undo/dialog";
import { UndoHost } from "../src/undo/host";
import { encoded, inside, relative } from "../src/undo/paths";
import { count, linesOf, marks, reversed, rowsOf, sideBySide } from "../src/undo/rows";
import { askWayBack, endWayBack } from "../src/undo/store";
import { rowsOf as tableRows } from "../src/undo/table";
import { cutOf } from "../src/undo/talk";
import { type Call, change, Lost, layOut, plan, Refusal, rev, serve, show } from "./server";

const base = "/v1/sandboxes/sbx_1/history";
const login = { "GET /v1/login": { tenant: "t", user: "u", scopes: ["write"], by: "login" } };

beforeEach(layOut);
afterEach(() => {
	endWayBack();
	cleanup();
	vi.unstubAllGlobals();
	history.replaceState(null, "", "/");
});

const hunk: Schemas["DiffHunk"] = {
	before: 3,
	before_lines: 3,
	after: 3,
	after_lines: 3,
	lines: [
		{ kind: "same", text: "a" },
		{ kind: "remove", text: "return sum(items)" },
		{ kind: "add", text: "return sum(prices)" },
		{ kind: "same", text: "z", no_newline: true },
	],
};

test("rows carry the numbers of both sides, and changed lines know their pair", () => {
	const rows = linesOf([hunk], "f");
	expect(rows.map((r) => (r.row === "line" ? [r.kind, r.before, r.after] : r.row))).toEqual([
		"gap",
		["same", 3, 3],
		["remove", 4, 0],
		["add", 0, 4],
		["same", 5, 5],
	]);
	expect(rows[2]).toMatchObject({ pair: "return sum(prices)" });
	expect(new Set(rows.map((r) => r.key)).size).toBe(rows.length);
	expect(marks("return sum(items)", "return sum(prices)")).toEqual([[11, 16]]);
	expect(marks("one", "two")).toEqual([]);
	expect(marks("x".repeat(3000), "y")).toEqual([]);
});

test("lines that have no pair have no marks", () => {
	const lines: Schemas["DiffLine"][] = [
		{ kind: "remove", text: "a b" },
		{ kind: "add", text: "a c" },
		{ kind: "add", text: "d" },
	];
	for (const r of linesOf([{ ...hunk, lines }], "f")) expect(r).not.toHaveProperty("pair", expect.any(String));
});

test("the way back of a hunk has its removed lines first", () => {
	const [back] = reversed([hunk]);
	expect(back!.lines!.map((l) => l.kind + l.text)).toEqual(["samea", "removereturn sum(prices)", "addreturn sum(items)", "samez"]);
	expect(count(reversed([{ ...hunk, lines: [{ kind: "add", text: "x" }] }]))).toEqual({ added: 0, removed: 1 });
});

test("changes of space alone are hidden when that is asked for, others never", () => {
	const lines: Schemas["DiffLine"][] = [
		{ kind: "remove", text: "if x:" },
		{ kind: "add", text: "if  x:" },
	];
	const files = [change("f", "change", { hunks: [{ ...hunk, lines }] }), change("g", "change", { hunks: [hunk] })];
	const kinds = rowsOf(files, () => true, false).map((r) => (r.row === "line" ? r.kind : r.row === "gap" ? r.text : r.row));
	expect(kinds).toEqual(["file", "about", "Only space differs.", "file", "about", "line 3", "same", "remove", "add", "same"]);
	expect(rowsOf(files, () => false).map((r) => r.row)).toEqual(["file", "file"]);
});

test("side by side each line stands beside what came in its place", () => {
	const lines: Schemas["DiffLine"][] = [
		{ kind: "same", text: "s" },
		{ kind: "remove", text: "a" },
		{ kind: "remove", text: "b" },
		{ kind: "add", text: "A" },
		{ kind: "same", text: "t" },
		{ kind: "add", text: "new" },
	];
	const rows = sideBySide(rowsOf([change("f", "change", { hunks: [{ ...hunk, lines }] })], () => true));
	expect(rows.map((r) => (r.row === "pair" ? `${r.before?.text ?? ""}|${r.after?.text ?? ""}` : r.row))).toEqual([
		"file",
		"about",
		"gap",
		"s|s",
		"a|A",
		"b|",
		"t|t",
		"|new",
	]);
	expect(new Set(rows.map((r) => r.key)).size).toBe(rows.length);
});

test("paths go out byte for byte", () => {
	expect(encoded({ path: "a b/ü" })).toBe("a%20b%2F%C3%BC");
	expect(encoded({ path: "\ufffd", path_bytes: btoa("\xff/") })).toBe("%ff%2f");
	expect(inside({ path: "" })).toBe("%2Fworkspace");
	expect(relative({ path: "/workspace/\ufffd", path_bytes: btoa("/workspace/\xff") })).toEqual({
		path: "\ufffd",
		path_bytes: btoa("\xff"),
	});
});

test("more than 500 paths are grouped by their directories", () => {
	const many = Array.from({ length: 501 }, (_, i) => change(`d${i % 2}/f${i}`));
	expect(tableRows(many.slice(1)).some((r) => "dir" in r)).toBe(false);
	expect(tableRows(many).filter((r) => "dir" in r)).toEqual([
		{ dir: "d0", size: 251 },
		{ dir: "d1", size: 250 },
	]);
});

test("a plan tells what the one before had not", () => {
	const d = differ(plan("1", [change("a"), change("b"), change("c")]), plan("2", [change("a"), change("b", "remove"), change("d")]));
	expect([...d.fresh]).toEqual(["b", "d"]);
	expect(d.gone).toEqual(["c"]);
});

function open(request: Schemas["PlanChange"] = { do: "undo", scope: "last" }) {
	const onClose = vi.fn();
	const onDone = vi.fn();
	show(<PlanDialog sandbox="sbx_1" request={request} refused="" onClose={onClose} onDone={onDone} />);
	return { onClose, onDone };
}

const button = (name: string | RegExp) => screen.getByRole<HTMLButtonElement>("button", { name });
const applies = (calls: Call[]) => calls.filter((c) => c.path === `${base}/apply`);
const applied = (files: unknown[]) => ({ revision: rev(7, { root: "root5" }), files });

test("a plan lists its paths, keeps by default, and applies what was shown", async () => {
	const hostile = "a\u202egnp.exe";
	const calls = serve({
		[`POST ${base}/plan`]: plan("undo-5-x", [change("src/a"), change(hostile, "remove")]),
		[`POST ${base}/apply`]: applied([]),
		[`GET ${base}/diff`]: { from: 5, to: 0, files: [change("src/a", "change", { hunks: [hunk] })] },
	});
	const { onDone, onClose } = open();
	const list = await screen.findByRole("list", { name: "Paths that change: 2" });
	expect(
		within(list)
			.getAllByRole("listitem")
			.map((l) => l.textContent),
	).toEqual([expect.stringMatching(/^changedsrc\/a/), expect.stringMatching(/^removeda\\u\{202e\}gnp\.exe/)]);
	expect(screen.getByText(/2 paths change\./)).toBeTruthy();
	expect(document.activeElement).toBe(button("Keep as it is"));
	fireEvent.click(within(list).getByRole("button", { name: /src\/a/ }));
	expect(await within(list).findByText("added:")).toBeTruthy();
	fireEvent.click(button("Keep as it is"));
	expect(onClose).toHaveBeenCalled();
	expect(applies(calls)).toHaveLength(0);
	fireEvent.click(button("Undo"));
	await waitFor(() => expect(onDone).toHaveBeenCalled());
	expect(applies(calls)[0]!.body).toEqual({ plan: "undo-5-x" });
});

test("a plan with nothing to do says so, and cannot be applied", async () => {
	serve({ [`POST ${base}/plan`]: plan("undo-5-x", []) });
	open();
	expect(await screen.findByText(/Nothing would change/)).toBeTruthy();
	expect(button("Undo").disabled).toBe(true);
});

test("a problem of the plan is shown in full", async () => {
	serve({ [`POST ${base}/plan`]: new Refusal(409, "a run works on these files", "wait for it, or stop it") });
	open();
	const box = await screen.findByRole("alert");
	expect(box.textContent).toContain("a run works on these files");
	expect(box.textContent).toContain("wait for it, or stop it");
	expect(box.textContent).toContain("req_7");
	expect(button("Undo").disabled).toBe(true);
});

test("files that moved make a new plan, which marks what is new and does nothing", async () => {
	let asked = 0;
	const calls = serve({
		[`POST ${base}/plan`]: () => (asked++ ? plan("undo-5-y", [change("b")]) : plan("undo-5-x", [change("a")])),
		[`POST ${base}/apply`]: (c: Call) =>
			(c.body as { plan: string }).plan === "undo-5-y" ? applied([]) : new Refusal(409, "the workspace changed since the plan was made"),
	});
	const { onDone } = open();
	await screen.findByText("a");
	fireEvent.click(button("Undo"));
	expect(await screen.findByText(/changed meanwhile \(the workspace changed since the plan was made\)/)).toBeTruthy();
	expect(screen.getByText("new in this plan")).toBeTruthy();
	expect(screen.getByText(/No longer part of it: a/)).toBeTruthy();
	expect(document.activeElement).toBe(button("Keep as it is"));
	fireEvent.click(button("Undo"), { detail: 2 }); // the second of a double click
	expect(applies(calls)).toHaveLength(1);
	expect(onDone).not.toHaveBeenCalled();
	fireEvent.click(button("Undo"));
	await waitFor(() => expect(onDone).toHaveBeenCalled());
	expect(applies(calls).map((c) => c.body)).toEqual([{ plan: "undo-5-x" }, { plan: "undo-5-y" }]);
});

test("an apply that fails says why and is never told as done", async () => {
	serve({
		[`POST ${base}/plan`]: plan("undo-5-x", [change("a")]),
		[`POST ${base}/apply`]: new Refusal(422, "the disk is full", "free some space"),
	});
	const { onDone } = open();
	await screen.findByText("a");
	fireEvent.click(button("Undo"));
	const box = await screen.findByRole("alert");
	expect(box.textContent).toContain("the disk is full");
	expect(onDone).not.toHaveBeenCalled();
	expect(document.body.textContent).not.toContain("Undo done");
});

test("an apply whose answer is lost is asked for again by the same plan", async () => {
	let lost = true;
	const calls = serve({
		[`POST ${base}/plan`]: plan("undo-5-x", [change("a")]),
		[`POST ${base}/apply`]: () => (lost ? new Lost() : applied([])),
	});
	const { onDone } = open();
	await screen.findByText("a");
	fireEvent.click(button("Undo"));
	expect(await screen.findByText(/It is not known whether it was done/)).toBeTruthy();
	lost = false;
	fireEvent.click(button("Undo: ask again"));
	await waitFor(() => expect(onDone).toHaveBeenCalled());
	expect(applies(calls).map((c) => c.body)).toEqual([{ plan: "undo-5-x" }, { plan: "undo-5-x" }]);
});

test("conflicts are asked path by path, and the whole plan is shown before anything is done", async () => {
	const calls = serve({
		[`POST ${base}/plan`]: (c: Call) =>
			(c.body as Schemas["PlanChange"]).choices?.length
				? plan("revert-2-y", [change("f")], { do: "revert", n: 2 })
				: plan("revert-2-x", [], {
						do: "revert",
						n: 2,
						conflicts: [
							{ path: "f", why: "it was changed since", markers: true },
							{ path: "g", why: "it is gone", markers: false },
						],
					}),
		[`POST ${base}/apply`]: applied([]),
	});
	const { onDone } = open({ do: "revert", n: 2 });
	const f = await screen.findByRole<HTMLSelectElement>("combobox", { name: /^f it was changed since/ });
	const g = screen.getByRole<HTMLSelectElement>("combobox", { name: /^g it is gone/ });
	expect([...f.options].map((o) => o.value)).toEqual(["", "keep", "take", "markers"]);
	expect([...g.options].map((o) => o.value)).toEqual(["", "keep", "take"]);
	fireEvent.change(f, { target: { value: "take" } });
	expect(button("Show the plan").disabled).toBe(true);
	fireEvent.change(g, { target: { value: "keep" } });
	fireEvent.click(button("Show the plan"));
	await screen.findByText(/1 path changes/);
	expect(applies(calls)).toHaveLength(0);
	expect(calls.filter((c) => c.method === "POST").at(-1)!.body).toEqual({
		do: "revert",
		n: 2,
		choices: [
			{ path: "f", choice: "take" },
			{ path: "g", choice: "keep" },
		],
	});
	fireEvent.click(button("Revert"));
	await waitFor(() => expect(onDone).toHaveBeenCalled());
});

test("the keys of an editor show plans, but not while a person types", async () => {
	const calls = serve({
		...login,
		[`POST ${base}/plan`]: (c: Call) => plan("x", [change("a")], { do: (c.body as Schemas["PlanChange"]).do }),
	});
	show(
		<>
			<input aria-label="composer" />
			<UndoHost sandbox="sbx_1" past={false} />
		</>,
	);
	fireEvent.keyDown(screen.getByLabelText("composer"), { key: "z", ctrlKey: true });
	expect(screen.queryByRole("dialog")).toBeNull();
	fireEvent.keyDown(document.body, { key: "z", ctrlKey: true });
	await screen.findByRole("dialog");
	await screen.findByText("a");
	expect(calls.find((c) => c.method === "POST")!.body).toEqual({ do: "undo", scope: "last" });
	fireEvent.click(button("Keep as it is"));
	await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
	fireEvent.keyDown(document.body, { key: "Z", ctrlKey: true, shiftKey: true });
	await waitFor(() => expect(calls.filter((c) => c.method === "POST").at(-1)!.body).toEqual({ do: "redo" }));
});

test("a dialog stays while its plan is applied, so that a failure is seen", async () => {
	let answer = (_: unknown) => {};
	const slow = new Promise((done) => {
		answer = done;
	});
	serve({ [`POST ${base}/plan`]: plan("undo-5-x", [change("a")]), [`POST ${base}/apply`]: () => slow });
	const { onClose } = open();
	await screen.findByText("a");
	fireEvent.click(button("Undo"));
	expect(button("Keep as it is").disabled).toBe(true);
	fireEvent.keyDown(screen.getByRole("dialog"), { key: "Escape" });
	expect(onClose).not.toHaveBeenCalled();
	answer(new Refusal(422, "the disk is full"));
	expect((await screen.findByRole("alert")).textContent).toContain("the disk is full");
});

test("a banner tells the result of each path that was kept, and offers redo", async () => {
	const calls = serve({
		...login,
		[`POST ${base}/plan`]: (c: Call) =>
			plan(`${(c.body as Schemas["PlanChange"]).do}-5-x`, [change("a"), change("b")], { do: (c.body as Schemas["PlanChange"]).do }),
		[`POST ${base}/apply`]: applied([
			{ ...change("a"), result: "done" },
			{ ...change("b"), result: "kept" },
		]),
		[`GET ${base}/5`]: { ...rev(5), from: 4, files_changed: [] },
	});
	show(<UndoHost sandbox="sbx_1" past={false} />);
	askWayBack("sbx_1", { do: "undo", scope: "last" });
	await screen.findByText("a");
	fireEvent.click(button("Undo"));
	const banner = await screen.findByRole("region", { name: "What was done" });
	expect(banner.textContent).toContain("Undo done: 1 path changed, 1 kept");
	expect(
		within(banner)
			.getAllByRole("listitem")
			.map((l) => l.textContent),
	).toEqual(["b"]);
	expect(await within(banner).findByText(/The files are exactly those of #5/)).toBeTruthy();
	fireEvent.click(within(banner).getByRole("button", { name: "Redo" }));
	await waitFor(() => expect(calls.filter((c) => c.path === `${base}/plan`).at(-1)!.body).toEqual({ do: "redo" }));
});

test("without a machine the dialog and the banner say that it goes through the host", async () => {
	for (const [state, says] of [
		["failed", true],
		["stopped", true],
		["running", false],
	] as const) {
		serve({
			...login,
			"GET /v1/sandboxes/sbx_1": { id: "sbx_1", state },
			[`POST ${base}/plan`]: plan("undo-5-x", [change("a")]),
			[`POST ${base}/apply`]: applied([{ ...change("a"), result: "done" }]),
			[`GET ${base}/5`]: { ...rev(5), from: 4 },
		});
		show(<UndoHost sandbox="sbx_1" past={false} />);
		askWayBack("sbx_1", { do: "undo", scope: "last" });
		await screen.findByText("a");
		await waitFor(() => expect(screen.getByRole("dialog").textContent!.includes("through the host")).toBe(says));
		fireEvent.click(button("Undo"));
		const banner = await screen.findByRole("region", { name: "What was done" });
		expect(banner.textContent!.includes("through the host")).toBe(says);
		cleanup();
	}
});

test("who may only look is told so, and nothing is asked", async () => {
	const calls = serve({ "GET /v1/login": { tenant: "t", user: "u", scopes: ["read"], by: "login" } });
	show(<UndoHost sandbox="sbx_1" past={false} />);
	await waitFor(() => expect(calls).toHaveLength(1));
	await waitFor(() => {
		fireEvent.keyDown(document.body, { key: "z", ctrlKey: true });
		expect(screen.getByText(/lacks the right “write”/)).toBeTruthy();
	});
	endWayBack();
	await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
});

test("the past changes nothing", async () => {
	const calls = serve(login);
	show(<UndoHost sandbox="sbx_1" past />);
	fireEvent.keyDown(document.body, { key: "z", ctrlKey: true });
	expect(await screen.findByText(/You look at the past/)).toBeTruthy();
	expect(calls.some((c) => c.method !== "GET")).toBe(false);
});

const event = (seq: number, kind: string, data: unknown) => ({ seq, v: 1, kind, at: "2026-01-01T00:00:00Z", run: "run_1", data });
const says = (seq: number, text: string, from = "user") => event(seq, "input", { from, blocks: [{ kind: "text", text }] });
const does = (seq: number, call: string) =>
	event(seq, "model.completed", {
		message: { role: "assistant", blocks: [{ kind: "call", call: { id: call, name: "execute", args: {} } }] },
		usage: {},
		model: "m",
		stop: "tool_use",
		through: seq - 1,
	});

/** talked is a run of two turns: the second has two steps. */
function talked(over: boolean): RunFold {
	const f = new RunFold("t");
	const events = [
		event(2, "run.started", {}),
		says(3, "Make it."),
		does(4, "c1"),
		says(5, "Now in red."),
		says(6, "The files are as they were.", "skete"),
		does(7, "c2"),
		does(8, "c3"),
	];
	if (over) events.push(event(9, "run.ended", { state: "succeeded" }));
	for (const e of events) f.apply("", e);
	return f;
}

const made = (n: number, call: string, more: Partial<Schemas["Revision"]> = {}) =>
	rev(n, { run: "run_1", thread: "t", call, actor: "agent", ...more });
const list = [made(8, "c3"), made(7, "c2"), made(6, "c1"), rev(5)];

test("a way back knows where the conversation stood, and the message that asked for what goes", () => {
	const t = talked(true).thread("t");
	const to = (n: number, revs = list) => cutOf(t, "run_1", revs, plan("x", [], { n }));
	expect(to(7)).toEqual({ to: 7, step: 3, prompt: "" }); // in the middle of a turn
	expect(to(6)).toEqual({ to: 4, step: 2, prompt: "Now in red." });
	expect(to(5)).toEqual({ to: 2, step: 1, prompt: "Make it." });
	expect(to(8)).toBeNull();
	expect(to(5, [made(6, "c9")])).toBeNull(); // its events are not here
	expect(to(5, [made(6, "c2", { actor: "outside" }), made(7, "c2", { run: "run_2" })])).toBeNull();
	expect(to(5, [made(6, "x", { thread: "t/c2/d" })])?.to).toBe(4); // by a sub-agent of that call
});

function host(over: boolean, answers: Record<string, unknown>) {
	const fold = talked(over);
	const newest = vi.fn(async () => {});
	const scene = { store: { id: "run_1", snapshot: () => ({ fold }), newest }, root: "t", fork: vi.fn() } as unknown as Scene;
	const calls = serve({
		...login,
		[`POST ${base}/plan`]: plan("undo-6-x", [change("a")], { n: 6 }),
		[`POST ${base}/apply`]: applied([{ ...change("a"), result: "done" }]),
		[`GET ${base}`]: { items: list, current: 8, undo: 7, redo: 0 },
		"GET /v1/sandboxes/sbx_1": { id: "sbx_1", state: "running" },
		"GET /v1/sandboxes/sbx_1/services": {
			items: [
				{ name: "vite", state: "ready" },
				{ name: "old", state: "stopped" },
			],
		},
		...answers,
	});
	show(
		<SceneContext.Provider value={scene}>
			<UndoHost sandbox="sbx_1" past={false} />
		</SceneContext.Provider>,
	);
	askWayBack("sbx_1", { do: "undo", scope: "turn" });
	return { calls, scene, newest };
}

const rewinds = (calls: Call[]) => calls.filter((c) => c.path === "/v1/runs/run_1/rewind").map((c) => c.body);

test("the conversation stays unless it is asked for; then its message is in the composer again", async () => {
	const first = host(true, {});
	const box = await screen.findByRole<HTMLInputElement>("checkbox", { name: "Conversation too" });
	expect(box.checked).toBe(false);
	expect(await screen.findByText(/The service vite is started again if it has a replaced file open/)).toBeTruthy();
	fireEvent.click(button("Undo"));
	const banner = await screen.findByRole("region", { name: "What was done" });
	expect(banner.querySelector("[data-talk]")?.getAttribute("data-talk")).toBe("stays");
	expect([rewinds(first.calls), draftOf("run_1")]).toEqual([[], ""]);
	fireEvent.click(within(banner).getByRole("button", { name: "Put the message back" }));
	expect(draftOf("run_1")).toBe("Now in red.");
	setDraft("run_1", "");
	cleanup();
	const second = host(true, { "POST /v1/runs/run_1/rewind": { id: "run_1" } });
	fireEvent.click(await screen.findByRole("checkbox", { name: "Conversation too" }));
	fireEvent.click(button("Undo"));
	expect(await screen.findByText(/The conversation was taken back to event 4, before step 2\./)).toBeTruthy();
	expect(rewinds(second.calls)).toEqual([{ to: 4 }]);
	const order = second.calls.filter((c) => c.method === "POST").map((c) => c.path.split("/").pop());
	expect(order).toEqual(["plan", "apply", "rewind"]); // the files first
	expect(second.newest).toHaveBeenCalled();
	expect(draftOf("run_1")).toBe("Now in red.");
	setDraft("run_1", "");
});

test("files that were taken back without the conversation say so, and it can be tried again", async () => {
	let busy = true;
	const { calls } = host(true, { "POST /v1/runs/run_1/rewind": () => (busy ? new Refusal(409, "the run is under way") : { id: "run_1" }) });
	fireEvent.click(await screen.findByRole("checkbox", { name: "Conversation too" }));
	fireEvent.click(button("Undo"));
	expect(await screen.findByText("The files were taken back, but the conversation was not.")).toBeTruthy();
	expect(screen.getByText("the run is under way")).toBeTruthy();
	busy = false;
	fireEvent.click(button("Try again"));
	expect(await screen.findByText(/The conversation was taken back to event 4/)).toBeTruthy();
	expect(rewinds(calls)).toHaveLength(2);
	setDraft("run_1", "");
});

test("while a run goes on its conversation is not cut, and a fork is offered", async () => {
	const { scene, calls } = host(false, {});
	const box = await screen.findByRole<HTMLInputElement>("checkbox", { name: "Conversation too" });
	expect(box.disabled).toBe(true);
	expect(screen.getByText(/The run is under way and is not stopped by this/)).toBeTruthy();
	fireEvent.click(button("Fork from event 4"));
	expect(scene.fork).toHaveBeenCalledWith(4);
	expect(applies(calls)).toHaveLength(0);
	await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
});
