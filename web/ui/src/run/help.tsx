import { useState } from "react";
import { Dialog } from "../ui/dialog";
import { lettersOn, setLetters } from "./keys";

/** keyTable is what the help says. */
const keyTable: [string, string][] = [
	["j, k", "next, previous item"],
	["J, K", "next, previous step"],
	["Enter", "open or close the item; open a sub-agent"],
	["e", "open or close all of the item's kind"],
	["o", "open the item's file in the workspace"],
	[".", "what can be done from the item: revert only its step, fork, copy"],
	["u", "undo to before the item's step; shows the plan"],
	["Ctrl Z, Ctrl Shift Z", "undo, redo; shows the plan"],
	["/", "find in the run"],
	["n, N", "next, previous place that was found"],
	["f", "follow what comes, or stay here"],
	["g l", "go to what is live"],
	["[, ]", "look at the revision before, after, as it was"],
	["p", "play what was recorded, or pause"],
	["t", "the bar by time, or by event"],
	["A", "go to what waits for you"],
	["1 to 4", "panes of the workspace"],
	["Ctrl `", "the terminal"],
	["Ctrl \\", "show or hide the workspace"],
	["F6", "next part of the page"],
	["?", "this list"],
];

/** Help lists the keys. */
export default function Help({ open, onClose }: { open: boolean; onClose(): void }) {
	const [letters, set] = useState(lettersOn);
	return (
		<Dialog title="Keys" text="They are off while you type." open={open} onClose={onClose}>
			<table className="table">
				<tbody>
					{keyTable.map(([key, does]) => (
						<tr key={key}>
							<th scope="row">
								<kbd>{key}</kbd>
							</th>
							<td>{does}</td>
						</tr>
					))}
				</tbody>
			</table>
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
			<button type="button" className="button self-end" data-first onClick={onClose}>
				Close
			</button>
		</Dialog>
	);
}
