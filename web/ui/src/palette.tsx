// Ctrl-K goes anywhere.

import { Search } from "lucide-react";
import { lazy, Suspense, useEffect, useState } from "react";

const PaletteBox = lazy(() => import("./palette-box").then((m) => ({ default: m.PaletteBox })));

/** Palette is the button in the top bar, and what Ctrl-K opens. */
export function Palette() {
	const [open, setOpen] = useState(false);
	useEffect(() => {
		const on = (e: KeyboardEvent) => {
			if (e.key.toLowerCase() !== "k" || !(e.ctrlKey || e.metaKey) || e.shiftKey || e.altKey) return;
			// In a terminal, Ctrl-K is the shell's.
			if (e.target instanceof HTMLElement && e.target.closest(".xterm")) return;
			e.preventDefault();
			setOpen((o) => !o);
		};
		addEventListener("keydown", on);
		return () => removeEventListener("keydown", on);
	}, []);
	return (
		<>
			<button
				type="button"
				className="button plain"
				onClick={() => setOpen(true)}
				aria-haspopup="dialog"
				aria-keyshortcuts="Control+K"
				title="Go to (Ctrl-K)"
			>
				<Search size={16} aria-hidden />
				<span className="sr-only">Go to</span>
				<kbd className="hidden text-quiet sm:inline">Ctrl K</kbd>
			</button>
			{open && (
				<Suspense fallback={null}>
					<PaletteBox onClose={() => setOpen(false)} />
				</Suspense>
			)}
		</>
	);
}
