// The timeline: a virtual list of the items of one thread. It stays at the newest item while the
// reader is there, and where the reader is otherwise.

import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState } from "react";
import { ApprovalCard } from "./approvals";
import { Composer } from "./composer";
import { ItemRow } from "./items";
import type { RunStore, RunView } from "./store";

export function Timeline({ store, view }: { store: RunStore; view: RunView }) {
	const thread = view.fold.thread(view.run.thread);
	const items = thread.items;
	const box = useRef<HTMLDivElement>(null);
	const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
	const list = useVirtualizer({
		count: items.length,
		getScrollElement: () => box.current,
		estimateSize: () => 28,
		getItemKey: (i) => items[i]!.key,
		overscan: 12,
		anchorTo: "end",
		followOnAppend: true,
	});
	const opened = useRef(false);
	useEffect(() => {
		if (opened.current || !items.length) return;
		opened.current = true;
		list.scrollToIndex(items.length - 1, { align: "end" });
	});
	const toggle = (key: string) =>
		setOpen((old) => {
			const to = new Set(old);
			if (!to.delete(key)) to.add(key);
			return to;
		});
	return (
		<section aria-label="Timeline" className="flex min-h-0 min-w-0 flex-1 flex-col">
			<div
				ref={box}
				role="feed"
				aria-busy={view.loadingOlder}
				// biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls needs the keys.
				tabIndex={0}
				className="min-h-0 flex-1 overflow-auto [overflow-anchor:none]"
				onScroll={(e) => {
					if (e.currentTarget.scrollTop < 400 && view.before) void store.older();
				}}
			>
				<div style={{ height: list.getTotalSize(), position: "relative" }}>
					{list.getVirtualItems().map((row) => {
						const item = items[row.index]!;
						return (
							<article
								key={row.key}
								data-index={row.index}
								ref={list.measureElement}
								aria-posinset={row.index + 1}
								aria-setsize={view.before ? -1 : items.length}
								style={{ position: "absolute", top: 0, left: 0, right: 0, transform: `translateY(${row.start}px)` }}
							>
								<ItemRow item={item} open={open.has(item.key)} onToggle={toggle} />
							</article>
						);
					})}
				</div>
			</div>
			<ApprovalCard view={view} />
			<Composer view={view} />
		</section>
	);
}
