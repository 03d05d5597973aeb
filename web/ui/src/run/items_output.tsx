// Output of commands: the beginning and the end of it. A pager, which few rows need, has the rest.

import { lazy, memo, Suspense, useMemo, useState } from "react";
import { bytes, plural } from "../ui/format";
import { spans } from "../ui/sgr";
import { clipLines, headTail } from "./lines";

const Kept = lazy(() => import("./items_pager"));

const headLines = 100;
const tailLines = 200;

/** Coloured shows output of a program, with its colours and without its other wishes. */
export const Coloured = memo(function Coloured({ text }: { text: string }) {
	const list = useMemo(() => spans(text), [text]);
	return list.map((s, i) =>
		s.look ? (
			<span key={i} className={s.look}>
				{s.text}
			</span>
		) : (
			s.text
		),
	);
});

/** OutputText is output that is here: its first and last lines. */
export function OutputText({ text }: { text: string }) {
	const [all, setAll] = useState(false);
	const parts = useMemo(() => headTail(clipLines(text), headLines, tailLines), [text]);
	const cut = parts.cut > 0 && !all;
	return (
		// biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls needs the keys.
		<pre tabIndex={0} className="max-h-96 overflow-auto whitespace-pre-wrap break-words rounded bg-sunken p-2">
			<Coloured text={cut || !parts.cut ? parts.head : clipLines(text)} />
			{cut && (
				<>
					{"\n"}
					<button type="button" className="button my-1" onClick={() => setAll(true)}>
						Show {plural(parts.cut, "more line")}
					</button>
					{"\n"}
					<Coloured text={parts.tail} />
				</>
			)}
		</pre>
	);
}

/** wholeMax is the most that is surely kept of an output: a command's first and last 256 KB. */
const wholeMax = 512 << 10;

/** Whole opens all of a call's output that is kept, where what is here is a part of it. */
export function Whole({ blob, size }: { blob: string; size: number }) {
	const [open, setOpen] = useState(false);
	if (!open)
		return (
			<button type="button" className="button mt-1 self-start" onClick={() => setOpen(true)}>
				{size > wholeMax ? `Open what is kept of ${bytes(size)}` : `Open all (${bytes(size)})`}
			</button>
		);
	return (
		<Suspense>
			<Kept blob={blob} written={size} onClose={() => setOpen(false)} />
		</Suspense>
	);
}
