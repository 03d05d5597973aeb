import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { useInfo } from "../api/queries";
import { useLive } from "./index";

/** isOther reports whether the server has another page than this one: the script that this one began with is gone. */
async function isOther(): Promise<boolean> {
	const mine = document.querySelector<HTMLScriptElement>('script[type="module"][src]')?.src;
	if (!mine) return false;
	return await fetch(mine, { method: "HEAD", cache: "no-store" }).then(
		(r) => r.status === 404,
		() => false,
	);
}

/** useUpgraded asks after each loss of the connection whether the server is still the one of this page. */
export function useUpgraded(): boolean {
	const client = useQueryClient();
	const { state } = useLive();
	const lost = useRef(false);
	const [other, setOther] = useState(false);
	const info = useInfo();
	useEffect(() => {
		if (state === "lost") lost.current = true;
		if (state !== "live" || !lost.current) return;
		lost.current = false;
		void client.invalidateQueries({ queryKey: ["info"] });
		void isOther().then(setOther);
	}, [state, client]);
	const mine = document.querySelector<HTMLMetaElement>('meta[name="skete-version"]')?.content;
	return other || (!!info.data && !!mine && !mine.startsWith("SKETE-") && info.data.version !== mine);
}

/** Upgrade offers a reload when the server is another version than this page; it never reloads by itself. */
export function Upgrade() {
	if (!useUpgraded()) return null;
	return (
		<button type="button" className="button" onClick={() => location.reload()}>
			The server was upgraded: reload when ready
		</button>
	);
}
