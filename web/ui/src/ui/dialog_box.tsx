import { Dialog as Radix } from "radix-ui";
import { useRef } from "react";
import type { DialogProps } from "./dialog";

/** DialogBox is what Dialog shows. */
export default function DialogBox({ title, text, open, onClose, children, wide }: DialogProps) {
	const before = useRef<Element | null>(null);
	return (
		<Radix.Root open={open} onOpenChange={(to) => !to && onClose()}>
			<Radix.Portal>
				<Radix.Overlay className="fixed inset-0 z-40 bg-sunken opacity-75" />
				<Radix.Content
					onCloseAutoFocus={(e) => {
						e.preventDefault();
						if (before.current instanceof HTMLElement) before.current.focus();
					}}
					onOpenAutoFocus={(e) => {
						before.current = document.activeElement;
						const first = (e.currentTarget as HTMLElement).querySelector<HTMLElement>("[data-first]");
						if (first) {
							e.preventDefault();
							first.focus();
						}
					}}
					className={`fixed top-1/2 left-1/2 z-50 flex max-h-[90dvh] w-[calc(100vw-16px)] -translate-x-1/2 -translate-y-1/2 flex-col gap-3 overflow-auto rounded-lg border border-line bg-ground p-4 ${wide ? "max-w-4xl" : "max-w-lg"}`}
				>
					<Radix.Title className="text-base font-semibold">{title}</Radix.Title>
					<Radix.Description asChild>
						<div className={text ? "" : "sr-only"}>{text ?? title}</div>
					</Radix.Description>
					{children}
				</Radix.Content>
			</Radix.Portal>
		</Radix.Root>
	);
}
