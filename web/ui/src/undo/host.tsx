// The ways back of a machine: the keys that ask for them, the plan, and what became of it.

import { useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useContext, useEffect, useState } from "react";
import { SceneContext } from "../run/context";
import { addToDraft } from "../run/draft";
import { Banner, type Done } from "./banner";
import { askWayBack, endWayBack, onlyLooks, onlyPast, type Request, useAsked, useMay } from "./store";

const PlanDialog = lazy(() => import("./dialog"));

/** keyOf is the way back that keys ask for: those of every editor. */
export function wayOf(e: KeyboardEvent): Request["do"] | "" {
	if (!(e.ctrlKey || e.metaKey) || e.altKey) return "";
	const key = e.key.toLowerCase();
	if (key === "z") return e.shiftKey ? "redo" : "undo";
	return key === "y" && !e.shiftKey ? "redo" : "";
}

const typing =
	"input, textarea, select, [contenteditable=''], [contenteditable='true'], .cm-editor, .xterm, [role='dialog'], [role='alertdialog']";

/** isTyping: a key belongs to what has the focus. */
export const isTyping = (e: KeyboardEvent) => e.target instanceof Element && e.target.closest(typing) !== null;

interface Props {
	sandbox: string;
	past: boolean;
}

export function UndoHost({ sandbox, past }: Props) {
	const asked = useAsked();
	const client = useQueryClient();
	const may = useMay();
	const [done, setDone] = useState<Done | null>(null);
	const [refused, setRefused] = useState("");
	const scene = useContext(SceneContext);
	const why = past ? onlyPast : may ? "" : onlyLooks;
	useEffect(() => {
		const on = (e: KeyboardEvent) => {
			const way = wayOf(e);
			if (!way || isTyping(e) || e.defaultPrevented || document.querySelector("[role='dialog']")) return;
			e.preventDefault();
			if (why) setRefused(why);
			else askWayBack(sandbox, way === "undo" ? { do: way, scope: "last" } : { do: way });
		};
		addEventListener("keydown", on);
		return () => removeEventListener("keydown", on);
	}, [sandbox, why]);
	useEffect(() => {
		if (!why) setRefused("");
	}, [why]);
	const mine = asked?.sandbox === sandbox ? asked : null;
	return (
		<>
			{refused && (
				<p role="status" className="border-line border-b bg-warn-ground px-3 py-2 text-warn">
					{refused}{" "}
					<button type="button" className="button" onClick={() => setRefused("")}>
						Close
					</button>
				</p>
			)}
			{done?.sandbox === sandbox && (
				<Banner of={done} past={past} onClose={() => setDone(null)} onTalk={(talk) => setDone({ ...done, talk })} />
			)}
			{mine && (
				<Suspense fallback={null}>
					<PlanDialog
						key={JSON.stringify(mine)}
						sandbox={sandbox}
						request={mine.request}
						refused={why}
						onClose={endWayBack}
						onFork={
							scene
								? (at) => {
										endWayBack();
										scene.fork(at);
									}
								: undefined
						}
						onDone={(plan, applied, host, talk) => {
							endWayBack();
							setDone({ sandbox, request: mine.request, plan, applied, host, talk, run: scene?.store.id ?? "" });
							if (talk?.done && scene) addToDraft(scene.store.id, talk.cut.prompt);
							void client.invalidateQueries({ queryKey: ["history", sandbox] });
						}}
					/>
				</Suspense>
			)}
		</>
	);
}
