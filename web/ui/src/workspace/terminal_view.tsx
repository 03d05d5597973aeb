// One shell on the screen.

import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, type Ref, useEffect, useImperativeHandle, useRef, useState, useSyncExternalStore } from "react";
import { socket } from "../live";
import { linkOf } from "../terminal/link";
import type { Paste } from "../terminal/paste";
import { TerminalScreen } from "../terminal/screen";
import type { SessionState } from "../terminal/session";
import type { Tab } from "../terminal/tabs";
import { Dialog } from "../ui/dialog";
import { ProblemBox } from "../ui/problem";
import { visible } from "../ui/text";

const previewChars = 2000;

/** wordOf says how a shell is. */
export function wordOf(s: SessionState): string {
	switch (s.word) {
		case "ended":
			if (s.lost) return "ended: its machine was started anew, how is not known";
			return s.exit ? `ended with exit code ${s.exit.code}${s.exit.reason ? `, ${visible(s.exit.reason)}` : ""}` : "ended";
		case "failed":
			return "could not be started";
		case "resting":
			return "waiting for the machine";
	}
	return s.word;
}

export interface ViewHandle {
	focus(): void;
	find(text: string, back: boolean): boolean;
	press(key: Parameters<TerminalScreen["press"]>[0]): void;
	holdControl(): void;
}

interface Props {
	tab: Tab;
	/** on: the shell may be connected. */
	on: boolean;
	shown: boolean;
	screenReader: boolean;
	ref: Ref<ViewHandle>;
	onNew(): void;
	onLeave(): void;
	onSearch(): void;
}

export function TerminalView({ tab, on, shown, screenReader, ref, onNew, onLeave, onSearch }: Props) {
	const { session } = tab;
	const state = useSyncExternalStore(session.watch, session.snapshot);
	const box = useRef<HTMLDivElement>(null);
	const [screen, setScreen] = useState<TerminalScreen | null>(null);
	const [link, setLink] = useState<URL | null>(null);
	const [paste, setPaste] = useState<Paste | null>(null);
	const calls = useRef({ onLeave, onSearch });
	calls.current = { onLeave, onSearch };

	// biome-ignore lint/correctness/useExhaustiveDependencies: the mode is changed in place below.
	useEffect(() => {
		const made = new TerminalScreen({
			session,
			element: box.current!,
			screenReader,
			onLink: (text) => setLink(linkOf(text)),
			onPaste: setPaste,
			onLeave: () => calls.current.onLeave(),
			onSearch: () => calls.current.onSearch(),
		});
		setScreen(made);
		return () => {
			session.rest();
			made.close();
		};
	}, [session]);
	useEffect(() => screen?.screenReader(screenReader), [screen, screenReader]);
	useEffect(() => {
		if (!screen) return;
		if (on) session.open(screen);
		else session.rest();
	}, [screen, session, on]);
	useEffect(() => screen?.readOnly(!on || state.word === "ended" || state.word === "failed"), [screen, on, state.word]);
	const client = useQueryClient();
	const away = state.problem?.status === 409;
	useEffect(() => {
		if (away) void client.invalidateQueries({ queryKey: ["sandboxes"] });
	}, [client, away]);
	useEffect(() => onReturn(() => session.again()), [session]);
	useImperativeHandle(
		ref,
		() => ({
			focus: () => screen?.focus(),
			find: (text, back) => screen?.find(text, back) ?? false,
			press: (key) => screen?.press(key),
			holdControl: () => screen?.holdControl(),
		}),
		[screen],
	);

	const over = state.word === "ended" || state.word === "failed";
	return (
		<div className={shown ? "flex min-h-0 min-w-0 flex-1 flex-col" : "hidden"} data-terminal={tab.number}>
			{(over || state.word === "reconnecting") && (
				<Notice state={state}>
					{over ? (
						<button type="button" className="button" onClick={onNew}>
							New shell
						</button>
					) : (
						<button type="button" className="button" onClick={() => session.again()}>
							Retry
						</button>
					)}
				</Notice>
			)}
			<div ref={box} className="min-h-0 min-w-0 flex-1 overflow-hidden p-1 outline-accent -outline-offset-2 focus-within:outline-2" />
			<LinkDialog url={link} onClose={() => setLink(null)} />
			<PasteDialog
				paste={paste}
				onClose={() => setPaste(null)}
				onPaste={(text) => {
					setPaste(null);
					screen?.paste(text);
				}}
			/>
		</div>
	);
}

/** onReturn calls when the tab's connection was lost and is back: one of a terminal may have died as silently. */
function onReturn(again: () => void): () => void {
	let was = socket.snapshot().state;
	return socket.watch(() => {
		const now = socket.snapshot().state;
		if (was === "lost" && now === "live") again();
		was = now;
	});
}

function Notice({ state, children }: { state: SessionState; children: ReactNode }) {
	return (
		<div role="status" className="flex flex-wrap items-center gap-2 border-line border-b bg-warn-ground px-2 py-1">
			<span>{wordOf(state)}</span>
			{children}
			{state.word === "failed" && state.problem && <ProblemBox of={state.problem} />}
		</div>
	);
}

function LinkDialog({ url, onClose }: { url: URL | null; onClose(): void }) {
	return (
		<Dialog
			title="Open a link of a program?"
			text={
				<>
					A program in the machine made this link. It leads to <code className="break-all">{visible(url?.host ?? "")}</code>
				</>
			}
			open={url !== null}
			onClose={onClose}
		>
			<code className="max-h-40 overflow-auto break-all rounded bg-sunken p-2">{visible(url?.href ?? "")}</code>
			<div className="flex flex-wrap justify-end gap-2">
				<button type="button" className="button" data-first onClick={onClose}>
					Stay here
				</button>
				<a className="button" href={url?.href} target="_blank" rel="noopener noreferrer nofollow" onClick={onClose}>
					Open in a new tab
				</a>
			</div>
		</Dialog>
	);
}

function PasteDialog({ paste, onPaste, onClose }: { paste: Paste | null; onPaste(text: string): void; onClose(): void }) {
	const text = paste?.text ?? "";
	const lines = paste?.lines ?? 0;
	return (
		<Dialog
			title={`Paste ${lines} ${lines === 1 ? "line" : "lines"} into the terminal?`}
			text={
				<>
					Each line may be run at once.
					{paste && paste.removed > 0 && ` ${paste.removed} control characters were taken out.`}
				</>
			}
			open={paste !== null}
			onClose={onClose}
		>
			<pre className="max-h-60 overflow-auto rounded bg-sunken p-2 break-all whitespace-pre-wrap">
				{visible(text.slice(0, previewChars).replace(/\r\n?/g, "\n"))}
				{text.length > previewChars && `\n… and ${text.length - previewChars} characters more`}
			</pre>
			<div className="flex flex-wrap justify-end gap-2">
				<button type="button" className="button" data-first onClick={onClose}>
					Do not paste
				</button>
				<button type="button" className="button" onClick={() => onPaste(text)}>
					Paste
				</button>
			</div>
		</Dialog>
	);
}
