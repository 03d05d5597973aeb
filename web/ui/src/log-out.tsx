// The end of a login, in each tab of it.

import { LogOut } from "lucide-react";
import { useState } from "react";
import { toLogin } from "./api/http";
import { useLogin } from "./api/queries";

/** logOut ends the login and leads to the next one. It throws when the login goes on. */
export async function logOut(): Promise<void> {
	const res = await fetch("/logout", { method: "POST", credentials: "same-origin", redirect: "manual" });
	if (res.type !== "opaqueredirect" && !res.ok) throw new Error(`the server answered ${res.status}`);
	toLogin();
}

// A page that the browser kept may be of a person who has logged out since.
addEventListener("pageshow", (e) => {
	if (e.persisted) location.reload();
});

/** LogOutButton is there for who came by a login: a key is not ended here. */
export function LogOutButton() {
	const [bad, setBad] = useState("");
	if (useLogin().data?.by !== "login") return null;
	const end = () => {
		setBad("");
		return logOut().catch((err: unknown) => setBad(err instanceof Error ? err.message : String(err)));
	};
	return (
		<>
			{bad && (
				<span role="alert" className="text-bad">
					You are still logged in: {bad}
				</span>
			)}
			<button type="button" className="button plain icon" aria-label="Log out" title="Log out" onClick={() => void end()}>
				<LogOut size={16} aria-hidden />
			</button>
		</>
	);
}
