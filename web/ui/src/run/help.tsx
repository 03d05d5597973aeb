import { useState } from "react";
import { Dialog } from "../ui/dialog";
import { keyTable, lettersOn, setLetters } from "./keys";

/** Help lists the keys. */
export function Help({ open, onClose }: { open: boolean; onClose(): void }) {
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
