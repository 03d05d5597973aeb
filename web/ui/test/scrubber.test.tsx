import { act, cleanup, fireEvent, screen, waitFor } from "@testing-library/react";
import { useState } from "react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ThreadFold } from "../src/run/fold";
import { Scrubber } from "../src/run/scrubber";
import { type Call, rev, serve, show } from "./server";

const time = (s: number) => new Date(Date.parse("2026-01-01T00:00:00Z") + s * 1000).toISOString();

/** four inputs at events 1, 2, 3 and 4, a second apart. */
function thread(): ThreadFold {
	const t = new ThreadFold("t");
	for (let n = 1; n <= 4; n++)
		t.apply({ seq: n, v: 1, kind: "input", at: time(n), data: { from: "user", blocks: [{ kind: "text", text: `m${n}` }] } });
	return t;
}

const of = thread();
const seen: number[] = [];

function Bar({ begin = 0 }: { begin?: number }) {
	const [at, setAt] = useState(begin);
	seen.push(at);
	return <Scrubber thread={of} machine="sbx_1" version={1} first={1} at={at} onAt={setAt} />;
}

let calls: Call[] = [];
const base = "/v1/sandboxes/sbx_1/history";

beforeEach(() => {
	seen.length = 0;
	calls = serve({ [`GET ${base}`]: { items: [rev(8, { time: time(3) }), rev(7, { time: time(1.5) })], current: 8, undo: 7, redo: 0 } });
});
afterEach(() => {
	cleanup();
	vi.useRealTimers();
	vi.unstubAllGlobals();
	localStorage.clear();
});

const slider = () => screen.getByRole("slider", { name: "Time of the run" });
const says = () => slider().getAttribute("aria-valuetext");

test("pages go from revision to revision, and the bar says which it is", async () => {
	show(<Bar />);
	expect(says()).toBe("live, event 4 of 4");
	expect(calls).toEqual([]); // nothing is asked before it is used
	fireEvent.keyDown(slider(), { key: "PageDown" });
	await waitFor(() => expect(says()).toMatch(/^event 3 of 4, revision 8 of 8, .*, after a message$/));
	fireEvent.keyDown(slider(), { key: "PageDown" });
	await waitFor(() => expect(says()).toMatch(/^event 2 of 4, revision 7 of 8, /));
	fireEvent.keyDown(slider(), { key: "PageUp" });
	await waitFor(() => expect(says()).toMatch(/^event 3 of 4, revision 8/));
	fireEvent.keyDown(slider(), { key: "PageUp" });
	await waitFor(() => expect(says()).toBe("live, event 4 of 4"));
	fireEvent.keyDown(document.body, { key: "[" });
	await waitFor(() => expect(says()).toMatch(/^event 3 of 4/));
	expect(document.querySelectorAll("[data-mark=revision]")).toHaveLength(2);
	fireEvent.keyDown(slider(), { key: "Home" });
	expect(says()).toMatch(/^event 1 of 4, [^r]/); // no revision had been made
	fireEvent.keyDown(slider(), { key: "End" });
	expect(says()).toBe("live, event 4 of 4");
});

test("without revisions pages go from step to step", async () => {
	calls = serve({});
	show(<Bar />);
	fireEvent.keyDown(slider(), { key: "PageDown" });
	await waitFor(() => expect(says()).toMatch(/^event 1 of 4/));
});

test("it plays from the beginning to the end, and is paused there", async () => {
	vi.useFakeTimers();
	show(<Bar />);
	fireEvent.change(screen.getByRole("combobox", { name: "Speed" }), { target: { value: "16" } });
	fireEvent.click(screen.getByRole("button", { name: "Play what was recorded" }));
	for (let i = 0; i < 10; i++) await act(() => vi.advanceTimersByTimeAsync(100));
	expect(seen.filter((s, i) => s !== seen[i - 1])).toEqual([0, 1, 2, 3, 0]);
	expect(screen.getByRole("button", { name: "Play what was recorded" })).toBeTruthy();
});

test("a key pauses it where it is", async () => {
	vi.useFakeTimers();
	show(<Bar begin={1} />);
	fireEvent.keyDown(slider(), { key: " " });
	expect(screen.getByRole("button", { name: "Pause" })).toBeTruthy();
	await act(() => vi.advanceTimersByTimeAsync(1000));
	expect(says()).toMatch(/^event 2 of 4/);
	fireEvent.keyDown(slider(), { key: "ArrowLeft" });
	await act(() => vi.advanceTimersByTimeAsync(9000));
	expect(says()).toMatch(/^event 1 of 4/);
});

test("t places events by time, and that is kept", () => {
	show(<Bar />);
	fireEvent.keyDown(document.body, { key: "t" });
	expect(screen.getByRole("button", { name: "by time, silences cut" }).getAttribute("aria-pressed")).toBe("true");
	cleanup();
	show(<Bar />);
	expect(screen.getByRole("button", { name: "by time, silences cut" })).toBeTruthy();
});
