import { QueryClient } from "@tanstack/react-query";
import { cleanup, fireEvent, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import type { Schemas } from "../src/api/types";
import { Actions, madeIn, markdownOf, type Of, restoreAt, undoTo, whyNot } from "../src/run/actions";
import { type Item, ThreadFold } from "../src/run/fold";
import { UndoHost } from "../src/undo/host";
import { endWayBack } from "../src/undo/store";
import { change, plan, Refusal, rev, serve, show } from "./server";

const base = "/v1/sandboxes/sbx_1/history";
const login = { "GET /v1/login": { tenant: "t", user: "u", scopes: ["write"], by: "login" } };

afterEach(() => {
	endWayBack();
	cleanup();
	vi.unstubAllGlobals();
});

const at = "2026-01-01T00:00:00Z";

/** step is the item of a command in the first step of a run. */
function step(output = "hi\n"): Item {
	const t = new ThreadFold("t");
	const call = { id: "c1", name: "execute", args: { command: "echo hi" } };
	t.apply({
		seq: 2,
		v: 1,
		kind: "model.completed",
		at,
		data: { message: { role: "assistant", blocks: [{ kind: "call", call }] }, usage: {}, model: "m", stop: "tool_use", through: 1 },
	});
	t.apply({ seq: 3, v: 1, kind: "tool.started", at, data: { call: "c1", tool: "execute" } });
	t.apply({ seq: 4, v: 1, kind: "tool.completed", at, data: { call: "c1", exit: 0, blocks: [{ kind: "text", text: output }] } });
	return t.items[0]!;
}

const of = (more: Partial<Of> = {}): Of => ({ item: step(), thread: "t", run: "run_1", machine: "sbx_1", ...more });
const made = (n: number, more: Partial<Schemas["Revision"]> = {}) =>
	rev(n, { run: "run_1", thread: "t", call: "c1", step: 1, actor: "agent", ...more });

test("a way back from an item is that of its step, of its own thread", () => {
	expect(undoTo(of())).toEqual({ do: "undo", scope: "step", thread: "t", run: "run_1", step: 1 });
	const revs = [made(5), made(4, { step: 2 }), made(3, { actor: "outside" }), made(2, { thread: "t/c" }), made(1, { call: undefined })];
	expect(madeIn(revs, of()).map((r) => r.n)).toEqual([5]);
	expect(whyNot(of(), false)).toBe("");
	expect(whyNot(of(), true)).toMatch(/the past/);
	expect(whyNot(of({ machine: "" }), false)).toMatch(/no machine/);
	expect(whyNot(of({ item: { ...step(), step: 0 } }), false)).toMatch(/before the first step/);
});

function list(answers: Record<string, unknown>, past = false, revert = false) {
	const on = { fork: vi.fn(), look: vi.fn() };
	const calls = serve({ ...login, ...answers });
	show(
		<>
			<UndoHost sandbox="sbx_1" past={past} />
			<Actions
				of={of({ revert })}
				root
				past={past}
				onFork={on.fork}
				onLook={on.look}
				onFile={vi.fn()}
				onRevisions={vi.fn()}
				onClose={vi.fn()}
			/>
		</>,
	);
	return { calls, ...on };
}

test("to revert a step shows the plan of its revision; of several none is chosen", async () => {
	const answers = { [`GET ${base}`]: { items: [made(5)] }, [`POST ${base}/plan`]: plan("revert-5-x", [change("a")], { do: "revert" }) };
	const { calls } = list(answers);
	fireEvent.click(await screen.findByRole("button", { name: /^Revert only step 1/ }));
	await waitFor(() => expect(calls.find((c) => c.path === `${base}/plan`)?.body).toEqual({ do: "revert", n: 5 }));
	expect(calls.some((c) => c.path === `${base}/apply`)).toBe(false);
	endWayBack();
	cleanup();
	const second = list({ [`GET ${base}`]: { items: [made(6), made(5)] } });
	fireEvent.click(await screen.findByRole("button", { name: /^Revert only step 1/ }));
	expect(await screen.findByText(/The step made 2 revisions/)).toBeTruthy();
	expect(second.calls.every((c) => c.method === "GET")).toBe(true);
	cleanup();
	list({ [`GET ${base}`]: { items: [made(6, { step: 2 })] } });
	fireEvent.click(await screen.findByRole("button", { name: /^Revert only step 1/ }));
	expect(await screen.findByText("The step changed no file.")).toBeTruthy();
	cleanup();
	list({ [`GET ${base}`]: new Refusal(409, "it is being moved") });
	fireEvent.click(await screen.findByRole("button", { name: /^Revert only step 1/ }));
	expect((await screen.findByRole("alert")).textContent).toContain("it is being moved");
});

test("one that comes with the wish to revert asks for the plan at once, and nothing in the past", async () => {
	const answers = { [`GET ${base}`]: { items: [made(5)] }, [`POST ${base}/plan`]: plan("revert-5-x", [change("a")], { do: "revert" }) };
	const { calls } = list(answers, false, true);
	await waitFor(() => expect(calls.filter((c) => c.path === `${base}/plan`).map((c) => c.body)).toEqual([{ do: "revert", n: 5 }]));
	expect(calls.some((c) => c.path === `${base}/apply`)).toBe(false);
	endWayBack();
	cleanup();
	const past = list(answers, true, true);
	expect(await screen.findByText(/You look at the past/)).toBeTruthy();
	expect(past.calls.some((c) => c.path.startsWith(base))).toBe(false);
});

test("a look and a fork are of the end of a call; in the past nothing goes back", async () => {
	const { fork, look } = list({}, true);
	expect((await screen.findByRole<HTMLButtonElement>("button", { name: "Undo to before step 1" })).disabled).toBe(true);
	fireEvent.click(screen.getByRole("button", { name: "Fork from here" }));
	fireEvent.click(screen.getByRole("button", { name: "Look at this moment" }));
	expect([fork.mock.calls, look.mock.calls]).toEqual([[[4]], [[4]]]);
});

test("the files of a moment are those of the revision that it shows", async () => {
	const time = (s: number) => new Date(Date.parse(at) + s * 1000).toISOString();
	const stops = [1, 2, 3].map((n) => ({ seq: n, at: time(n), after: "" }));
	serve({ [`GET ${base}`]: { items: [rev(8, { time: time(2.5) }), rev(7, { time: time(1.5) })] } });
	const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
	expect(await restoreAt(client, "sbx_1", stops, 2)).toEqual({ do: "restore", n: 7 });
	expect(await restoreAt(client, "sbx_1", stops, 3)).toEqual({ do: "restore", n: 8 });
	await expect(restoreAt(client, "sbx_1", stops, 1)).rejects.toThrow(/No revision/);
	await expect(restoreAt(client, "", stops, 3)).rejects.toThrow(/No revision/);
});

test("an item as Markdown cannot end its own fence", () => {
	expect(markdownOf(step())).toBe("**execute**, exit 0\n\n```\n$ echo hi\n```\n\n```\nhi\n```");
	expect(markdownOf(step("a\n```\n# b"))).toContain("````\na\n```\n# b\n````");
});
