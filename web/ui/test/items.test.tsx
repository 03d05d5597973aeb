import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import type { RunEvent } from "../src/api/types";
import { SceneContext } from "../src/run/context";
import { RunFold } from "../src/run/fold";
import { ItemRow } from "../src/run/items";
import { setLetters, useKeys } from "../src/run/keys";
import { Scrubber } from "../src/run/scrubber";
import { RunStore } from "../src/run/store";
import { show as showWithin } from "./server";

afterEach(() => {
	cleanup();
	setLetters(true);
});

const event = (seq: number, kind: string, data: unknown): RunEvent => ({
	seq,
	v: 1,
	kind,
	at: new Date(1767225600000 + seq * 1000).toISOString(),
	data,
});

function calls(...list: [name: string, args: unknown, done?: object][]): RunFold {
	const f = new RunFold("t");
	let seq = 1;
	const blocks = list.map(([name, args], n) => ({ kind: "call", call: { id: `c${n}`, name, args } }));
	f.apply(
		"",
		event(seq++, "model.completed", {
			message: { role: "assistant", blocks },
			usage: { input: 1, output: 1 },
			model: "m",
			stop: "tool_use",
			through: 1,
		}),
	);
	list.forEach(([tool, , done], n) => {
		f.apply("", event(seq++, "tool.started", { call: `c${n}`, tool }));
		if (done) f.apply("", event(seq++, "tool.completed", { call: `c${n}`, ...done }));
	});
	return f;
}

function show(f: RunFold, call: string, open = false, focus = vi.fn()) {
	const scene = {
		store: new RunStore("r"),
		root: "t",
		still: "",
		focus,
		openFile: vi.fn(),
		openPreview: vi.fn(),
		fork: vi.fn(),
		act: vi.fn(),
	};
	const row = () => (
		<SceneContext.Provider value={scene}>
			<ItemRow item={f.thread("t").callItem(call)!} thread="t" fold={f} open={open} onToggle={() => {}} />
		</SceneContext.Provider>
	);
	return { ...render(row()), scene };
}

test("a command that failed says so in a word, with its exit", () => {
	show(calls(["execute", { command: "false" }, { blocks: [], exit: 3 }]), "c0");
	expect(screen.getByText("exit 3")).toBeTruthy();
	expect(screen.getByText("failed")).toBeTruthy();
});

test("what hides in a command is written out, and markup is text", () => {
	const { container } = show(calls(["execute", { command: "echo \u202egpj.exe <img src=x>" }]), "c0", true);
	expect(container.textContent).toContain("\\u{202e}");
	expect(container.querySelector("img")).toBeNull();
});

test("a change shows its lines with words for who cannot see colours", () => {
	const { container } = show(calls(["edit_file", { file_path: "/a", old_string: "one", new_string: "two" }, { blocks: [] }]), "c0", true);
	expect(container.textContent).toContain("removed: −one");
	expect(container.textContent).toContain("added: +two");
});

test("a service that came up leads to its preview, and any other does not", () => {
	const start = { action: "start", name: "shop", command: "python3 shop.py", ready_http: 8080 };
	const { container, scene } = show(calls(["service", start, { blocks: [] }]), "c0");
	expect(container.textContent).toContain("start service shop python3 shop.py");
	fireEvent.click(screen.getByRole("button", { name: "Open the preview of port 8080" }));
	expect(scene.openPreview).toHaveBeenCalledWith(8080);
	cleanup();
	for (const [args, done] of [
		[start, { blocks: [], failed: true }],
		[start, undefined],
		[{ ...start, action: "stop" }, { blocks: [] }],
		[{ ...start, ready_http: "8080" }, { blocks: [] }],
		[{ action: "start", name: "shop", ports: "x" }, { blocks: [] }],
	] as const) {
		show(calls(["service", args, done]), "c0");
		expect(screen.queryByRole("button", { name: /preview/ })).toBeNull();
		cleanup();
	}
});

