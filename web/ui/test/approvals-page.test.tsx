import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Approval } from "../src/api/types";
import ApprovalsPage from "../src/pages/approvals";

const approval = (run: string, call: string, at: string): Approval => ({
	run,
	thread: `thr_${run}`,
	agent: "lead",
	call,
	tool: "execute",
	args: { command: `of ${call}` },
	args_hash: `hash-${call}`,
	allowed: ["approve", "reject"],
	asked_at: at,
	seq: 7,
});

let items: Approval[] = [];
let sent: { path: string; body: unknown }[] = [];
let client: QueryClient;

beforeEach(() => {
	items = [];
	sent = [];
	client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
	vi.stubGlobal("fetch", async (path: string, init?: RequestInit) => {
		if (path === "/v1/approvals") return Response.json({ items });
		if (path.includes("/events?"))
			return Response.json({
				items: [
					{
						seq: 5,
						kind: "approval.decided",
						at: new Date().toISOString(),
						data: { call: "c1", decision: "approve", by: "of an earlier one" },
					},
					{ seq: 8, kind: "approval.decided", at: new Date().toISOString(), data: { call: "c2", decision: "approve", by: "of another" } },
					{ seq: 9, kind: "approval.decided", at: new Date().toISOString(), data: { call: "c1", decision: "reject", by: "bob" } },
				],
			});
		if (!path.endsWith("/decisions")) return Response.json({ title: "not found" }, { status: 404 });
		sent.push({ path, body: JSON.parse(String(init?.body)) });
		items = items.slice(1);
		return Response.json({ items: [{ call: "c1", ok: true }] });
	});
});
afterEach(() => {
	cleanup();
	client.clear();
	vi.unstubAllGlobals();
});

const show = () =>
	render(
		<QueryClientProvider client={client}>
			<ApprovalsPage />
		</QueryClientProvider>,
	);

test("where nothing waits, the page says what does the same in a terminal", async () => {
	show();
	expect((await screen.findByText("skete approve")).tagName).toBe("CODE");
});

test("calls of all runs are there, oldest first, each with its run, and are decided in it", async () => {
	items = [approval("run_a", "c1", "2026-01-01T00:00:00Z"), approval("run_b", "c2", "2026-01-01T00:00:01Z")];
	show();
	const cards = await screen.findAllByRole("article");
	expect(cards.map((c) => within(c).getByRole("link").getAttribute("href"))).toEqual(["/runs/run_a", "/runs/run_b"]);
	fireEvent.click(within(cards[0]!).getByRole("button", { name: /^Approve/ }));
	await waitFor(() => expect(screen.getAllByRole("article")).toHaveLength(1));
	expect(sent).toEqual([
		{
			path: "/v1/runs/run_a/decisions",
			body: { decisions: [{ decision: "approve", call: "c1", thread: "thr_run_a", args_hash: "hash-c1" }] },
		},
	]);
});

test("a call that is decided elsewhere says who decided", async () => {
	items = [approval("run_a", "c1", "2026-01-01T00:00:00Z")];
	show();
	await screen.findByRole("button", { name: /^Approve/ });
	items = [];
	await act(() => client.invalidateQueries({ queryKey: ["approvals"] }));
	expect(await screen.findByText("bob rejected")).toBeTruthy();
	expect(screen.queryByRole("button", { name: /^Approve/ })).toBeNull();
});
