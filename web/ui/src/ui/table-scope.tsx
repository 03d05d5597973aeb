// What a login may do, in words: a page that may not be seen says who can change that.

import type { ReactNode } from "react";
import { Problem } from "../api/http";
import { useLogin } from "../api/queries";
import { ProblemBox } from "./problem";

export type Scope = "read" | "write" | "admin";

/** allows is how the server reads scopes: admin may do all, and write may read. */
export function allows(scopes: readonly string[], want: Scope): boolean {
	return scopes.includes("admin") || scopes.includes(want) || (want === "read" && scopes.includes("write"));
}

/** lacking says why a login may not do something; "" = it may, or that is not known yet. */
export function lacking(scopes: readonly string[] | null | undefined, want: Scope): string {
	if (!scopes || allows(scopes, want)) return "";
	return `Your key has ${scopes.length ? `the scopes ${scopes.join(", ")}` : "no scopes"}, and this needs ${want}.`;
}

export function useLacking(want: Scope): string {
	return lacking(useLogin().data?.scopes, want);
}

/** Refused shows why something cannot be seen. Only what is broken looks like an error. */
export function Refused({ of, want, what, again }: { of: unknown; want: Scope; what: string; again?: () => void }) {
	if (!(of instanceof Problem) || of.status !== 403) return <ProblemBox of={of} again={again} />;
	return <NeedsScope want={want} what={what} />;
}

export function NeedsScope({ want, what }: { want: Scope; what: string }): ReactNode {
	const login = useLogin().data;
	return (
		<div className="flex flex-col gap-1 rounded-md border border-line bg-raised p-3">
			<strong>
				{what} can be seen with the scope {want} only.
			</strong>
			<span className="text-quiet">
				{login ? `You are signed in as ${login.name || login.user} with ${(login.scopes ?? []).join(", ") || "no scopes"}. ` : ""}
				Who runs this server can make a key that has it:
			</span>
			<code className="break-words select-all">skete key create NAME --scope {want}</code>
		</div>
	);
}
