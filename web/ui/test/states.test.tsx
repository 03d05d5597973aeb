import { act, cleanup, fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Problem } from "../src/api/http";
import type { Schemas } from "../src/api/types";
import type { LiveState } from "../src/live/socket";
import ApprovalsPage from "../src/pages/approvals";
import MachinesPage from "../src/pages/machines";
import SecretsPage from "../src/pages/secrets";
import SkillsPage from "../src/pages/skills";
import WorkflowsPage from "../src/pages/workflows";
import { ThreadFold } from "../src/run/fold";
import Halted from "../src/run/halted";
import { isLost } from "../src/run/lost";
import { useRun } from "../src/run/store";
import { Boundary } from "../src/ui/boundary";
import { NoPage } from "../src/ui/problem";
import { Skeleton } from "../src/ui/skeleton";
import { type Answer, layOut, Refusal, rev, serve, show } from "./server";

let live: LiveState = { state: "live", since: 0, lastAt: 0, tries: 0 };
const again = vi.fn();
vi.mock("../src/live/index", () => ({ useLive: () => live, socket: { again: () => again() } }));
const { Late } = await import("../src/live/late");
const { Upgrade } = await import("../src/live/upgrade");

beforeEach(layOut);
afterEach(() => {
	cleanup();
	vi.useRealTimers();
	vi.unstubAllGlobals();
	vi.restoreAllMocks();
	document.head.innerHTML = "";
	live = { state: "live", since: 0, lastAt: 0, tries: 0 };
});

const login = { "GET /v1/login": { tenant: "t", user: "u", scopes: ["write"], by: "login" } };

test("a skeleton is seen after 150 ms, not before", () => {
	vi.useFakeTimers();
	show(<Skeleton label="Loading the run" />);
	act(() => void vi.advanceTimersByTime(149));
	expect(screen.queryByRole("status")).toBeNull();
	act(() => void vi.advanceTimersByTime(1));
	expect(screen.getByRole("status", { name: "Loading the run" })).toBeTruthy();
});

test("a connection that is lost for a minute has a banner with a reason and Retry", () => {
	vi.useFakeTimers();
	live = { state: "lost", since: Date.now(), lastAt: Date.now(), tries: 7 };
	show(<Late />);
	act(() => void vi.advanceTimersByTime(59_000));
	expect(screen.queryByRole("alert")).toBeNull();
	act(() => void vi.advanceTimersByTime(6_000));
	expect(screen.getByRole("alert").textContent).toMatch(/has not answered since \d.*\(7 tries\).*You can go on reading/);
	fireEvent.click(screen.getByRole("button", { name: "Retry" }));
	expect(again).toHaveBeenCalledTimes(1);
});

/** lay puts into the head what the server fills in. */
function lay(version: string): void {
	document.head.innerHTML = `<meta name="skete-version" content="${version}">`;
	const script = document.createElement("script");
	script.setAttribute("type", "module");
	script.setAttribute("src", "http://localhost/ui/assets/index-old.js");
	Object.defineProperty(document, "querySelector", {
		configurable: true,
		value: (q: string) => (q.startsWith("script") ? script : Document.prototype.querySelector.call(document, q)),
	});
}

test("another version of the server is told after the connection came back, and nothing is loaded by itself", async () => {
	const reload = vi.spyOn(location, "reload").mockImplementation(() => {});
	for (const [version, script, says] of [
		["1.0.0", 200, false],
		["1.1.0", 200, true],
		["1.0.0", 404, true],
	] as const) {
		lay("1.0.0");
		let now = "1.0.0";
		live = { ...live, state: "live" };
		const calls = serve({
			"GET /v1/info": () => ({ version: now }),
			"HEAD /ui/assets/index-old.js": new Response(null, { status: script }),
		});
		const r = show(<Upgrade />);
		await waitFor(() => expect(calls.length).toBe(1));
		live = { ...live, state: "lost" };
		r.again(<Upgrade />);
		now = version;
		live = { ...live, state: "live" };
		r.again(<Upgrade />);
		await waitFor(() => expect(calls.filter((c) => c.path === "/v1/info").length).toBe(2));
		await waitFor(() => expect(calls.some((c) => c.method === "HEAD")).toBe(true));
		await waitFor(() => expect(screen.queryByRole("button", { name: /reload when ready/ }) !== null).toBe(says));
		if (says) {
			expect(reload).not.toHaveBeenCalled();
			fireEvent.click(screen.getByRole("button", { name: /reload when ready/ }));
			expect(reload).toHaveBeenCalledTimes(1);
			reload.mockClear();
		}
		cleanup();
		Reflect.deleteProperty(document, "querySelector");
	}
});

