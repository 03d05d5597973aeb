import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Approval, RunEvent } from "../src/api/types";
import { ApprovalCard, Decision, Kept, pathOf } from "../src/run/approvals";
import { type CallItem, RunFold } from "../src/run/fold";
import type { RunView } from "../src/run/store";

// A run whose calls wait, and the server that says what exactly would run.

interface Call {
	id: string;
	tool?: string;
	args: unknown;
	ask?: Approval["ask"];
	allowed?: string[];
	expires?: string;
}

const all = ["approve", "edit", "reject", "respond"];
const now = () => new Date().toISOString();
let seq = 0;
const event = (kind: string, data: unknown): RunEvent => ({ seq: ++seq, v: 1, kind, at: now(), data });

function gated(thread: string, calls: Call[]): { fold(f: RunFold): void; approvals: Approval[] } {
	const blocks = calls.map((c) => ({ kind: "call", call: { id: c.id, name: c.tool ?? "execute", args: c.ask === "form" ? {} : c.args } }));
	const list = [
		event("thread.opened", { name: thread.includes("/") ? "reviewer" : "lead" }),
		event("model.completed", {
			message: { role: "assistant", blocks },
			usage: { input: 1, output: 1 },
			model: "m",
			stop: "tool_use",
			through: 1,
		}),
	];
	const approvals = calls.map((c): Approval => {
		const e = event("approval.asked", { ask: c.ask, call: c.id, tool: c.tool ?? "execute", allowed: c.allowed ?? all });
		list.push(e);
		return {
			ask: c.ask,
			run: "run_1",
			thread,
			agent: "x",
			call: c.id,
			tool: c.tool ?? "execute",
			args: c.args,
			args_hash: `hash-${c.id}`,
			allowed: c.allowed ?? all,
			asked_at: e.at,
			expires_at: c.expires,
			seq: e.seq,
		};
	});
	return { approvals, fold: (f) => list.forEach((e) => void f.apply(thread, e)) };
}

let approvals: Approval[] = [];
let sent: Record<string, unknown>[] = [];
let answers: ((d: Record<string, unknown>) => unknown) | null = null;

beforeEach(() => {
	seq = 0;
	sent = [];
	answers = null;
	vi.stubGlobal("fetch", async (path: string, init?: RequestInit) => {
		if (path === "/v1/sandboxes/sbx_1")
			return Response.json({ id: "sbx_1", state: "running", workdir: "/workspace", network: "none", isolation: "microvm" });
		if (path === "/v1/sandboxes/sbx_1/files?path=%2Fa.txt") return new Response("one\ntwo\nthree\n");
		if (path.endsWith("/approvals")) return Response.json({ items: approvals });
		if (!path.endsWith("/decisions")) return Response.json({ title: "not found" }, { status: 404 });
		const body = JSON.parse(String(init?.body)) as { decisions: Record<string, unknown>[] };
		sent.push(...body.decisions);
		return Response.json({ items: body.decisions.map((d) => answers?.(d) ?? { call: d.call, ok: true }) });
	});
});
afterEach(() => {
	cleanup();
	vi.unstubAllGlobals();
});

function show(fold: RunFold, sandbox = "") {
	const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
	const view = () => ({ run: { id: "run_1", thread: "t", sandbox }, fold, version: 1 }) as unknown as RunView;
	const tree = () => (
		<QueryClientProvider client={client}>
			<main id="main" tabIndex={-1}>
				<ApprovalCard view={view()} />
			</main>
		</QueryClientProvider>
	);
	const made = render(tree());
	return () => act(() => made.rerender(tree()));
}

function waits(...calls: Call[]): RunFold {
	const g = gated("t", calls);
	approvals = g.approvals;
	const f = new RunFold("t");
	g.fold(f);
	return f;
}

const cards = () => screen.getAllByRole("article");
const button = (of: HTMLElement, name: RegExp) => within(of).getByRole("button", { name });
const ready = () => screen.findAllByRole("button", { name: /^(Approve|Answer|Fill in|Accept the plan)/ });

