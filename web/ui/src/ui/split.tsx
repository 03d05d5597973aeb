// A bar between two panes that is dragged, or moved by the arrow keys; a double click puts it back.

import { type ReactNode, useEffect, useRef, useState } from "react";

interface Props {
	/** name is where the width is kept, and what screen readers say. */
	name: string;
	left: ReactNode;
	right: ReactNode;
	/** at is the share of the left pane at first, 0..1 */
	at: number;
	min?: number;
	/** hidden: of the panes; hidden ones stay as they are. */
	hideLeft?: boolean;
	hideRight?: boolean;
}

const keyOf = (name: string) => `skete.split.${name}`;

function kept(name: string, at: number): number {
	const n = Number(localStorage.getItem(keyOf(name)));
	return n > 0.05 && n < 0.95 ? n : at;
}

export function Split({ name, left, right, at, min = 0.15, hideLeft, hideRight }: Props) {
	const [share, setShare] = useState(() => kept(name, at));
	const box = useRef<HTMLDivElement>(null);
	const move = (to: number) => setShare(Math.min(1 - min, Math.max(min, to)));
	useEffect(() => localStorage.setItem(keyOf(name), String(share)), [name, share]);
	const drag = (e: React.PointerEvent) => {
		if (!e.currentTarget.hasPointerCapture(e.pointerId)) return;
		const r = box.current!.getBoundingClientRect();
		move((e.clientX - r.left) / r.width);
	};
	const both = !hideLeft && !hideRight;
	return (
		<div ref={box} className="flex min-h-0 min-w-0 flex-1">
			<div
				className="flex min-h-0 min-w-0"
				hidden={hideLeft}
				style={{ flex: both ? `0 0 ${share * 100}%` : "1 1 0", display: hideLeft ? "none" : undefined }}
			>
				{left}
			</div>
			{both && (
				// biome-ignore lint/a11y/useSemanticElements: a rule cannot be moved.
				<div
					role="separator"
					aria-orientation="vertical"
					aria-label={`Width of ${name}`}
					aria-valuenow={Math.round(share * 100)}
					aria-valuemin={Math.round(min * 100)}
					aria-valuemax={Math.round((1 - min) * 100)}
					tabIndex={0}
					className="w-1 shrink-0 cursor-col-resize bg-line hover:bg-accent"
					onPointerDown={(e) => e.currentTarget.setPointerCapture(e.pointerId)}
					onPointerMove={drag}
					onDoubleClick={() => setShare(at)}
					onKeyDown={(e) => {
						if (e.key === "ArrowLeft") move(share - 0.02);
						else if (e.key === "ArrowRight") move(share + 0.02);
						else if (e.key === "Home") setShare(at);
						else return;
						e.preventDefault();
					}}
				/>
			)}
			<div className="flex min-h-0 min-w-0 flex-1" hidden={hideRight} style={{ display: hideRight ? "none" : undefined }}>
				{right}
			</div>
		</div>
	);
}
