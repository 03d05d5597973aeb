import { Fragment, type ReactNode, useMemo } from "react";
import { visible } from "../ui/text";
import { type Hunk, type LineRow, linesOf, marks } from "./rows";

const charsMax = 2000; // of a line
const linesMax = 400; // of a list that is no virtual one

const signs = { same: " ", remove: "−", add: "+" };
const grounds = { same: "", remove: "bg-removed", add: "bg-added" };
const said = { same: "", remove: "removed: ", add: "added: " };

/** Text is a line of a file; words that its pair does not have are marked. */
function Text({ row }: { row: LineRow }): ReactNode {
	const text = row.text.length > charsMax ? row.text.slice(0, charsMax) : row.text;
	const parts = useMemo(() => (row.pair === undefined ? [] : marks(text, row.pair)), [text, row.pair]);
	const out: ReactNode[] = [];
	let at = 0;
	for (const [from, to] of parts) {
		out.push(<Fragment key={at}>{visible(text.slice(at, from))}</Fragment>);
		out.push(
			<mark key={`m${from}`} className="rounded-xs bg-transparent font-semibold text-text underline decoration-2 underline-offset-2">
				{visible(text.slice(from, to))}
			</mark>,
		);
		at = to;
	}
	out.push(<Fragment key="end">{visible(text.slice(at))}</Fragment>);
	if (row.text.length > charsMax)
		out.push(
			<span key="cut" className="text-quiet">
				{" "}
				… and {row.text.length - charsMax} characters more
			</span>,
		);
	if (row.noNewline)
		out.push(
			<span key="newline" className="text-quiet">
				{"  "}(no newline at the end)
			</span>,
		);
	return out;
}

const number = "w-9 shrink-0 pr-1 text-right text-quiet select-none";

interface LineProps {
	row: LineRow;
	/** side shows the number of that side alone. */
	side?: "before" | "after";
	/** onPick of the line's number, by the mouse; keys have another way. */
	onPick?(row: LineRow): void;
}

/** DiffLine is a line of a diff. Screen readers are told in a word what the colour says. */
export function DiffLine({ row, side, onPick }: LineProps) {
	const pick = onPick && { onClick: () => onPick(row), title: "Comment on this line" };
	const look = onPick ? `${number} cursor-pointer hover:bg-accent-ground hover:text-accent` : number;
	return (
		<div data-kind={row.kind} className={`flex min-w-0 font-mono text-xs leading-5 ${grounds[row.kind]}`}>
			{side !== "after" && (
				<span aria-hidden className={look} {...pick}>
					{row.before || ""}
				</span>
			)}
			{side !== "before" && (
				<span aria-hidden className={look} {...pick}>
					{row.after || ""}
				</span>
			)}
			<span aria-hidden className="w-4 shrink-0 select-none">
				{signs[row.kind]}
			</span>
			<span className="min-w-0 flex-1 whitespace-pre-wrap [overflow-wrap:anywhere]">
				{said[row.kind] && <span className="sr-only">{said[row.kind]}</span>}
				<Text row={row} />
			</span>
		</div>
	);
}

/** PairLine is a line before and after. What is the same on both sides is read out once. */
export function PairLine({ before, after, onPick }: { before?: LineRow; after?: LineRow; onPick?(row: LineRow): void }) {
	return (
		<div className="grid grid-cols-2">
			{before ? <DiffLine row={before} side="before" onPick={onPick} /> : <div aria-hidden className="bg-sunken" />}
			{after ? (
				<div aria-hidden={after.kind === "same" || undefined} className="min-w-0 border-line border-l">
					<DiffLine row={after} side="after" onPick={onPick} />
				</div>
			) : (
				<div aria-hidden className="border-line border-l bg-sunken" />
			)}
		</div>
	);
}

/** Gap stands where lines are left out. */
export const Gap = ({ text }: { text: string }) => <div className="bg-raised px-2 font-mono text-quiet text-xs leading-5">{text}</div>;

/** Lines are those of one file; of very many the first. */
export function Lines({ hunks }: { hunks: readonly Hunk[] }) {
	const rows = useMemo(() => linesOf(hunks, ""), [hunks]);
	return (
		<div className="border-line border-y">
			{rows
				.slice(0, linesMax)
				.map((r) => (r.row === "line" ? <DiffLine key={r.key} row={r} /> : r.row === "gap" ? <Gap key={r.key} text={r.text} /> : null))}
			{rows.length > linesMax && <p className="px-2 text-quiet">and {rows.length - linesMax} lines more</p>}
		</div>
	);
}