test("four calls of a turn have four decisions, each with the hash of what was shown", async () => {
	const f = waits(
		{ id: "c1", args: { command: "one" } },
		{ id: "c2", args: { command: "two", timeout: 30 } },
		{ id: "c3", args: { command: "three" } },
		{ id: "c4", args: { command: "four" } },
	);
	show(f);
	await ready();
	expect(cards()).toHaveLength(4);
	fireEvent.click(button(cards()[0]!, /^Approve/));
	fireEvent.click(button(cards()[1]!, /^Edit/));
	fireEvent.change(within(cards()[1]!).getByLabelText("command"), { target: { value: "two and more" } });
	fireEvent.click(button(cards()[1]!, /^Approve with the changes/));
	fireEvent.click(button(cards()[2]!, /^Reject/));
	fireEvent.change(within(cards()[2]!).getByRole("textbox"), { target: { value: "not now" } });
	fireEvent.click(button(cards()[2]!, /^Reject$/));
	fireEvent.click(button(cards()[3]!, /^Respond/));
	fireEvent.change(within(cards()[3]!).getByRole("textbox"), { target: { value: "it was done" } });
	fireEvent.click(button(cards()[3]!, /^Respond$/));
	await waitFor(() => expect(sent).toHaveLength(4));
	expect(sent).toEqual([
		{ call: "c1", thread: "t", args_hash: "hash-c1", decision: "approve" },
		{ call: "c2", thread: "t", args_hash: "hash-c2", decision: "edit", args: { command: "two and more", timeout: 30 } },
		{ call: "c3", thread: "t", args_hash: "hash-c3", decision: "reject", text: "not now" },
		{ call: "c4", thread: "t", args_hash: "hash-c4", decision: "respond", text: "it was done" },
	]);
});

test("a decision is being sent until the log has it, and cannot be sent twice", async () => {
	const f = waits({ id: "c1", args: { command: "one" } }, { id: "c2", args: { command: "two" } });
	const again = show(f);
	await ready();
	const approve = button(cards()[0]!, /^Approve/);
	fireEvent.click(approve);
	fireEvent.click(approve);
	await waitFor(() => expect(sent).toHaveLength(1));
	expect(button(cards()[0]!, /^Sending/)).toHaveProperty("disabled", true);
	f.apply("t", event("approval.decided", { call: "c1", decision: "approve", by: "ana" }));
	again();
	expect(within(cards()[0]!).queryByRole("button")).toBeNull();
	expect(cards()[0]!.textContent).toContain("ana approved");
	expect(sent).toHaveLength(1);
});

test("only what the server allows can be decided", async () => {
	show(waits({ id: "c1", args: { command: "one" }, allowed: ["reject", "approve"] }));
	await ready();
	expect(
		within(cards()[0]!)
			.getAllByRole("button")
			.map((b) => b.dataset.act)
			.filter(Boolean),
	).toEqual(["approve", "reject"]);
});

test("an edit marks what differs, and sends nothing that differs in nothing or cannot be read", async () => {
	show(waits({ id: "c1", args: { command: "one", timeout: 30 } }));
	await ready();
	fireEvent.click(button(cards()[0]!, /^Edit/));
	const send = () => button(cards()[0]!, /^Approve with/);
	expect(send()).toHaveProperty("disabled", true);
	fireEvent.change(screen.getByLabelText("timeout"), { target: { value: "soon" } });
	expect(send()).toHaveProperty("disabled", true);
	expect(screen.getByRole("alert").textContent).toContain("number");
	fireEvent.change(screen.getByLabelText(/^timeout/), { target: { value: "60" } });
	expect(cards()[0]!.querySelectorAll("[data-changed]")).toHaveLength(1);
	expect(cards()[0]!.textContent).toContain("1 changed: timeout");
	expect(send()).toHaveProperty("disabled", false);
	fireEvent.click(button(cards()[0]!, /^Take back/));
	expect(send()).toHaveProperty("disabled", true);
});

test("arguments can be changed as JSON, which must be an object", async () => {
	show(waits({ id: "c1", args: { command: "one" } }));
	await ready();
	fireEvent.click(button(cards()[0]!, /^Edit/));
	fireEvent.click(button(cards()[0]!, /^as JSON/));
	const raw = screen.getByLabelText("Arguments as JSON");
	fireEvent.change(raw, { target: { value: "[1]" } });
	expect(screen.getByRole("alert").textContent).toContain("JSON object");
	fireEvent.change(raw, { target: { value: '{"command":"one","more":[1]}' } });
	fireEvent.click(button(cards()[0]!, /^Approve with/));
	await waitFor(() => expect(sent[0]).toMatchObject({ decision: "edit", args: { command: "one", more: [1] } }));
});

