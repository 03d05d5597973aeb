// A long output in a pager, by ranges of bytes.

import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { send } from "../api/http";
import { bytes } from "../ui/format";
import { ProblemBox } from "../ui/problem";
import { Coloured } from "./items_output";
import { type Piece, piece, pieceBytes, type Read, search, windowBytes } from "./pages";

/** Kept asks how much of an output is kept, which can be less than was written, and shows that. */
export default function Kept({ blob, written, onClose }: { blob: string; written: number; onClose(): void }) {
	const [size, setSize] = useState(-1);
	const [problem, setProblem] = useState<unknown>(null);
	useEffect(() => {
		const stop = new AbortController();
		sizeOf(blob, stop.signal)
			.then(setSize)
			.catch((err) => !stop.signal.aborted && setProblem(err));
		return () => stop.abort();
	}, [blob]);
	if (problem !== null) return <ProblemBox of={problem} />;
	if (size < 0) return null;
	return (
		<>
			{size < written && (
				<p className="text-quiet">
					{bytes(size)} of {bytes(written)} were kept, the beginning and the end; what was between them is left out.
				</p>
			)}
			<Pager blob={blob} size={size} onClose={onClose} />
		</>
	);
}

const pathOf = (blob: string) => `/v1/blobs/${encodeURIComponent(blob)}`;

async function sizeOf(blob: string, signal: AbortSignal): Promise<number> {
	const res = await send(pathOf(blob), { headers: { Range: "bytes=0-0", Accept: "*/*" }, signal });
	await res.arrayBuffer();
	return Number(/\/(\d+)$/.exec(res.headers.get("Content-Range") ?? "")?.[1] ?? res.headers.get("Content-Length") ?? 0);
}

function reader(blob: string): Read {
	const path = pathOf(blob);
	return async (from, to, signal) => {
		const res = await send(path, { headers: { Range: `bytes=${from}-${to - 1}`, Accept: "*/*" }, signal });
		return new Uint8Array(await res.arrayBuffer());
	};
}

/** Pager shows a window of the output; no more of it is kept than what is near. */
function Pager({ blob, size, onClose }: { blob: string; size: number; onClose(): void }) {
	const read = useMemo(() => reader(blob), [blob]);
	const [start, setStart] = useState(0); // of the window, in pieces
	const [hit, setHit] = useState(-1); // a byte
	const box = useRef<HTMLDivElement>(null);
	const per = windowBytes / pieceBytes;
	const pieces = Math.ceil(size / pieceBytes);
	const here = Math.max(0, Math.min(per, pieces - start));
	const list = useVirtualizer({
		count: here,
		getScrollElement: () => box.current,
		estimateSize: () => 6000,
		getItemKey: (i) => start + i,
		overscan: 1,
	});
	const go = (to: number) => {
		setStart(Math.max(0, Math.min(to, Math.floor((pieces - 1) / per) * per)));
		box.current?.scrollTo({ top: 0 });
	};
	const show = (at: number) => {
		const n = Math.floor(at / pieceBytes);
		setHit(at);
		setStart(Math.floor(n / per) * per);
		requestAnimationFrame(() => list.scrollToIndex(n % per, { align: "start" }));
	};
	const many = pieces > per;
	return (
		<section aria-label="All of the output" className="mt-1 rounded border border-line">
			<div className="flex flex-wrap items-center gap-1 border-line border-b p-1">
				<span className="text-quiet">
					{bytes(start * pieceBytes)} to {bytes(Math.min(size, (start + per) * pieceBytes))} of {bytes(size)}
				</span>
				{many && (
					<>
						<button type="button" className="button" disabled={start === 0} onClick={() => go(start - per)}>
							Before
						</button>
						<button type="button" className="button" disabled={start + per >= pieces} onClick={() => go(start + per)}>
							After
						</button>
						<button type="button" className="button" disabled={start + per >= pieces} onClick={() => go(pieces)}>
							End
						</button>
					</>
				)}
				<Search read={read} size={size} onFound={show} />
				<span className="flex-1" />
				<button type="button" className="button" onClick={onClose}>
					Close
				</button>
			</div>
			{/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls needs the keys. */}
			<div ref={box} data-pager tabIndex={0} className="h-96 overflow-auto bg-sunken">
				<div style={{ height: list.getTotalSize(), position: "relative" }}>
					{list.getVirtualItems().map((row) => (
						<div
							key={row.key}
							data-index={row.index}
							ref={list.measureElement}
							style={{ position: "absolute", top: 0, left: 0, right: 0, transform: `translateY(${row.start}px)` }}
						>
							<Lines read={read} n={start + row.index} size={size} hit={Math.floor(hit / pieceBytes) === start + row.index ? hit : -1} />
						</div>
					))}
				</div>
			</div>
		</section>
	);
}

