import { cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import Help, { chosen } from "../src/run/help";
import { ownKeys, setOwnKeys, useKeys } from "../src/run/keys";

afterEach(() => {
	cleanup();
	localStorage.clear();
});

test("a key has one meaning", () => {
	expect(chosen({}, "u", "x")).toEqual({ u: "x" });
	expect(chosen({ u: "x" }, "u", "u")).toEqual({});
	expect(chosen({ u: "x" }, "j", "u")).toEqual({ u: "x", j: "u" });
	expect(chosen({}, "u", "Ctrl b")).toEqual({ u: "Ctrl b" });
	expect(chosen({}, "u", "j")).toMatch(/j is taken: next item/);
	expect(chosen({ j: "x" }, "u", "x")).toMatch(/x is taken: next item/);
	for (const key of ["A", "g", "Ctrl z", "Ctrl Z", "Ctrl k"]) expect(chosen({}, "u", key)).toMatch(/is taken/);
	for (const key of ["", " ", "F5", "Ctrl F5", "Enter", "ArrowUp", "Dead"]) expect(chosen({}, "u", key)).toMatch(/Press one key/);
});

function Page({ does }: { does(what: string): void }) {
	useKeys([
		["u", () => does("undo")],
		["j", () => does("next")],
	]);
	return null;
}

test("a chosen key takes the place of the other, at once and for good", () => {
	const does = vi.fn();
	const onClose = vi.fn();
	render(
		<>
			<Page does={does} />
			<Help open onClose={onClose} />
		</>,
	);
	return screen.findByRole("dialog").then((dialog) => {
		const button = within(dialog).getByRole("button", { name: "Change: undo to before the item's step; shows the plan" });
		fireEvent.click(button);
		fireEvent.keyDown(button, { key: "j" });
		expect(within(dialog).getByRole("status").textContent).toMatch(/j is taken/);
		fireEvent.keyDown(button, { key: "Shift" });
		fireEvent.keyDown(button, { key: "X" });
		expect(ownKeys()).toEqual({ u: "X" });
		expect(button.closest("tr")!.querySelector("kbd")!.textContent).toBe("X");
		fireEvent.keyDown(document.body, { key: "u" });
		expect(does).not.toHaveBeenCalled();
		fireEvent.keyDown(document.body, { key: "X" });
		fireEvent.keyDown(document.body, { key: "j" });
		expect(does.mock.calls).toEqual([["undo"], ["next"]]);
		fireEvent.click(button);
		fireEvent.keyDown(button, { key: "Escape" });
		expect(onClose).not.toHaveBeenCalled();
		fireEvent.click(within(dialog).getByRole("button", { name: "As they were" }));
		expect(ownKeys()).toEqual({});
		fireEvent.keyDown(document.body, { key: "u" });
		expect(does.mock.calls.at(-1)).toEqual(["undo"]);
	});
});

test.each(["{", "null", "3", '"x"', "[]"])("what is kept of keys may be anything: %s", (kept) => {
	localStorage.setItem("skete.keys", kept);
	const does = vi.fn();
	render(<Page does={does} />);
	fireEvent.keyDown(document.body, { key: "u" });
	expect(does.mock.calls).toEqual([["undo"]]);
});

test("keys without Ctrl can be turned off, chosen ones too", () => {
	setOwnKeys({ u: "x" });
	localStorage.setItem("skete.keys.off", "1");
	const does = vi.fn();
	render(<Page does={does} />);
	fireEvent.keyDown(document.body, { key: "x" });
	expect(does).not.toHaveBeenCalled();
});