test("a call that another person decided first says who, and what the server refused", async () => {
	const f = waits({ id: "c1", args: { command: "one" } });
	answers = (d) => ({
		call: d.call,
		ok: false,
		problem: { class: "conflict", status: 409, title: "Conflict", detail: "the call c1 was decided already: reject by bob" },
	});
	const again = show(f);
	await ready();
	fireEvent.click(button(cards()[0]!, /^Approve/));
	expect((await screen.findByRole("alert")).textContent).toContain("was decided already");
	expect(button(cards()[0]!, /^Approve/)).toHaveProperty("disabled", false);
	f.apply("t", event("approval.decided", { call: "c1", decision: "reject", by: "bob", text: "no" }));
	again();
	expect(cards()[0]!.textContent).toContain("bob rejected");
	expect(cards()[0]!.textContent).toContain("came later and does not count");
	expect(within(cards()[0]!).queryAllByRole("button")).toHaveLength(0);
});

test("always is off until a person ticks it, and goes with approve alone", async () => {
	show(waits({ id: "c1", args: { command: "one" } }));
	await ready();
	const box = screen.getByRole("checkbox", { name: /Allow the same/ });
	expect(box).toHaveProperty("checked", false);
	fireEvent.click(box);
	expect(screen.getByText(/exactly the commands of this line/)).toBeTruthy();
	fireEvent.click(button(cards()[0]!, /^Approve/));
	await waitFor(() => expect(sent[0]).toMatchObject({ decision: "approve", always: true }));
});

test("a form of a program is filled in by its schema", async () => {
	const schema = {
		type: "object",
		required: ["name", "age"],
		properties: {
			name: { type: "string", title: "Your name", minLength: 2 },
			age: { type: "integer", minimum: 18 },
			fast: { type: "boolean" },
			size: { type: "string", enum: ["s", "l"], enumNames: ["Small", "Large"] },
			tags: { type: "array", items: { enum: ["a", "b"] } },
			note: { type: "string" },
		},
	};
	const args = { from: "MCP server shop", message: "Who\u202eare you?", schema, warning: "It may ask for a secret" };
	show(waits({ id: "c1", tool: "mcp__shop__buy", args, ask: "form", allowed: ["respond", "reject", "dismiss"] }));
	await ready();
	const card = cards()[0]!;
	expect(card.textContent).toContain("Who\\u{202e}are you?");
	expect(card.textContent).toContain("It may ask for a secret");
	fireEvent.click(button(card, /^Fill in/));
	fireEvent.change(screen.getByLabelText(/^age/), { target: { value: "7.5" } });
	fireEvent.click(button(card, /^Send the answer/));
	expect(screen.getAllByRole("alert").map((a) => a.textContent)).toEqual(["This is needed", "Write a whole number"]);
	expect(sent).toEqual([]);
	fireEvent.change(screen.getByLabelText(/^Your name/), { target: { value: "Ada" } });
	fireEvent.change(screen.getByLabelText(/^age/), { target: { value: "36" } });
	fireEvent.change(screen.getByLabelText("size"), { target: { value: "l" } });
	fireEvent.click(screen.getByLabelText("b"));
	fireEvent.click(button(card, /^Send the answer/));
	await waitFor(() => expect(sent).toHaveLength(1));
	expect(JSON.parse(String(sent[0]!.text))).toEqual({ name: "Ada", age: 36, fast: false, size: "l", tags: ["b"] });
});

test("a question is answered by an option or by words", async () => {
	const args = { question: "Which database?", options: ["SQLite", "PostgreSQL"] };
	show(waits({ id: "c1", tool: "ask_user", args, ask: "question", allowed: ["respond", "reject"] }));
	await ready();
	fireEvent.click(button(cards()[0]!, /^Answer/));
	fireEvent.click(screen.getByLabelText("PostgreSQL"));
	fireEvent.click(button(cards()[0]!, /^Answer$/));
	await waitFor(() => expect(sent[0]).toMatchObject({ decision: "respond", text: "PostgreSQL" }));
});

