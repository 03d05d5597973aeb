// Terminals of a machine: several shells, each of which outlives reloads and connections.

import { ChevronDown, ChevronUp, Plus, Search, X } from "lucide-react";
import { type KeyboardEvent, useEffect, useRef, useState, useSyncExternalStore } from "react";
import { useLogin, useSandbox } from "../api/queries";
import { type Tab, tabsMax, tabsOf } from "../terminal/tabs";
import { Dialog } from "../ui/dialog";
import type { PaneProps } from "./pane";
import { offOf } from "./terminal_off";
import { OffBox } from "./terminal_offbox";
import { TerminalView, type ViewHandle, wordOf } from "./terminal_view";

const readerKey = "skete.terminal.reader";

export default function TerminalPane({ sandbox, past, hidden }: PaneProps) {
	const machine = useSandbox(sandbox).data;
	const scopes = useLogin().data?.scopes;
	const mayWrite = !scopes || scopes.some((s) => s === "write" || s === "admin");
	const off = offOf("The terminal", past, machine, mayWrite);
	const on = machine?.state === "running" && mayWrite;
	const wanted = !off && !hidden;
	const tabs = tabsOf(sandbox);
	const list = useSyncExternalStore(tabs.watch, tabs.snapshot);
	const [chosen, setChosen] = useState("");
	const current = list.find((t) => t.session.key === chosen) ?? list[0];
	const [reader, setReader] = useState(() => localStorage.getItem(readerKey) === "1");
	const [finding, setFinding] = useState(false);
	const [closing, setClosing] = useState<Tab | null>(null);
	const views = useRef(new Map<string, ViewHandle>());
	const bar = useRef<HTMLDivElement>(null);
	const view = () => (current ? views.current.get(current.session.key) : undefined);

	useEffect(() => {
		if (wanted) void tabs.restore();
	}, [tabs, wanted]);
	useEffect(() => localStorage.setItem(readerKey, reader ? "1" : "0"), [reader]);
	const leave = () => bar.current?.querySelector<HTMLElement>('[aria-selected="true"]')?.focus();
	const add = async () => setChosen((await tabs.add())?.session.key ?? chosen);
	const close = (t: Tab) => {
		const { word } = t.session.snapshot();
		if (word === "ended" || word === "failed") tabs.close(t);
		else setClosing(t);
	};
	return (
		<div className="flex min-h-0 min-w-0 flex-1 flex-col">
			{off && <OffBox sandbox={sandbox} off={off} />}
			<div className={off && past ? "hidden" : "flex min-h-0 min-w-0 flex-1 flex-col"}>
				<div ref={bar} className="flex shrink-0 flex-wrap items-center gap-1 border-line border-b px-1 py-1">
					<ShellTabs list={list} current={current} onChoose={setChosen} onClose={close} onEnter={() => view()?.focus()} />
					<button type="button" className="button plain" disabled={!!off || list.length >= tabsMax} onClick={() => void add()}>
						<Plus size={14} aria-hidden />
						New shell
					</button>
					<span className="flex-1" />
					<label className="flex min-h-7 items-center gap-1 text-quiet">
						<input type="checkbox" checked={reader} onChange={(e) => setReader(e.target.checked)} />
						Screen reader
					</label>
					<button
						type="button"
						className="button plain icon"
						aria-label="Find in the terminal"
						aria-expanded={finding}
						onClick={() => setFinding(!finding)}
					>
						<Search size={14} aria-hidden />
					</button>
				</div>
				{finding && (
					<Find
						onFind={(text, back) => view()?.find(text, back) ?? false}
						onClose={() => {
							setFinding(false);
							view()?.focus();
						}}
					/>
				)}
				{list.map((t) => (
					<TerminalView
						key={t.session.key}
						ref={(h) => {
							if (h) views.current.set(t.session.key, h);
							else views.current.delete(t.session.key);
						}}
						tab={t}
						on={on}
						shown={t === current}
						screenReader={reader}
						onNew={() => void tabs.replace(t).then(() => setChosen(""))}
						onLeave={leave}
						onSearch={() => setFinding(true)}
					/>
				))}
				{current && !off && <PhoneKeys view={view} />}
				<p className="hidden px-2 text-quiet text-xs min-[900px]:block">
					Ctrl-Shift-F6 leaves the terminal, Ctrl-Shift-F finds, Ctrl-Shift-C copies.
				</p>
			</div>
			<Dialog
				title={`End shell ${closing?.number ?? ""}?`}
				text="The shell and the programs that were started in it are told to end."
				open={closing !== null}
				onClose={() => setClosing(null)}
			>
				<div className="flex flex-wrap justify-end gap-2">
					<button type="button" className="button" data-first onClick={() => setClosing(null)}>
						Keep
					</button>
					<button
						type="button"
						className="button danger"
						onClick={() => {
							tabs.close(closing!);
							setClosing(null);
						}}
					>
						End the shell
					</button>
				</div>
			</Dialog>
		</div>
	);
}

