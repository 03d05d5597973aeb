import { cleanup, fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Schemas } from "../src/api/types";
import { UndoHost } from "../src/undo/host";
import { endWayBack } from "../src/undo/store";
import ChangesPane, { chosenOf } from "../src/workspace/changes";
import { beforeOf, type Known, merge } from "../src/workspace/changes-data";
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
