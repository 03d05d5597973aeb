import { cleanup, fireEvent, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import FilesPane from "../src/workspace/files";
import { type DirState, readText, textMax, treeRows, write } from "../src/workspace/files-data";
import { parents } from "../src/workspace/files-tree";
import { type Answer, type Call, layOut, Refusal, rev, serve, show } from "./server";

const box = "/v1/sandboxes/sbx_1";
const file = (path: string, type = "file") => ({
	path: `/workspace/${path}`,
	name: path.split("/").pop(),
	type,
	size: 3,
	mode: 420,
	uid: 0,
	gid: 0,
	modified_at: "",
});

const answers = (more: Record<string, Answer> = {}): Record<string, Answer> => ({
	"GET /v1/login": { tenant: "t", user: "u", scopes: ["write"], by: "login" },
	[`GET ${box}`]: { id: "sbx_1", state: "running" },
	[`GET ${box}/history`]: { items: [rev(2), rev(1)], current: 2, undo: 1, redo: 0 },
	[`GET ${box}/files/list`]: (c: Call) =>
		c.query.get("path") === "/workspace" ? { items: [file("b\u202ea.txt"), file("src", "directory")] } : { items: [file("src/main.go")] },
	...more,
});

beforeEach(layOut);
afterEach(() => {
	cleanup();
	vi.unstubAllGlobals();
	history.replaceState(null, "", "/");
});

const pane = (hidden = false) => <FilesPane sandbox="sbx_1" run="" past={false} hidden={hidden} />;
const names = () => screen.getAllByRole("treeitem").map((t) => t.textContent);

const node = (path: string, type = "file") => ({ path, type, size: 1, mode: 420 });

test("a revision is read directory by directory too, page by page", async () => {
	history.replaceState(null, "", "/?rev=1");
	const calls = serve(
		answers({
			[`GET ${box}/history/1/list`]: (c: Call) => {
				if (c.query.get("path") === "d") return { items: [node("d/b")] };
				return c.query.get("page_token") ? { items: [node("z")] } : { items: [node("a"), node("d", "directory")], next_page_token: "t" };
			},
		}),
	);
	show(pane());
	await screen.findByText("z");
	expect(names().map((n) => n?.[0])).toEqual(["d", "a", "z"]);
	const tree = screen.getByRole("tree");
	fireEvent.keyDown(tree, { key: "Home" });
	fireEvent.keyDown(tree, { key: "ArrowRight" });
	await screen.findByText("b");
	expect(calls.filter((c) => c.path.endsWith("/list")).map((c) => `${c.query.get("path")} ${c.query.get("page_token")}`)).toEqual([
		"null null",
		"null t",
		"d null",
	]);
	expect(calls.some((c) => c.path.includes("/files"))).toBe(false);
});

test("rows of a tree are those of open directories, each with its state", () => {
	const dir = (path: string) => ({ path, name: path, type: "directory" as const, size: 0 });
	const dirs = new Map<string, DirState>([
		["", { data: { nodes: [dir("a"), dir("b"), dir("c")], cut: false }, error: null }],
		["a", { data: { nodes: [], cut: false }, error: null }],
		["b", { error: null }],
	]);
	const open = new Map([
		["a", { path: "a" }],
		["b", { path: "b" }],
	]);
	expect(treeRows(dirs, open).map((r) => [r.node.path, r.open, r.state])).toEqual([
		["a", true, "empty"],
		["b", true, "asking"],
		["c", false, ""],
	]);
	expect(parents("a/b/c")).toEqual(["a", "a/b"]);
});

test("the tree is read directory by directory, and names that hide something are written out", async () => {
	const calls = serve(answers());
	show(pane());
	await screen.findByText("src");
	expect(names()).toEqual([expect.stringMatching(/^src/), expect.stringMatching(/^b\\u\{202e\}a\.txt/)]);
	const lists = () => calls.filter((c) => c.path === `${box}/files/list`).map((c) => c.query.get("path"));
	expect(lists()).toEqual(["/workspace"]);
	const tree = screen.getByRole("tree");
	fireEvent.keyDown(tree, { key: "Home" });
	fireEvent.keyDown(tree, { key: "ArrowRight" });
	await screen.findByText("main.go");
	expect(lists()).toContain("/workspace/src");
	fireEvent.keyDown(tree, { key: "ArrowLeft" });
	await waitFor(() => expect(screen.queryByText("main.go")).toBeNull());
});

test("a paused machine is not woken by looking", async () => {
	const calls = serve(
		answers({
			[`GET ${box}`]: { id: "sbx_1", state: "paused" },
			[`GET ${box}/history/2/list`]: { items: [node("kept")] },
		}),
	);
	show(pane());
	await screen.findByText("kept");
	expect(screen.getByText(/The machine is paused\. These are the files of #2/)).toBeTruthy();
	expect(calls.some((c) => c.path.includes("/files"))).toBe(false);
	fireEvent.click(screen.getByRole("button", { name: "Wake it and look" }));
	await screen.findByText("src");
});

test("a hidden pane asks nothing of the machine", async () => {
	const calls = serve(answers());
	show(pane(true));
	await waitFor(() => expect(calls.some((c) => c.path === box)).toBe(true));
	expect(calls.some((c) => c.path.startsWith(`${box}/`))).toBe(false);
});

test("a write is over what was read alone", async () => {
	const calls = serve({ [`PUT ${box}/files`]: () => new Response("{}", { headers: { ETag: '"new"' } }) });
	expect(await write("sbx_1", { path: "a b" }, new Blob(["x"]), '"old"')).toBe('"new"');
	await write("sbx_1", { path: "c" }, new Blob(["x"]), "absent");
	expect(calls.map((c) => [c.query.get("path"), c.headers.get("If-Match"), c.headers.get("If-None-Match")])).toEqual([
		["/workspace/a b", '"old"', null],
		["/workspace/c", null, "*"],
	]);
});

test("what is no text or too large is not shown as one", async () => {
	let body: Uint8Array<ArrayBuffer> = new Uint8Array([1, 0, 2]);
	serve({ [`GET ${box}/files`]: () => new Response(body, { headers: { ETag: '"e"' } }) });
	expect(await readText("sbx_1", 0, { path: "f" }, 3)).toMatchObject({ text: "", why: "It is no text.", etag: '"e"' });
	body = new Uint8Array([0xff, 0xfe]);
	expect((await readText("sbx_1", 0, { path: "f" }, 0)).why).toBe("It is no text.");
	body = new Uint8Array(textMax + 10).fill(65);
	expect((await readText("sbx_1", 0, { path: "f" }, 0)).why).toMatch(/too large/);
	body = new TextEncoder().encode("\ufeffä");
	expect((await readText("sbx_1", 0, { path: "f" }, 0)).text).toBe("\ufeffä");
});

test("an upload replaces nothing without being told to", async () => {
	let there = true;
	const calls = serve(
		answers({
			[`PUT ${box}/files`]: (c: Call) => (there && c.headers.get("If-None-Match") ? new Refusal(412, "there is one") : {}),
		}),
	);
	show(pane());
	const input = await screen.findByLabelText("Files to upload");
	fireEvent.change(input, { target: { files: [new File(["x"], "up.txt")] } });
	await screen.findByRole("dialog", { name: "Replace 1 file?" });
	expect(document.activeElement?.textContent).toBe("Keep what is there");
	fireEvent.click(screen.getByRole("button", { name: "Keep what is there" }));
	const puts = () => calls.filter((c) => c.method === "PUT");
	expect(puts()).toHaveLength(1);
	fireEvent.change(input, { target: { files: [new File(["x"], "up.txt")] } });
	await screen.findByRole("dialog");
	there = false;
	fireEvent.click(screen.getByRole("button", { name: "Replace" }));
	await screen.findByText("1 file uploaded.");
	expect(puts().at(-1)!.headers.get("If-None-Match")).toBeNull();
});

test("a file that changed meanwhile is not written over, and what was typed stays", async () => {
	let etag = '"one"';
	const calls = serve(
		answers({
			[`GET ${box}/files`]: () => new Response(etag === '"one"' ? "first" : "theirs", { headers: { ETag: etag } }),
			[`PUT ${box}/files`]: (c: Call) =>
				c.headers.get("If-Match") === etag ? new Response("{}", { headers: { ETag: '"mine"' } }) : new Refusal(412, "moved"),
		}),
	);
	history.replaceState(null, "", "/?file=src/main.go");
	show(pane());
	const text = await screen.findByRole("textbox", { name: "Text of src/main.go" }, { timeout: 5000 });
	const { EditorView } = await import("@codemirror/view");
	const editor = EditorView.findFromDOM(text)!;
	expect(editor.state.sliceDoc()).toBe("first");
	editor.dispatch({ changes: { from: 0, insert: "mine " } });
	await screen.findByText("not saved");
	etag = '"two"';
	fireEvent.click(screen.getByRole("button", { name: "Save" }));
	expect((await screen.findByRole("alert")).textContent).toContain("Nothing was saved");
	expect(EditorView.findFromDOM(text)!.state.sliceDoc()).toBe("mine first");
	expect(screen.queryByRole("button", { name: "Save mine over it" })).toBeNull();
	fireEvent.click(screen.getByRole("button", { name: "Show what is there now" }));
	expect(await screen.findByText("theirs")).toBeTruthy();
	fireEvent.click(screen.getByRole("button", { name: "Save mine over it" }));
	await screen.findByText("Saved.");
	expect(calls.filter((c) => c.method === "PUT").map((c) => c.headers.get("If-Match"))).toEqual(['"one"', '"two"']);
});
