import type { Sandbox } from "../api/types";

/** isLost reports whether a machine has ended and was not asked to: one that keeps its files is stopped then. */
export function isLost(of?: Pick<Sandbox, "state" | "reason" | "deaths">): boolean {
	if (of?.state === "failed") return true;
	return of?.state === "stopped" && !!of.reason && of.deaths?.at(-1)?.reason === of.reason;
}