function Bad({ text }: { text: string }): null {
	throw new TypeError(text);
}

test("a part that is gone leaves a message and a way on, not a blank page", () => {
	vi.spyOn(console, "error").mockImplementation(() => {});
	show(
		<Boundary>
			<Bad text="Failed to fetch dynamically imported module: http://x/ui/assets/usage-1.js" />
		</Boundary>,
	);
	expect(screen.getByRole("alert").textContent).toContain("The server may have been upgraded");
	expect(screen.getByRole("button", { name: "Reload" })).toBeTruthy();
	cleanup();
	show(
		<Boundary>
			<Bad text={"of a\u202eb"} />
		</Boundary>,
	);
	expect(screen.getByRole("alert").textContent).toContain("This part of the page failed");
	expect(screen.getByRole("alert").textContent).toContain("of a\\u{202e}b");
});

test("what may not be seen, and what is not there, say who must act, by which request", () => {
	const of = (status: number, detail: string, hint = "") => new Problem(status, "Refused", detail, hint, "req_9");
	show(<NoPage of={of(403, "this key may not do that", "it needs the scope read")} what="run" />);
	expect(screen.getByRole("heading", { level: 1 }).textContent).toBe("You may not see this run");
	expect(screen.getByRole("alert").textContent).toMatch(/it needs the scope read.*Your key lacks the right.*request req_9/);
	cleanup();
	show(<NoPage of={of(404, "no such run")} what="run" />);
	expect(screen.getByRole("heading", { level: 1 }).textContent).toBe("There is no such run");
	expect(screen.getByRole("alert").textContent).toMatch(/It was deleted, or it is not yours.*request req_9/);
	cleanup();
	show(<NoPage of={of(500, "it broke")} what="machine" />);
	expect(screen.getByRole("heading", { level: 1 }).textContent).toBe("This machine cannot be shown");
});

function Opened() {
	const { error } = useRun("run_1");
	return error ? <NoPage of={error} what="run" /> : null;
}

test("a run that cannot be opened says why", async () => {
	serve({ "GET /v1/runs/run_1": new Refusal(404, "no such run") });
	show(<Opened />);
	expect((await screen.findByRole("heading", { level: 1 })).textContent).toBe("There is no such run");
});

function halted(reason: string, answers: Record<string, Answer>, machine = "") {
	const thread = new ThreadFold("t");
	thread.state = reason === "wall" ? "timed_out" : "failed";
	thread.reason = reason;
	thread.costUSD = 1.5;
	thread.step = 3;
	const onFork = vi.fn();
	const calls = serve({ ...login, ...answers });
	show(<Halted run="run_1" thread={thread} machine={machine} onFork={onFork} />);
	return { calls, onFork };
}

test.each([
	["cost", "money", "Raise by $5 and go on", { cost_usd: 5 }],
	["steps", "steps", "Raise by 50 steps and go on", { steps: 50 }],
	["tokens", "tokens", "Raise by 500,000 tokens and go on", { tokens: 500_000 }],
	["wall", "time", "Raise by 30 minutes and go on", { wall_ms: 1_800_000 }],
])("a budget that is used up (%s) asks a person to raise it", async (reason, of, button, add) => {
	const { calls } = halted(reason, { "POST /v1/runs/run_1/resume": { id: "run_2" } });
	const row = screen.getByRole("region", { name: "The budget is used up" });
	expect(row.textContent).toContain(`the budget of ${of} is used up, so the run stopped. It used $1.50 in 3 steps.`);
	fireEvent.click(within(row).getByRole("button", { name: button }));
	await waitFor(() => expect(calls.filter((c) => c.method === "POST").map((c) => c.body)).toEqual([{ add }]));
	fireEvent.click(within(row).getByRole("button", { name: /Raising/ }));
	await waitFor(() => expect(location.pathname).toBe("/runs/run_2"));
	expect(calls.filter((c) => c.method === "POST")).toHaveLength(1);
});

