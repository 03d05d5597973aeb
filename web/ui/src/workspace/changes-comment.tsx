// A comment on a line of a diff: it is put into the message to the agent, which a person sends.

import { useState } from "react";
import { plural } from "../ui/format";
import { clip, flat, visible } from "../ui/text";
import type { LineRow } from "../undo/rows";

const lineMax = 300;

/** code is a text between marks that it does not end. */
function code(text: string): string {
	const longest = Math.max(0, ...(text.match(/`+/g) ?? []).map((m) => m.length));
	const mark = "`".repeat(longest + 1);
	return longest ? `${mark} ${text} ${mark}` : mark + text + mark;
}

/** quoted is a comment as the agent reads it: where, what stands there, and what is said of it. */
export function quoted(path: string, line: LineRow, words: string): string {
	const where = line.kind === "remove" ? `${path}:${line.before}` : `${path}:${line.after}`;
	const about = { same: "", add: " (added)", remove: " (removed; the number is of before)" }[line.kind];
	return `> ${code(flat(where))}${about}\n>\n>     ${visible(clip(line.text, lineMax))}\n\n${words.trim()}`;
}

/** numberOf is the number by which a line is asked for. */
export const numberOf = (l: LineRow) => l.after || l.before;

interface Props {
	path: string;
	/** lines are those of the file that can be chosen. */
	lines: readonly LineRow[];
	/** line that is commented on at first. */
	line: LineRow;
	onComment(text: string): void;
	onClose(): void;
}

export function CommentForm({ path, lines, line: first, onComment, onClose }: Props) {
	const [line, setLine] = useState(first);
	const [number, setNumber] = useState(String(numberOf(first)));
	const [words, setWords] = useState("");
	const choose = (text: string) => {
		setNumber(text);
		const found = lines.find((l) => l.kind !== "remove" && l.after === Number(text)) ?? lines.find((l) => l.before === Number(text));
		if (found) setLine(found);
	};
	const known = Number(number) === numberOf(line);
	return (
		<form
			aria-label={`Comment on ${visible(path)}`}
			className="flex flex-col gap-1 border-accent border-y bg-accent-ground p-2 font-sans"
			onSubmit={(e) => {
				e.preventDefault();
				if (known && words.trim()) onComment(quoted(path, line, words));
			}}
			onKeyDown={(e) => {
				if (e.key === "Escape") onClose();
			}}
		>
			<label className="flex flex-wrap items-center gap-1">
				Line
				<input type="number" min={1} className="field w-20" value={number} onChange={(e) => choose(e.target.value)} />
				<code className="min-w-0 flex-1 truncate">{known ? visible(clip(line.text, lineMax)) : ""}</code>
			</label>
			{!known && (
				<span role="alert" className="text-bad">
					Line {visible(number)} is not among the {plural(lines.length, "line")} that are shown of this file.
				</span>
			)}
			<textarea
				// biome-ignore lint/a11y/noAutofocus: the form was asked for.
				autoFocus
				rows={2}
				aria-label="Comment"
				placeholder="What is to be said of it"
				className="field"
				value={words}
				onChange={(e) => setWords(e.target.value)}
			/>
			<div className="flex flex-wrap items-center gap-2">
				<button type="submit" className="button main" disabled={!words.trim() || !known}>
					Put into the message
				</button>
				<button type="button" className="button" onClick={onClose}>
					Cancel
				</button>
				<span className="text-quiet">Nothing is sent by this.</span>
			</div>
		</form>
	);
}
