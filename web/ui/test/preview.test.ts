import { expect, test } from "vitest";
import type { FollowMessage, Schemas } from "../src/api/types";
import { stale } from "../src/live/events";
import { insideKey } from "../src/workspace/preview_data";
import { logOf, plain } from "../src/workspace/preview_log";
import { apart, appState, choices, elsewhere, firstPort, may, pathOf, portOf, type Service } from "../src/workspace/preview_state";

const service = (state: Service["state"], more: Partial<Service> = {}): Service => ({
	name: "web",
	state,
	ports: [5173],
	source: "call",
	restarts: 0,
	since: "2026-01-01T00:00:00Z",
	log_start: 0,
	log_size: 0,
	wanted: true,
	...more,
});
const open = [{ port: 5173, address: "0.0.0.0" }];

test.each<[Service["state"], string, string]>([
	["starting", "starting", "web is starting"],
	["unready", "unready", "web runs, and is not ready: no answer"],
	["backoff", "crashed", "web crashed, last with exit code 1; it is started again soon: no answer"],
	["crash-loop", "crashed", "web crashes again and again, last with exit code 1: no answer"],
	["failed", "crashed", "web crashed, last with exit code 1: no answer"],
	["stopped", "stopped", "web is stopped"],
	["ready", "ready", "web is ready: no answer"],
])("a service that is %s is said to be %s", (state, word, text) => {
	const app = appState(5173, [service(state, { reason: "no answer", last_exit: { code: 1 } })], open);
	expect([app.word, app.text]).toEqual([word, text]);
});

test("a port without a service waits, or is open", () => {
	expect(appState(8000, [], []).text).toBe("waiting for port 8000");
	expect(appState(8000, [], [{ port: 8000, address: "::" }]).word).toBe("ready");
	expect(appState(5173, [service("ready")], []).text).toBe("web runs; waiting for port 5173");
});

test("ports are those of services and those that are open, each once", () => {
	expect(choices([service("ready")], [...open, { port: 9, address: "" }])).toEqual([
		{ port: 5173, label: "5173 web" },
		{ port: 9, label: "9" },
	]);
	expect(firstPort([service("stopped"), service("ready", { name: "b", ports: [80] })], open)).toBe(80);
	expect(firstPort([], [])).toBe(0);
	const own = [
		{ port: 53, address: "127.0.0.53" },
		{ port: 40083, address: "127.0.0.1" },
	];
	expect(choices([], own).map((c) => c.port)).toEqual([40083]);
	expect(firstPort([], own)).toBe(0);
});

test("ports and paths that are typed", () => {
	expect(["0", "65536", "-1", "8e3", "x", "123456", ""].map(portOf)).toEqual([0, 0, 0, 0, 0, 0, 0]);
	expect(portOf(" 8000 ")).toBe(8000);
	expect(["", "a?b=1", "//evil.example", "\\\\evil.example", "/x"].map(pathOf)).toEqual([
		"/",
		"/a?b=1",
		"/evil.example",
		"/evil.example",
		"/x",
	]);
});

const made = (url: string, address: string): Schemas["Preview"] => ({ url, address, sandbox: "s", port: 1, public: false, expires_at: "" });

test("an app without an origin of its own is not shown", () => {
	const page = "http://localhost:7840";
	const own = "http://1-s.preview.localhost:7840";
	expect(apart(made(`${own}/?code=1`, `${own}/`), page)?.origin).toBe(own);
	expect(apart(made(`${page}/preview`, `${page}/`), page)).toBe(null);
	expect(apart(made(`${own}/`, "http://other.example/"), page)).toBe(null);
	expect(apart(made("javascript:alert(1)", "javascript:alert(1)"), page)).toBe(null);
	expect(apart(made("/preview", "/preview"), page)).toBe(null);
});

test("a frame opens windows and saves files where a person allowed it, and never leaves its sandbox", () => {
	expect(may(false)).toBe("allow-scripts allow-forms allow-same-origin");
	expect(may(true).split(" ").slice(3)).toEqual(["allow-popups", "allow-downloads"]);
});

test("a page that was opened by an address is sent to the name that frames apps", () => {
	const app = "http://1-s.preview.localhost:7840";
	expect(elsewhere(app, "http://127.0.0.1:7840/runs/r?pane=preview")).toBe("http://localhost:7840/runs/r?pane=preview");
	expect(elsewhere(app, "http://[::1]:7840/")).toBe("http://localhost:7840/");
	expect(elsewhere(app, "http://localhost:7840/")).toBe("");
	expect(elsewhere("https://1-s.preview.example.org", "https://skete.example.org/")).toBe("");
});

test("a log is read on at its offset, and its gaps are said", () => {
	const event = (v: object) => `id: 1\nevent: log\ndata: ${JSON.stringify(v)}\n\n`;
	const part = logOf(
		`${event({ offset: 10, data: btoa("ab\n") })}: keep\n\n${event({ offset: 13, gap_to: 20 })}${event({ offset: 20, data: btoa("c") })}`,
		0,
	);
	expect(part).toEqual({ text: "ab\n\n[7 bytes of the log were not kept]\nc", next: 21 });
	expect(logOf("", 7)).toEqual({ text: "", next: 7 });
});

test("a log does not draw: colours, titles and movements are left out", () => {
	expect(plain("\x1b[31mred\x1b[0m\r\n\x1b]0;title\x07x\x1b]52;c;aGk=\x1b\\y\x1b[2J\x1bcz")).toBe("red\nxyz");
});

test("that a machine was paused is no reason to ask what runs inside, which would wake it", () => {
	const fresh = stale({ topic: "events", domain: { type: "sandbox.paused", id: "sbx_1" } } as FollowMessage);
	expect(fresh).toEqual(["sandboxes"]);
	expect(fresh).not.toContain(insideKey("sbx_1", "ports")[0]);
	expect(fresh).not.toContain(insideKey("sbx_1", "services")[0]);
});
