import { createContext, useContext } from "react";
import type { Item } from "./fold";
import type { RunStore } from "./store";

/** Scene is what rows can do beyond themselves. It stays the same while the run goes on. */
export interface Scene {
	store: RunStore;
	/** root is the run's own thread. */
	root: string;
	/** still is the time that is looked at; "" = now. */
	still: string;
	/** focus shows the timeline of another thread of the run. */
	focus(thread: string): void;
	/** openFile shows a path in the workspace. */
	openFile(path: string): void;
	/** act lists what can be done from an item; revert: it asks to take back its step alone. */
	act(item: Item, thread: string, revert?: boolean): void;
	/** fork asks for a fork from an event. */
	fork(at: number): void;
	/** openPreview shows the app at a port. */
	openPreview(port: number): void;
}

export const SceneContext = createContext<Scene | null>(null);

export function useScene(): Scene {
	const scene = useContext(SceneContext);
	if (!scene) throw new Error("a row outside of a run");
	return scene;
}
