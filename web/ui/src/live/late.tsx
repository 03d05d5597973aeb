import { useEffect, useState } from "react";
import { clock, plural } from "../ui/format";
import { socket, useLive } from "./index";

const lateMS = 60_000;

/** Late says, when the connection has been lost for long, that what is here can still be read. */
export function Late() {
	const live = useLive();
	const [, tick] = useState(0);
	const lost = live.state === "lost";
	useEffect(() => {
		if (!lost) return;
		const t = setInterval(() => tick((n) => n + 1), 5000);
		return () => clearInterval(t);
	}, [lost]);
	if (!lost || Date.now() - live.since < lateMS) return null;
	return (
		<div role="alert" className="flex flex-wrap items-center gap-2 bg-warn-ground px-3 py-1 text-warn">
			<span>
				The server has not answered since {clock(live.since)} ({plural(live.tries, "try", "tries")}): it may be down, or the network is. You
				can go on reading; how runs are, is not known.
			</span>
			<button type="button" className="button" onClick={() => socket.again()}>
				Retry
			</button>
		</div>
	);
}
