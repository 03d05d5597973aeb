// When there is no terminal, and what can be done then.

import type { Sandbox } from "../api/types";

export interface Off {
	text: string;
	/** verb of the API that helps, with its word. */
	verb?: "start" | "resume";
	word?: string;
}

/** offOf says why nothing of a machine can be used live; null = it can. */
export function offOf(what: string, past: boolean, sandbox: Pick<Sandbox, "state"> | undefined, mayWrite: boolean): Off | null {
	if (past) return { text: `You look at the past. ${what} belongs to the present: go back to live to use it.` };
	if (!sandbox) return { text: "The machine is being looked for." };
	if (!mayWrite) return { text: `${what} is for those who may change something: your key may only read.` };
	switch (sandbox.state) {
		case "running":
			return null;
		case "paused":
			return { text: "The machine is paused: its programs are frozen.", verb: "resume", word: "Resume the machine" };
		case "stopped":
			return {
				text: "The machine is stopped. Its files are kept; programs that ran have ended.",
				verb: "start",
				word: "Start the machine",
			};
		case "failed":
			return { text: "The machine has failed. Its files are kept.", verb: "start", word: "Start the machine again" };
		case "destroyed":
			return { text: "The machine was destroyed." };
	}
	return { text: `The machine is ${String(sandbox.state).replaceAll("_", " ")}. This goes on when it runs.` };
}
