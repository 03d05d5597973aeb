import { cleanup, fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Schemas } from "../src/api/types";
import PlanDialog, { differ } from "../src/undo/dialog";
import { UndoHost } from "../src/undo/host";
import { encoded, inside, relative } from "../src/undo/paths";
import { count, linesOf, marks, reversed, rowsOf, sideBySide } from "../src/undo/rows";
import { askWayBack, endWayBack } from "../src/undo/store";
import { rowsOf as tableRows } from "../src/undo/table";
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
	expect(calls.at(-1)!.body).toEqual({
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