test("a budget that was raised once is not raised again", async () => {
	const { calls } = halted("steps", { "GET /v1/runs": { items: [{ id: "run_2" }] } });
	const link = await screen.findByRole("link", { name: "a later run" });
	expect(link.getAttribute("href")).toBe("/runs/run_2");
	expect(screen.queryByRole("button")).toBeNull();
	expect(calls.filter((c) => c.path === "/v1/runs").map((c) => `${c.query}`)).toEqual(["thread=t&page_size=1"]);
});

test("a budget may stay as it is, and a refusal to raise it is told", async () => {
	const { calls } = halted("cost", { "POST /v1/runs/run_1/resume": new Refusal(403, "this key may not do that", "it needs runs:write") });
	fireEvent.click(screen.getByRole("button", { name: /Raise by/ }));
	expect((await screen.findByRole("alert")).textContent).toMatch(/it needs runs:write.*request req_7/);
	fireEvent.click(screen.getByRole("button", { name: "Leave it stopped" }));
	expect(screen.queryByRole("region")).toBeNull();
	expect(calls.filter((c) => c.method === "POST")).toHaveLength(1);
	cleanup();
	halted("model", {});
	expect(screen.queryByRole("region")).toBeNull();
});

test("a machine is lost when it died, not when it was stopped", () => {
	const deaths = [{ time: "2026-01-01T00:00:00Z", reason: "killed" }];
	expect(isLost(undefined)).toBe(false);
	expect(isLost({ state: "running", deaths })).toBe(false);
	expect(isLost({ state: "failed", reason: "start: no" })).toBe(true);
	expect(isLost({ state: "stopped", reason: "killed", deaths })).toBe(true);
	expect(isLost({ state: "stopped", reason: "user", deaths })).toBe(false);
	expect(isLost({ state: "stopped" })).toBe(false);
});

test("a machine that is lost names the newest revision that is safe, and two ways on", async () => {
	const sandbox = { id: "sbx_1", state: "failed", reason: "killed", provider: "p" };
	const items: Schemas["Revision"][] = [rev(9, { state: "local" }), rev(8, { state: "durable" }), rev(7)];
	const { calls, onFork } = halted(
		"machine",
		{ "GET /v1/sandboxes/sbx_1": sandbox, "GET /v1/sandboxes/sbx_1/history": { items }, "POST /v1/sandboxes/sbx_1/start": sandbox },
		"sbx_1",
	);
	const row = await screen.findByRole("region", { name: "The machine is lost" });
	await waitFor(() => expect(row.textContent).toContain("killed. Its files are kept up to revision #8."));
	fireEvent.click(within(row).getByRole("button", { name: "Restore into a new machine" }));
	expect(onFork).toHaveBeenCalledTimes(1);
	fireEvent.click(within(row).getByRole("button", { name: "Start it again" }));
	await waitFor(() => expect(calls.some((c) => c.path === "/v1/sandboxes/sbx_1/start")).toBe(true));
});

test.each([
	["approvals", () => <ApprovalsPage />],
	["machines", () => <MachinesPage />],
	["workflows", () => <WorkflowsPage />],
	["skills", () => <SkillsPage />],
	["secrets", () => <SecretsPage />],
])("an empty list of %s has a sentence, something to do, and the line of a terminal", async (name, page) => {
	serve({
		...login,
		"GET /v1/info": { version: "1", providers: [], limits: {}, used: {} },
		...Object.fromEntries(
			["approvals", "sandboxes", "snapshots", "workflows", "workflow-runs", "skills", "secrets", "agents", "network/rules"].map((p) => [
				`GET /v1/${p}`,
				{ items: [] },
			]),
		),
	});
	show(page());
	await waitFor(() => expect([...document.querySelectorAll("code")].some((c) => /^skete /.test(c.textContent ?? ""))).toBe(true));
	expect(screen.queryAllByRole("alert").map((a) => a.textContent)).toEqual([]);
	const ways = [...screen.queryAllByRole("button"), ...screen.queryAllByRole("link")];
	expect([name, ways.length > 0]).toEqual([name, true]);
});
