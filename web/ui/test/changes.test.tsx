import { cleanup, fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Schemas } from "../src/api/types";
import { addToDraft, draftOf, setDraft } from "../src/run/draft";
import { UndoHost } from "../src/undo/host";
import { endWayBack } from "../src/undo/store";
import ChangesPane, { chosenOf } from "../src/workspace/changes";
import { quoted } from "../src/workspace/changes-comment";
import { beforeOf, type Known, merge, sinceOf, workOf } from "../src/workspace/changes-data";
import { signOf } from "../src/workspace/changes-reviewed";
import { type Answer, type Call, change, layOut, Refusal, rev, serve, show } from "./server";

const base = "/v1/sandboxes/sbx_1/history";
const login = { "GET /v1/login": { tenant: "t", user: "u", scopes: ["write"], by: "login" } };

beforeEach(layOut);
afterEach(() => {
	endWayBack();
	cleanup();
	vi.unstubAllGlobals();
	sessionStorage.clear();
	history.replaceState(null, "", "/");
});

const page = (ns: number[], more: Partial<Schemas["RevisionPage"]> = {}): Schemas["RevisionPage"] => ({
	items: ns.map((n) => rev(n)),
	current: ns[0] ?? 0,
	undo: ns[1] ?? 0,
	redo: 0,
	...more,
});

test("a page of new revisions goes before those that are known; a gap is not papered over", () => {
	const first = merge(null, page([4, 3], { next_page_token: "3" }));
	const older: Known = { ...first, revs: first.revs.concat(rev(2), rev(1)), next: "" };
	const grown = merge(older, page([5, 4], { next_page_token: "4" }));
	expect(grown.revs.map((r) => r.n)).toEqual([5, 4, 3, 2, 1]);
	expect(grown.next).toBe("");
	const gap = merge(older, page([9, 8], { next_page_token: "8" }));
	expect(gap.revs.map((r) => r.n)).toEqual([9, 8]);
	expect(gap.next).toBe("8");
	expect([beforeOf(grown, 5), beforeOf(grown, 1), beforeOf(gap, 8), beforeOf(gap, 3)]).toEqual([4, 0, undefined, undefined]);
});

test("without a choice the newest is followed, unsaved changes first", () => {
	const known = merge(null, page([4, 3]));
	expect(chosenOf("", known, 0)).toBe(4);
	expect(chosenOf("", { ...known, unsaved: { files: 1 } }, 0)).toBe("now");
	expect(chosenOf("3", known, 0)).toBe(3);
	expect(chosenOf("-3", known, 0)).toBe(4);
	expect(chosenOf("", known, 3)).toBe(3);
});

test("a mark is of one change: another one of the same path has none", () => {
	const hunks = (text: string): Schemas["DiffHunk"][] => [
		{ before: 1, before_lines: 0, after: 1, after_lines: 1, lines: [{ kind: "add", text }] },
	];
	const a = change("f", "change", { hunks: hunks("x") });
	expect(signOf(a, "1 2")).toBe(signOf({ ...a }, "1 3"));
	expect(signOf(a, "1 2")).not.toBe(signOf({ ...a, hunks: hunks("y") }, "1 2"));
	const binary = change("f", "change", { binary: true });
	expect(signOf(binary, "1 2")).not.toBe(signOf(binary, "1 3"));
});

const hostile = "<img src=x onerror=alert(1)>";
const diff = (c: Call) => ({
	from: Number(c.query.get("from")),
	to: Number(c.query.get("to")),
	files: [
		change("src/theme.css", "change", {
			hunks: [
				{
					before: 1,
					before_lines: 1,
					after: 1,
					after_lines: 1,
					lines: [
						{ kind: "remove", text: "color: navy;" },
						{ kind: "add", text: "color: crimson;" },
					],
				},
			],
		}),
		change(hostile, "add", { binary: true }),
	],
});

const answers = (more: Record<string, Answer> = {}) => ({
	...login,
	[`GET ${base}`]: page([3, 2, 1]),
	[`GET ${base}/diff`]: diff,
	...more,
});
const pane = (hidden = false, past = false) => <ChangesPane sandbox="sbx_1" run="" past={past} hidden={hidden} />;
const diffs = (calls: Call[]) => calls.filter((c) => c.path === `${base}/diff`).map((c) => `${c.query.get("from")}..${c.query.get("to")}`);