/** center scrolls the pager, and not what it is in. */
function center(line: HTMLElement): void {
	const box = line.closest("[data-pager]");
	if (!box) return;
	const [at, of] = [line.getBoundingClientRect(), box.getBoundingClientRect()];
	box.scrollTop += at.top - of.top - box.clientHeight / 2;
}

/** Lines are those of a piece; the one that was searched for is marked, and brought to where it is seen. */
function Lines({ read, n, size, hit }: { read: Read; n: number; size: number; hit: number }) {
	const [got, setGot] = useState<Piece | null>(null);
	const [problem, setProblem] = useState<unknown>(null);
	const mark = useRef<HTMLElement>(null);
	useEffect(() => {
		const stop = new AbortController();
		piece(read, n, size, hit, stop.signal)
			.then(setGot)
			.catch((err) => !stop.signal.aborted && setProblem(err));
		return () => stop.abort();
	}, [read, n, size, hit]);
	useEffect(() => {
		if (!got || got.line < 0) return;
		// The list learns in the next frame how high the piece is, and moves what is below.
		let frame = requestAnimationFrame(() => {
			frame = requestAnimationFrame(() => mark.current && center(mark.current));
		});
		return () => cancelAnimationFrame(frame);
	}, [got]);
	if (problem !== null) return <ProblemBox of={problem} />;
	if (got === null) return <div className="h-96 p-2 text-quiet">…</div>;
	const lines = got.line < 0 ? [] : got.text.split("\n");
	return (
		<pre className="whitespace-pre-wrap break-all px-2">
			{got.line < 0 ? (
				<Coloured text={got.text} />
			) : (
				<>
					<Coloured text={`${lines.slice(0, got.line).join("\n")}${got.line ? "\n" : ""}`} />
					<mark ref={mark} className="bg-warn-ground text-inherit underline">
						<Coloured text={lines[got.line] ?? ""} />
					</mark>
					<Coloured text={`\n${lines.slice(got.line + 1).join("\n")}`} />
				</>
			)}
		</pre>
	);
}

/** Search finds the next place that holds some words, through all of the output. */
function Search({ read, size, onFound }: { read: Read; size: number; onFound(at: number): void }) {
	const [words, setWords] = useState("");
	const [says, setSays] = useState("");
	const last = useRef(-1);
	const running = useRef<AbortController | null>(null);
	useEffect(() => () => running.current?.abort(), []);
	const next = async () => {
		running.current?.abort();
		const stop = new AbortController();
		running.current = stop;
		try {
			const at = await search(read, size, words, last.current + 1, stop.signal, (n) => setSays(`searched ${bytes(n)}`));
			if (at < 0) setSays(last.current < 0 ? "not found" : "no more; Enter begins anew");
			else {
				setSays(`at ${bytes(at)}`);
				onFound(at);
			}
			last.current = at;
		} catch (err) {
			if (!stop.signal.aborted) setSays(err instanceof Error ? err.message : String(err));
		}
	};
	return (
		<form
			className="flex min-w-0 flex-wrap items-center gap-1"
			onSubmit={(e) => {
				e.preventDefault();
				void next();
			}}
		>
			<input
				type="search"
				aria-label="Search in the output"
				placeholder="Search"
				className="field w-32"
				value={words}
				onChange={(e) => {
					setWords(e.target.value);
					last.current = -1;
					setSays("");
				}}
				onKeyDown={(e) => e.key === "Escape" && running.current?.abort()}
			/>
			<span role="status" className="text-quiet">
				{says}
			</span>
		</form>
	);
}
