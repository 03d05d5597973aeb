// The card of all calls that wait. It takes the focus only when a person goes to it.

import { ChevronDown, Hand } from "lucide-react";
import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { plural } from "../ui/format";
import { type Ask, CallCard, pressed } from "./call";

interface Props {
	asks: Ask[];
	onSent(key: string): void;
}

const typing = (t: EventTarget | null) =>
	t instanceof HTMLElement && (t.matches("input:not([type=checkbox],[type=radio]), textarea, select") || t.isContentEditable);

/** Calls is the list of calls, with the keys of decisions: a, e, x, r on the one that has the focus, n and p to others. */
function Calls({ asks, onSent }: Props) {
	const box = useRef<HTMLDivElement>(null);
	const keys = (e: KeyboardEvent) => {
		if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || e.repeat || typing(e.target)) return;
		const call = (e.target as Element).closest("[data-call]");
		const done = e.key === "n" || e.key === "p" ? step(box.current, call, e.key === "n" ? 1 : -1) : !!call && pressed(call, e.key);
		if (!done) return;
		e.preventDefault();
		e.stopPropagation();
	};
	const open = asks.filter((a) => !a.decided && !a.gone);
	return (
		// biome-ignore lint/a11y/noStaticElementInteractions: keys for the buttons within.
		<div ref={box} onKeyDown={keys}>
			{asks.map((a) => (
				<CallCard key={a.key} ask={a} place={place(open, a)} onSent={onSent} />
			))}
		</div>
	);
}

function place(open: Ask[], a: Ask): string {
	const i = open.indexOf(a);
	return i < 0 || open.length < 2 ? "" : `${i + 1} of ${open.length}`;
}

/** step moves the focus to the next call that waits, or the one before. */
function step(box: Element | null, from: Element | null, by: 1 | -1): boolean {
	const all = [...(box?.querySelectorAll<HTMLElement>("[data-call]") ?? [])];
	const at = from ? all.indexOf(from as HTMLElement) : by > 0 ? -1 : all.length;
	for (let i = at + by; i >= 0 && i < all.length; i += by)
		if (all[i]!.dataset.open) {
			go(all[i]!);
			return true;
		}
	return from !== null;
}

function go(to: HTMLElement): void {
	to.focus({ preventScroll: true });
	to.scrollIntoView({ block: "nearest" });
}

/** useKeptFocus hands the focus on when the call that had it leaves the list, or the list itself goes. */
function useKeptFocus(box: React.RefObject<HTMLElement | null>, asks: Ask[]): void {
	const had = useRef("");
	const keys = asks.map((a) => a.key).join("\n");
	useEffect(() => {
		const lost = had.current && document.activeElement === document.body && !keys.split("\n").includes(had.current);
		if (lost && !step(box.current, null, 1)) document.getElementById("main")?.focus();
		const note = () => {
			had.current = (document.activeElement?.closest("[data-call]") as HTMLElement | null)?.dataset.call ?? "";
		};
		document.addEventListener("focusin", note);
		return () => document.removeEventListener("focusin", note);
	}, [keys, box]);
}

/** lettersOff: the person has turned the keys of one letter off (WCAG 2.1.4), in the help of the run screen. */
const lettersOff = () => localStorage.getItem("skete.keys.off") === "1";

/** useLetterA takes the focus to the first call that waits when a person presses A; before makes it visible. */
function useLetterA(box: React.RefObject<HTMLElement | null>, before: () => void): void {
	const now = useRef(before);
	now.current = before;
	useEffect(() => {
		const on = (e: globalThis.KeyboardEvent) => {
			if (e.key !== "A" || e.ctrlKey || e.metaKey || e.altKey || typing(e.target) || lettersOff() || !box.current) return;
			e.preventDefault();
			now.current();
			requestAnimationFrame(() => step(box.current, null, 1));
		};
		window.addEventListener("keydown", on);
		return () => window.removeEventListener("keydown", on);
	}, [box]);
}

/** AllCalls is the list on a page of its own. */
export function AllCalls(props: Props) {
	const box = useRef<HTMLDivElement>(null);
	useKeptFocus(box, props.asks);
	useLetterA(box, () => {});
	return (
		<div ref={box} className="rounded-md border border-line border-t-0">
			<Calls {...props} />
		</div>
	);
}