interface ShellTabsProps {
	list: readonly Tab[];
	current: Tab | undefined;
	onChoose(key: string): void;
	onClose(t: Tab): void;
	onEnter(): void;
}

function ShellTabs({ list, current, onChoose, onClose, onEnter }: ShellTabsProps) {
	const at = current ? list.indexOf(current) : -1;
	const move = (e: KeyboardEvent, by: number) => {
		const to = list[(at + by + list.length) % list.length];
		if (!to) return;
		e.preventDefault();
		onChoose(to.session.key);
		requestAnimationFrame(() => document.getElementById(`shell-${to.session.key}`)?.focus());
	};
	const key = (e: KeyboardEvent) => {
		if (e.key === "ArrowRight") move(e, 1);
		else if (e.key === "ArrowLeft") move(e, -1);
		else if (e.key === "Delete" && current) onClose(current);
		else if (e.key === "Enter" || e.key === "ArrowDown") {
			e.preventDefault();
			onEnter();
		}
	};
	return (
		<>
			<div role="tablist" aria-label="Shells" className="flex flex-wrap gap-1" onKeyDown={key}>
				{list.map((t) => (
					<ShellTab key={t.session.key} tab={t} chosen={t === current} onChoose={() => onChoose(t.session.key)} />
				))}
			</div>
			{current && (
				<button type="button" className="button plain icon" aria-label={`End shell ${current.number}`} onClick={() => onClose(current)}>
					<X size={14} aria-hidden />
				</button>
			)}
		</>
	);
}

function ShellTab({ tab, chosen, onChoose }: { tab: Tab; chosen: boolean; onChoose(): void }) {
	const state = useSyncExternalStore(tab.session.watch, tab.session.snapshot);
	return (
		<button
			type="button"
			role="tab"
			id={`shell-${tab.session.key}`}
			aria-selected={chosen}
			tabIndex={chosen ? 0 : -1}
			className={`min-h-7 rounded px-2 ${chosen ? "bg-accent-ground text-accent" : "text-quiet"}`}
			onClick={onChoose}
			data-word={state.word}
		>
			Shell {tab.number} <span className="text-quiet">{state.word === "ended" ? "ended" : wordOf(state)}</span>
		</button>
	);
}

function Find({ onFind, onClose }: { onFind(text: string, back: boolean): boolean; onClose(): void }) {
	const [text, setText] = useState("");
	const [missed, setMissed] = useState(false);
	const go = (back: boolean) => setMissed(text !== "" && !onFind(text, back));
	return (
		<search className="flex flex-wrap items-center gap-1 border-line border-b p-1">
			<input
				// biome-ignore lint/a11y/noAutofocus: it was asked for by a key or a button.
				autoFocus
				aria-label="Find in the terminal"
				className="field min-w-0 flex-1"
				value={text}
				onChange={(e) => setText(e.target.value)}
				onKeyDown={(e) => {
					if (e.key === "Escape") onClose();
					else if (e.key === "Enter") go(!e.shiftKey);
				}}
			/>
			<button type="button" className="button plain icon" aria-label="Find before" onClick={() => go(true)}>
				<ChevronUp size={14} aria-hidden />
			</button>
			<button type="button" className="button plain icon" aria-label="Find after" onClick={() => go(false)}>
				<ChevronDown size={14} aria-hidden />
			</button>
			<span role="status" className="text-quiet">
				{missed && "not found"}
			</span>
		</search>
	);
}

const phoneKeys = [
	["esc", "Esc"],
	["tab", "Tab"],
	["left", "←"],
	["up", "↑"],
	["down", "↓"],
	["right", "→"],
] as const;

/** PhoneKeys are keys that keyboards on glass lack. */
function PhoneKeys({ view }: { view(): ViewHandle | undefined }) {
	return (
		<div role="toolbar" aria-label="Keys" className="flex shrink-0 flex-wrap gap-1 border-line border-t p-1 min-[900px]:hidden">
			<button type="button" className="button min-h-11 min-w-11 justify-center" onClick={() => view()?.holdControl()}>
				Ctrl
			</button>
			{phoneKeys.map(([name, label]) => (
				<button
					key={name}
					type="button"
					aria-label={name}
					className="button min-h-11 min-w-11 justify-center"
					onClick={() => view()?.press(name)}
				>
					{label}
				</button>
			))}
		</div>
	);
}