test("a pane that is hidden asks for nothing", async () => {
	const calls = serve(answers());
	const r = show(pane(true));
	await new Promise((done) => setTimeout(done, 20));
	expect(calls.filter((c) => c.path.startsWith(base))).toEqual([]);
	r.again(pane(false));
	await screen.findByText("color: ", { exact: false, selector: "[data-kind=add] *" });
	expect(diffs(calls)).toEqual(["2..3"]);
});

test("revisions and their lines are shown as text, and chosen by the keyboard", async () => {
	const calls = serve(answers());
	show(pane());
	const list = await screen.findByRole("listbox", { name: "Revisions" });
	expect(
		within(list)
			.getAllByRole("option")
			.map((o) => o.textContent),
	).toEqual([
		expect.stringMatching(/^#3change 3.*nowthe agent$/),
		expect.stringMatching(/^#2change 2/),
		expect.stringMatching(/^#1change 1/),
	]);
	const lines = await screen.findByRole("region", { name: "What changed, line by line" });
	await waitFor(() => expect(lines.querySelector("[data-kind=add]")?.textContent).toContain("added: color: crimson;"));
	expect(lines.querySelector("[data-kind=add] mark")?.textContent).toBe("crimson");
	expect(lines.querySelector("[data-kind=remove]")?.textContent).toContain("removed: color: navy;");
	expect(lines.textContent).toContain(hostile);
	expect(document.querySelector("img")).toBeNull();
	fireEvent.keyDown(list, { key: "ArrowDown" });
	await waitFor(() => expect(diffs(calls)).toEqual(["2..3", "1..2"]));
	expect(location.search).toBe("?rev=2");
	fireEvent.keyDown(list, { key: "End" });
	await waitFor(() => expect(diffs(calls)).toContain("0..1"));
});

test("two revisions are compared, and the address keeps which", async () => {
	const calls = serve(answers());
	show(pane());
	fireEvent.change(await screen.findByRole("combobox", { name: "since" }), { target: { value: "1" } });
	await waitFor(() => expect(diffs(calls)).toContain("1..3"));
	expect(location.search).toBe("?from=1");
});

test("unsaved changes stand before the newest revision", async () => {
	const calls = serve(answers({ [`GET ${base}`]: page([3, 2], { current: 0, undo: 3, unsaved: { files: 2, cut: true } }) }));
	show(pane());
	const list = await screen.findByRole("listbox", { name: "Revisions" });
	expect(within(list).getAllByRole("option")[0]!.textContent).toContain("nowunsaved changes: 2 files and more");
	await waitFor(() => expect(diffs(calls)).toContain("3..0"));
});

test("a mark closes the path, and is gone when the change is another one", async () => {
	let text = "x";
	const of = () => ({
		from: 2,
		to: 3,
		files: [change("f", "change", { hunks: [{ before: 1, before_lines: 0, after: 1, after_lines: 1, lines: [{ kind: "add", text }] }] })],
	});
	serve(answers({ [`GET ${base}/diff`]: of }));
	const r = show(pane());
	fireEvent.click(await screen.findByRole("checkbox", { name: "Reviewed: f" }));
	await waitFor(() => expect(document.querySelector("[data-kind=add]")).toBeNull());
	expect(screen.getByText(/1 reviewed/)).toBeTruthy();
	text = "y";
	await r.client.invalidateQueries({ queryKey: ["history"] });
	await waitFor(() => expect(document.querySelector("[data-kind=add]")?.textContent).toContain("y"));
	expect(screen.getByRole<HTMLInputElement>("checkbox", { name: "Reviewed: f" }).checked).toBe(false);
});

test("a path is restored by a plan of that path alone", async () => {
	history.replaceState(null, "", "/?rev=2");
	const calls = serve(answers({ [`POST ${base}/plan`]: new Refusal(409, "busy") }));
	show(
		<>
			<UndoHost sandbox="sbx_1" past={false} />
			{pane()}
		</>,
	);
	fireEvent.click(await screen.findByRole("button", { name: /^Restore this file to #\d+ ?: src\/theme.css/ }));
	await waitFor(() => expect(calls.find((c) => c.method === "POST")?.body).toEqual({ do: "restore", n: 2, path: "src/theme.css" }));
});

test("the past and who may only look have no way back", async () => {
	serve(answers());
	show(pane(false, true));
	expect(await screen.findByText(/You look at the past/)).toBeTruthy();
	for (const name of ["Undo", "Save a revision", "Revert only this"])
		expect((await screen.findByRole<HTMLButtonElement>("button", { name })).disabled).toBe(true);
	cleanup();
	serve(answers({ "GET /v1/login": { tenant: "t", user: "u", scopes: ["read"], by: "login" } }));
	show(pane());
	expect(await screen.findByText(/lacks the right “write”/)).toBeTruthy();
	expect(screen.getByRole<HTMLButtonElement>("button", { name: "Undo" }).disabled).toBe(true);
});

test("the past shows the revision of its moment, and only reads", async () => {
	history.replaceState(null, "", "/?at=9");
	const items = [3, 2, 1].map((n) => rev(n, { time: `2026-01-01T00:00:0${n}Z` }));
	const calls = serve(
		answers({
			[`GET ${base}`]: { ...page([3]), items },
			"GET /v1/runs/run_1/events": { items: [{ seq: 9, at: "2026-01-01T00:00:02.5Z" }] },
		}),
	);
	show(<ChangesPane sandbox="sbx_1" run="run_1" past hidden={false} />);
	await waitFor(() => expect(diffs(calls)).toEqual(["1..2"]));
	expect(calls.find((c) => c.path === "/v1/runs/run_1/events")!.query.get("before")).toBe("10");
	expect(calls.every((c) => c.method === "GET")).toBe(true);
});

test("an empty history and a refusal are told in words", async () => {
	serve(answers({ [`GET ${base}`]: page([]) }));
	show(pane());
	expect(await screen.findByText(/Nothing is recorded yet/)).toBeTruthy();
	cleanup();
	serve(answers({ [`GET ${base}`]: new Refusal(404, "there is no such sandbox") }));
	show(pane());
	expect((await screen.findByRole("alert")).textContent).toContain("there is no such sandbox");
});

test("a saved revision is named", async () => {
	const calls = serve(answers({ [`POST ${base}`]: rev(4) }));
	show(pane());
	fireEvent.click(await screen.findByRole("button", { name: "Save a revision" }));
	expect(await screen.findByText("The files as they are now are revision #4.")).toBeTruthy();
	expect(calls.find((c) => c.method === "POST")?.body).toEqual({ label: "saved by hand" });
});

const work = (n: number, step: number, more: Partial<Schemas["Revision"]> = {}) =>
	rev(n, { run: "run_1", thread: "t", call: `c${n}`, step, actor: "agent", ...more });

/** talk has two turns: revision 3 is what was there when the second one began. */
const talk = (next = ""): Known =>
	merge(null, {
		...page([]),
		items: [
			rev(7, { actor: "user:key_1" }),
			work(6, 4),
			work(5, 3, { thread: "t/c1", call: "c9" }),
			work(4, 3),
			rev(3, { run: "run_1", actor: "outside" }),
			work(2, 2),
			work(1, 1),
		],
		next_page_token: next,
	});

test("a range begins before the step or the turn of a revision", () => {
	const known = talk();
	expect(workOf(known, 0)?.n).toBe(6);
	expect([6, 5, 4, 2].map((n) => sinceOf(known, n, "step"))).toEqual([5, 4, 3, 1]);
	expect(sinceOf(known, 0, "step")).toBe(5);
	// A revision without a call shows what was there when a person spoke, whatever had made it.
	expect([0, 6, 4, 2].map((n) => sinceOf(known, n, "turn"))).toEqual([3, 3, 3, 0]);
	expect(sinceOf(talk("1"), 2, "turn")).toBeUndefined();
	expect(sinceOf(merge(null, page([3, 2])), 0, "step")).toBe(0);
});

test("the step and the turn can be chosen, and older revisions are asked for where they begin there", async () => {
	const known = talk();
	const calls = serve(
		answers({
			[`GET ${base}`]: (c: Call) =>
				c.query.get("page_token")
					? { ...page([]), items: known.revs.slice(3) }
					: { ...page([]), current: 7, items: known.revs.slice(0, 3), next_page_token: "5" },
		}),
	);
	show(pane());
	fireEvent.change(await screen.findByRole("combobox", { name: "since" }), { target: { value: "step" } });
	await waitFor(() => expect(diffs(calls)).toContain("5..7"));
	fireEvent.change(screen.getByRole("combobox", { name: "since" }), { target: { value: "turn" } });
	await waitFor(() => expect(diffs(calls)).toContain("3..7"));
	expect(location.search).toBe("?from=turn");
});

test("a comment on a line is put into the message, quoted, and is not sent", async () => {
	const calls = serve(answers());
	setDraft("run_1", "Look here:");
	show(<ChangesPane sandbox="sbx_1" run="run_1" past={false} hidden={false} />);
	fireEvent.click(await screen.findByRole("button", { name: /^Comment ?on a line of src\/theme.css/ }));
	const form = await screen.findByRole("form", { name: "Comment on src/theme.css" });
	const say = within(form).getByRole<HTMLButtonElement>("button", { name: "Put into the message" });
	fireEvent.change(within(form).getByRole("textbox", { name: "Comment" }), { target: { value: "too loud" } });
	fireEvent.change(within(form).getByRole("spinbutton"), { target: { value: "7" } });
	expect(say.disabled).toBe(true);
	expect(within(form).getByRole("alert").textContent).toContain("Line 7 is not among the 2 lines");
	fireEvent.change(within(form).getByRole("spinbutton"), { target: { value: "1" } });
	fireEvent.click(say);
	expect(draftOf("run_1")).toBe("Look here:\n\n> `src/theme.css:1` (added)\n>\n>     color: crimson;\n\ntoo loud");
	expect(screen.queryByRole("form")).toBeNull();
	expect(screen.getByText("The comment stands in the message to the agent.")).toBeTruthy();
	expect(calls.every((c) => c.method === "GET")).toBe(true);
	setDraft("run_1", "");
});

test("a click on a line's number comments on that line, also side by side", async () => {
	serve(answers());
	show(<ChangesPane sandbox="sbx_1" run="run_1" past={false} hidden={false} />);
	fireEvent.click(await screen.findByRole("checkbox", { name: "side by side" }));
	const removed = await waitFor(() => document.querySelector<HTMLElement>(".grid [data-kind=remove] [title]")!);
	expect(document.querySelectorAll(".grid [data-kind]")).toHaveLength(2);
	fireEvent.click(removed);
	const form = await screen.findByRole("form", { name: "Comment on src/theme.css" });
	fireEvent.change(within(form).getByRole("textbox", { name: "Comment" }), { target: { value: "keep" } });
	fireEvent.submit(form);
	expect(draftOf("run_1")).toContain("> `src/theme.css:1` (removed; the number is of before)\n>\n>     color: navy;");
	setDraft("run_1", "");
	localStorage.clear();
});

test("without an agent, and in the past, there is nothing to comment to", async () => {
	serve(answers());
	show(pane());
	await screen.findByRole("region", { name: "What changed, line by line" });
	expect(screen.queryByRole("button", { name: /^Comment/ })).toBeNull();
});

test("names and lines cannot end the quotation that they stand in", () => {
	const line = { row: "line" as const, key: "k", kind: "add" as const, before: 0, after: 3, text: "a\u202eb", noNewline: false };
	expect(quoted("x`y\n# z", line, " w ").split("\n")[0]).toBe("> `` x`y\\u{a}# z:3 `` (added)");
	expect(quoted("f", line, "w")).toContain("\\u{202e}");
	addToDraft("run_2", "sk-ant-0123456789abcdef0123");
	expect([draftOf("run_2"), sessionStorage.getItem("skete.draft.run_2")]).toEqual(["sk-ant-0123456789abcdef0123", null]);
});