const wideQuery = "(min-width: 900px)";

function useWide(): boolean {
	const [wide, setWide] = useState(() => matchMedia(wideQuery).matches);
	useEffect(() => {
		const m = matchMedia(wideQuery);
		const on = () => setWide(m.matches);
		m.addEventListener("change", on);
		return () => m.removeEventListener("change", on);
	}, []);
	return wide;
}

/** Card shows the calls of a run above its composer; on a narrow screen as a bar that opens over all of it. */
export function Card({ asks, onSent }: Props) {
	const wide = useWide();
	const [choice, setChoice] = useState<boolean | null>(null);
	const box = useRef<HTMLElement>(null);
	const bar = useRef<HTMLButtonElement>(null);
	const open = choice ?? wide;
	const full = open && !wide && asks.length > 0;
	const waiting = asks.filter((a) => !a.decided && !a.gone);
	const text = waiting.length ? `${plural(waiting.length, "call")} ${waiting.length === 1 ? "needs" : "need"} you` : "Decided";
	useEffect(() => {
		if (!asks.length) setChoice(null);
	}, [asks.length]);
	useKeptFocus(box, asks);
	useLetterA(box, () => setChoice(true));
	const keys = (e: KeyboardEvent) => {
		if (!full) return;
		if (e.key === "Escape") {
			setChoice(false);
			bar.current?.focus();
		} else if (e.key === "Tab") within(e, box.current);
	};
	return (
		<>
			<Announce waiting={waiting} />
			{asks.length > 0 && (
				<section
					ref={box}
					{...(full ? { role: "dialog", "aria-modal": true } : {})}
					aria-label="Approvals"
					onKeyDown={keys}
					className={`flex min-h-0 flex-col bg-ground ${waiting.length ? "border-warn" : ""} ${full ? "fixed inset-0 z-30" : "max-h-[60dvh] shrink-0 border-t-2"}`}
				>
					<button
						ref={bar}
						type="button"
						aria-expanded={open}
						title="Approvals (A)"
						className={`flex min-h-9 w-full shrink-0 items-center gap-2 px-3 text-left font-medium max-[899px]:min-h-11 ${waiting.length ? "bg-warn-ground text-warn" : "bg-raised text-quiet"}`}
						onClick={() => setChoice(!open)}
					>
						<Hand size={16} aria-hidden />
						<span className="flex-1">{text}</span>
						{full && <span>Back to the run</span>}
						<ChevronDown size={16} aria-hidden className={open ? "" : "rotate-180"} />
					</button>
					<div className={`min-h-0 flex-1 overflow-auto ${open ? "" : "hidden"}`}>
						<Calls asks={asks} onSent={onSent} />
					</div>
				</section>
			)}
		</>
	);
}

/** within keeps Tab in a box that covers the page. */
function within(e: KeyboardEvent, box: HTMLElement | null): void {
	const all = [
		...(box?.querySelectorAll<HTMLElement>("button:not(:disabled), input:not(:disabled), textarea, select, [tabindex='0']") ?? []),
	];
	const seen = all.filter((x) => x.getClientRects().length > 0);
	const edge = e.shiftKey ? seen[0] : seen.at(-1);
	if (document.activeElement !== edge) return;
	e.preventDefault();
	(e.shiftKey ? seen.at(-1) : seen[0])?.focus();
}

/** Announce says once, and at once, that calls wait: the run stands still until then. Not again when one is decided. */
function Announce({ waiting }: { waiting: Ask[] }) {
	const said = useRef<ReadonlySet<string>>(new Set());
	const [text, setText] = useState("");
	const keys = waiting.map((a) => a.key).join("\n");
	// biome-ignore lint/correctness/useExhaustiveDependencies: keys stand for what waits.
	useEffect(() => {
		const fresh = waiting.filter((a) => !said.current.has(a.key));
		said.current = new Set(waiting.map((a) => a.key));
		if (fresh.length)
			setText(`${plural(fresh.length, "call")} ${fresh.length === 1 ? "waits" : "wait"} for your decision. Press Shift A to go there.`);
		else if (!waiting.length) setText("");
	}, [keys]);
	return (
		<p aria-live="assertive" className="sr-only">
			{text}
		</p>
	);
}
