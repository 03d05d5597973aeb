import { type KeyboardEvent, useState } from "react";
import { Dialog } from "../ui/dialog";
import { lettersOn, nameOf, ownKeys, setLetters, setOwnKeys } from "./keys";

/** own are the keys that a person can choose, with what they do. */
const own: [string, string][] = [
	["j", "next item"],
	["k", "previous item"],
	["J", "next step"],
	["K", "previous step"],
	["e", "open or close all of the item's kind"],
	["o", "open the item's file in the workspace"],
	[".", "what can be done from the item: fork, copy, look at its moment"],
	["u", "undo to before the item's step; shows the plan"],
	["R", "revert only the item's step; shows the plan"],
	["/", "find in the run"],
	["n", "next place that was found"],
	["N", "previous place that was found"],
	["f", "follow what comes, or stay here"],
	["g l", "go to what is live"],
	["[", "look at the revision before, as it was"],
	["]", "look at the revision after, as it was"],
	["p", "play what was recorded, or pause"],
	["t", "the bar by time, or by event"],
	["1", "the changes"],
	["2", "the files"],
	["3", "the terminal"],
	["4", "the preview"],
	["Ctrl `", "the terminal, from anywhere"],
	["Ctrl \\", "show or hide the workspace"],
	["?", "this list"],
];

/** fixed are the others. */
const fixed: [string, string][] = [
	["Enter", "open or close the item; open a sub-agent"],
	["Ctrl Z, Ctrl Shift Z", "undo, redo; shows the plan"],
	["A", "go to what waits for you"],
	["F6", "next part of the page"],
];

const taken = ["A", "g", "Ctrl z", "Ctrl Z", "Ctrl k"];

/** chosen is the table of own keys with one more, or why it cannot be. A key has one meaning. */
export function chosen(mine: Record<string, string>, key: string, to: string): Record<string, string> | string {
	if (!/^(Ctrl )?\S$/.test(to)) return "Press one key, or Ctrl and one key.";
	const other = own.find(([k]) => k !== key && (mine[k] ?? k) === to);
	if (other) return `${to} is taken: ${other[1]}.`;
	if (taken.includes(to)) return `${to} is taken.`;
	const { [key]: _, ...rest } = mine;
	return to === key ? rest : { ...rest, [key]: to };
}

const change = "Change";
const asking = "Press a key…";

/** Help lists the keys, and lets a person choose others. */
export default function Help({ open, onClose }: { open: boolean; onClose(): void }) {
	const [letters, set] = useState(lettersOn);
	const [mine, setMine] = useState(ownKeys);
	const [asks, setAsks] = useState(""); // the key that is being chosen anew
	const [said, setSaid] = useState("");
	const keep = (to: Record<string, string>) => {
		setOwnKeys(to);
		setMine(to);
	};
	const press = (e: KeyboardEvent, key: string) => {
		if (asks !== key || ["Tab", "Shift", "Control", "Meta", "Alt"].includes(e.key)) return;
		e.preventDefault();
		e.stopPropagation();
		if (e.key === "Escape") return setAsks("");
		const to = chosen(mine, key, nameOf(e.nativeEvent, ""));
		if (typeof to === "string") return setSaid(to);
		keep(to);
		setAsks("");
		setSaid("");
	};
	return (
		<Dialog title="Keys" text="They are off while you type." open={open} onClose={asks ? () => setAsks("") : onClose}>
			<table className="table">
				<tbody>
					{own.map(([key, does]) => (
						<tr key={key}>
							<th scope="row">
								<kbd>{mine[key] ?? key}</kbd>
							</th>
							<td className="flex flex-wrap items-center justify-between gap-2">
								{does}
								<button
									type="button"
									className="button"
									aria-label={`${asks === key ? asking : change}: ${does}`}
									onClick={() => {
										setSaid("");
										setAsks(key);
									}}
									onKeyDown={(e) => press(e, key)}
									onBlur={() => setAsks("")}
								>
									{asks === key ? asking : change}
								</button>
							</td>
						</tr>
					))}
					{fixed.map(([key, does]) => (
						<tr key={key}>
							<th scope="row">
								<kbd>{key}</kbd>
							</th>
							<td>{does}</td>
						</tr>
					))}
				</tbody>
			</table>
			<p role="status" className="text-warn">
				{said}
			</p>
			<label className="flex items-center gap-2">
				<input
					type="checkbox"
					checked={letters}
					onChange={(e) => {
						setLetters(e.target.checked);
						set(e.target.checked);
					}}
				/>
				Use keys without Ctrl
			</label>
			<div className="flex flex-wrap justify-end gap-2">
				{Object.keys(mine).length > 0 && (
					<button type="button" className="button" onClick={() => keep({})}>
						As they were
					</button>
				)}
				<button type="button" className="button" data-first onClick={onClose}>
					Close
				</button>
			</div>
		</Dialog>
	);
}