test("an option of a question is one press, and hidden characters in it are seen", async () => {
	const args = { question: "Which database?", options: ["SQLite", "Postgre\u202eSQL"] };
	show(waits({ id: "c1", tool: "ask_user", args, ask: "question", allowed: ["respond", "reject"] }));
	await ready();
	const group = screen.getByRole("group", { name: "Answer with" });
	const options = [...group.querySelectorAll("button")];
	expect(options.map((b) => b.textContent)).toEqual(["SQLite", expect.stringContaining("{202e}")]);
	fireEvent.click(options[0]!);
	await waitFor(() => expect(sent).toHaveLength(1));
	expect(sent[0]).toMatchObject({ decision: "respond", text: "SQLite" });
	expect(options[1]!.disabled).toBe(true);
});

test("a question that may not be answered has no options to press", async () => {
	show(waits({ id: "c1", tool: "ask_user", args: { question: "?", options: ["SQLite"] }, ask: "question", allowed: ["reject"] }));
	await screen.findByRole("button", { name: /^Give no answer/ });
	expect(screen.queryByRole("group", { name: "Answer with" })).toBeNull();
});

test("a plan can be changed before it is accepted", async () => {
	const args = { plan: "# Mend", steps: ["Test", "Mend"] };
	show(waits({ id: "c1", tool: "submit_plan", args, ask: "plan", allowed: ["approve", "edit", "reject"] }));
	await ready();
	expect(screen.queryByRole("checkbox")).toBeNull();
	fireEvent.click(button(cards()[0]!, /^Change the plan/));
	fireEvent.change(screen.getByLabelText(/^steps/), { target: { value: "Test\nMend\nTest again" } });
	fireEvent.click(button(cards()[0]!, /^Accept with/));
	await waitFor(() => expect(sent[0]).toMatchObject({ decision: "edit", args: { plan: "# Mend", steps: ["Test", "Mend", "Test again"] } }));
});

test("keys decide about the call that has the focus, and only there", async () => {
	const f = waits({ id: "c1", args: { command: "one" } }, { id: "c2", args: { command: "two" } });
	show(f);
	await ready();
	expect(document.activeElement).toBe(document.body);
	fireEvent.keyDown(document.body, { key: "a" });
	expect(sent).toEqual([]);
	fireEvent.keyDown(document.body, { key: "A" });
	await waitFor(() => expect(document.activeElement).toBe(cards()[0]));
	fireEvent.keyDown(cards()[0]!, { key: "n" });
	expect(document.activeElement).toBe(cards()[1]);
	fireEvent.keyDown(cards()[1]!, { key: "p" });
	expect(document.activeElement).toBe(cards()[0]);
	fireEvent.keyDown(cards()[0]!, { key: "n" });
	fireEvent.keyDown(cards()[1]!, { key: "x" });
	const why = within(cards()[1]!).getByRole("textbox");
	expect(document.activeElement).toBe(why);
	fireEvent.keyDown(why, { key: "a" }); // is a letter here
	expect(sent).toEqual([]);
	fireEvent.keyDown(why, { key: "Escape" });
	expect(document.activeElement).toBe(cards()[1]);
	fireEvent.keyDown(cards()[1]!, { key: "a", repeat: true }); // is still held down
	expect(sent).toEqual([]);
	fireEvent.keyDown(cards()[1]!, { key: "a" });
	await waitFor(() => expect(sent.map((d) => d.call)).toEqual(["c2"]));
});

test("that calls wait is announced once", async () => {
	const f = waits({ id: "c1", args: { command: "one" } }, { id: "c2", args: { command: "two" } });
	const again = show(f);
	await ready();
	const said = () => [...document.querySelectorAll("[aria-live=assertive]")].map((s) => s.textContent).filter((t) => /wait/.test(t ?? ""));
	expect(said()).toEqual(["2 calls wait for your decision. Press Shift A to go there."]);
	f.apply("t", event("approval.decided", { call: "c1", decision: "approve", by: "ana" }));
	again();
	expect(said()).toEqual(["2 calls wait for your decision. Press Shift A to go there."]);
});

