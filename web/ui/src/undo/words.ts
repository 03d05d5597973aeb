import { bytes, plural } from "../ui/format";
import { flat } from "../ui/text";
import type { Change } from "./paths";
import type { Applied, Plan, Request } from "./store";

const titles: Record<Plan["do"], string> = { undo: "Undo", redo: "Redo", restore: "Restore", revert: "Revert" };

/** titleOf names a way back; without a plan it is not known where it goes. */
export function titleOf(r: Request, plan?: Plan | null): string {
	const n = plan?.n ?? r.n;
	if (r.do === "revert") return `Revert only #${n}, keep what came later`;
	const what = r.path ? ` ${flat(r.path)}` : "";
	return titles[r.do] + what + (n ? ` to #${n}` : "");
}

export const verbOf = (r: Request) => titles[r.do];

/** sizesOf says how large a path is before and after. */
export function sizesOf(f: Change): string {
	const before = f.before?.type === "file" ? bytes(f.before.size) : "";
	const after = f.after?.type === "file" ? bytes(f.after.size) : "";
	if (f.after?.target) return `→ ${flat(f.after.target)}`;
	if (before && after) return before === after ? after : `${before} → ${after}`;
	if (f.after?.type === "directory" || f.before?.type === "directory") return "directory";
	return before || after;
}

/** resultOf says in a sentence what an apply did; every path is counted once. */
export function resultOf(plan: Plan, done: Applied): string {
	const files = done.files ?? [];
	const kept = files.filter((f) => f.result === "kept").length;
	const changed = files.length - kept;
	const more = done.cut ? " or more" : "";
	const word = changed === 1 && !done.cut ? "path" : "paths";
	return `${titles[plan.do]} done: ${changed}${more} ${word} changed${kept ? `, ${kept} kept because they hold what the history does not have` : ""}. This is revision #${done.revision.n}.`;
}

/** totalOf says how much a plan would do. */
export function totalOf(plan: Plan): string {
	if (plan.conflicts?.length)
		return `${plural(plan.conflicts.length, "path")} changed again since: choose for each. Nothing is written before the whole plan was shown.`;
	if (!plan.total) return "Nothing would change: there is nothing to do.";
	return `${plan.total === 1 ? "1 path changes" : `${plan.total} paths change`}. What is there now stays a revision.`;
}