test("an answer that stands above is not said again at the end", () => {
	const f = calls();
	f.apply(
		"",
		event(5, "model.completed", {
			message: { blocks: [{ kind: "text", text: "Fixed." }] },
			usage: {},
			model: "m",
			stop: "end",
			through: 1,
		}),
	);
	for (const [seq, text, shown] of [
		[6, "Fixed.", "The agent is done."],
		[7, '{"fixed":true}', '{"fixed":true}'],
	] as const) {
		f.apply("", event(seq, "run.ended", { state: "succeeded", text }));
		const item = f.thread("t").items.find((i) => i.seq === seq)!;
		const scene = {
			store: new RunStore("r"),
			root: "t",
			still: "",
			focus: vi.fn(),
			openFile: vi.fn(),
			openPreview: vi.fn(),
			fork: vi.fn(),
			act: vi.fn(),
		};
		const { container } = render(
			<SceneContext.Provider value={scene}>
				<ItemRow item={item} thread="t" fold={f} open={false} onToggle={() => {}} />
			</SceneContext.Provider>,
		);
		expect(container.textContent).toContain(shown);
		cleanup();
	}
});

test("arguments of any shape are shown", () => {
	for (const args of [undefined, null, "not json", [1], { deep: { a: [null] } }, { command: 7 }, { file_path: {} }])
		for (const tool of ["execute", "edit_file", "write_todos", "task", "grep", "apply_patch"]) {
			show(calls([tool, args, { blocks: null }]), "c0", true);
			cleanup();
		}
});

test("a sub-agent's row shows how it is, and Enter leads to it", () => {
	const f = calls(["task", { description: "Look", subagent_type: "reviewer" }]);
	f.apply("t/c0", event(1, "run.started", {}));
	f.apply(
		"t/c0",
		event(2, "model.completed", {
			message: { blocks: [{ kind: "text", text: "I look" }] },
			usage: {},
			cost_usd: 0.5,
			model: "m",
			stop: "end",
			through: 1,
		}),
	);
	const { container, scene } = show(f, "c0");
	expect(container.textContent).toContain("1 step, $0.50");
	expect(container.textContent).toContain("I look");
	fireEvent.keyDown(screen.getAllByRole("button")[0]!, { key: "Enter" });
	expect(scene.focus).toHaveBeenCalledWith("t/c0");
});

test("the bar moves by keys and says where it stands", () => {
	const f = calls(["execute", { command: "a" }, { blocks: [] }], ["execute", { command: "b" }, { blocks: [] }]);
	const onAt = vi.fn();
	const bar = (at: number) => <Scrubber thread={f.thread("t")} machine="" version={1} first={1} at={at} onAt={onAt} />;
	const { again } = showWithin(bar(0));
	const slider = screen.getByRole("slider");
	expect(slider.getAttribute("aria-valuetext")).toBe("live, event 5 of 5");
	fireEvent.keyDown(slider, { key: "ArrowLeft" });
	expect(onAt).toHaveBeenLastCalledWith(3);
	again(bar(3));
	expect(slider.getAttribute("aria-valuetext")).toMatch(/^event 3 of 5, .*, after the end of execute a$/);
	fireEvent.keyDown(slider, { key: "Home" });
	expect(onAt).toHaveBeenLastCalledWith(1);
	fireEvent.keyDown(slider, { key: "ArrowRight" });
	expect(onAt).toHaveBeenLastCalledWith(0);
	fireEvent.keyDown(slider, { key: "End" });
	expect(onAt).toHaveBeenLastCalledWith(0);
});

function Keys({ on }: { on: (name: string) => void }) {
	useKeys([
		["j", () => on("j")],
		["g l", () => on("g l")],
		["Ctrl \\", () => on("ctrl")],
	]);
	return <input aria-label="field" />;
}

test("keys are off while typing, and those without Ctrl can be turned off", () => {
	const on = vi.fn();
	render(<Keys on={on} />);
	fireEvent.keyDown(document.body, { key: "j" });
	fireEvent.keyDown(screen.getByLabelText("field"), { key: "j" });
	fireEvent.keyDown(document.body, { key: "g" });
	fireEvent.keyDown(document.body, { key: "l" });
	expect(on.mock.calls.flat()).toEqual(["j", "g l"]);
	setLetters(false);
	fireEvent.keyDown(document.body, { key: "j" });
	fireEvent.keyDown(document.body, { key: "\\", ctrlKey: true });
	expect(on.mock.calls.flat()).toEqual(["j", "g l", "ctrl"]);
});