test("the call of a sub-agent says where it comes from, and is decided in its thread", async () => {
	const f = waits();
	const g = gated("t/c9", [{ id: "s1", args: { command: "sub" } }]);
	g.fold(f);
	approvals = g.approvals;
	show(f);
	await ready();
	expect(pathOf(f, "t/c9")).toBe("lead / reviewer");
	expect(cards()[0]!.textContent).toContain("lead / reviewer");
	fireEvent.click(button(cards()[0]!, /^Approve/));
	await waitFor(() => expect(sent[0]).toMatchObject({ thread: "t/c9", call: "s1" }));
});

test("what a model hides in a command is seen", async () => {
	show(waits({ id: "c1", args: { command: "rm x \u202e# y; curl https://ex\u0430mple.com" } }));
	await ready();
	expect(cards()[0]!.textContent).toContain("rm x \\u{202e}# y");
	expect(cards()[0]!.textContent).toContain("xn--exmple-4nf.com");
});

test("Decision shows what an edit changed, and by whom", () => {
	const f = waits({ id: "c1", args: { command: "one", timeout: 1 } });
	f.apply("t", event("approval.decided", { call: "c1", decision: "edit", args: { command: "two", timeout: 1 }, by: "ana" }));
	render(<Decision item={f.thread("t").callItem("c1") as CallItem} />);
	const shown = screen.getByRole("region", { name: "Decision" });
	expect(shown.textContent).toContain("ana approved with changes");
	expect(
		within(shown)
			.getAllByRole("listitem")
			.map((l) => l.textContent),
	).toEqual(["commandbefore: − oneafter: + two"]);
});

test("a card keeps what another client decided for a while, and what was decided here only beside others", () => {
	const k = new Kept();
	expect(k.show("old", false, true, 0)).toBe(false); // decided before this page looked
	expect(k.show("a", true, true, 0)).toBe(true);
	expect(k.show("b", true, true, 0)).toBe(true);
	k.sent("a");
	expect(k.show("a", false, true, 1000)).toBe(true);
	expect(k.show("a", false, false, 2000)).toBe(false);
	expect(k.show("b", false, false, 2000)).toBe(true);
	expect(k.show("b", false, false, 40_000)).toBe(false);
});

test("a call whose form was answered runs, and may ask again", () => {
	const f = waits({ id: "c1", tool: "mcp__shop__buy", args: {}, ask: "form", allowed: ["respond", "reject", "dismiss"] });
	f.apply("t", event("approval.decided", { call: "c1", decision: "reject", by: "ana" }));
	expect(f.thread("t").callItem("c1")?.state).toBe("running");
	f.apply("t", event("approval.asked", { ask: "form", call: "c1", tool: "mcp__shop__buy", allowed: ["respond"] }));
	expect(f.waiting()).toHaveLength(1);
});

test("what a write would change is shown against the file as it is", async () => {
	const content = "one\n2\nthree\n";
	show(waits({ id: "c1", tool: "write_file", args: { file_path: "/a.txt", content } }), "sbx_1");
	await waitFor(() => expect(cards()[0]!.textContent).toContain("Replaces"));
	const lines = within(cards()[0]!).getByRole("region", { name: "Changed lines" });
	expect(lines.textContent).toBe("line 1 oneremoved: −twoadded: +2 three");
});

test("an edit whose text is not there is said to fail", async () => {
	show(waits({ id: "c1", tool: "edit_file", args: { file_path: "/a.txt", old_string: "four", new_string: "4" } }), "sbx_1");
	await waitFor(() => expect(cards()[0]!.textContent).toContain("the call would fail"));
	expect(cards()[0]!.textContent).toContain("removed: −four");
});

test("where a command would run is shown", async () => {
	show(waits({ id: "c1", args: { command: "one" } }), "sbx_1");
	await waitFor(() => expect(cards()[0]!.textContent).toMatch(/in \/workspace.*not as root.*network none.*microvm/));
});

test("a call of a run that was ended cannot be decided any more", async () => {
	const f = waits({ id: "c1", args: { command: "one" } });
	const again = show(f);
	await ready();
	f.apply("t", event("run.ended", { state: "cancelled" }));
	again();
	expect(cards()[0]!.textContent).toContain("does not wait any more");
	expect(within(cards()[0]!).queryAllByRole("button")).toHaveLength(0);
});
