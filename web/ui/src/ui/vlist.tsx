// A list of which only the rows on the screen are in the page.

import { useVirtualizer, type Virtualizer } from "@tanstack/react-virtual";
import { type HTMLAttributes, type ReactNode, type Ref, useImperativeHandle, useRef } from "react";

export type Rows = Virtualizer<HTMLDivElement, HTMLDivElement>;

interface Props extends Omit<HTMLAttributes<HTMLDivElement>, "children"> {
	count: number;
	/** size that a row has about, in px; each is measured when it is shown. */
	size: number;
	keyOf(index: number): string;
	row(index: number): ReactNode;
	/** of are attributes of the element around a row. */
	of?(index: number): HTMLAttributes<HTMLDivElement>;
	rows?: Ref<Rows>;
}

/** VirtualList scrolls; its class gives it a height. */
export function VirtualList({ count, size, keyOf, row, of, rows, ...attributes }: Props) {
	const box = useRef<HTMLDivElement>(null);
	const list = useVirtualizer<HTMLDivElement, HTMLDivElement>({
		count,
		getScrollElement: () => box.current,
		estimateSize: () => size,
		getItemKey: keyOf,
		overscan: 10,
	});
	useImperativeHandle(rows, () => list, [list]);
	return (
		<div ref={box} {...attributes}>
			<div role="presentation" style={{ height: list.getTotalSize(), position: "relative" }}>
				{list.getVirtualItems().map((v) => (
					<div
						key={v.key}
						data-index={v.index}
						ref={list.measureElement}
						style={{ position: "absolute", top: 0, left: 0, right: 0, transform: `translateY(${v.start}px)` }}
						{...of?.(v.index)}
					>
						{row(v.index)}
					</div>
				))}
			</div>
		</div>
	);
}
