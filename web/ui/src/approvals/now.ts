import { useEffect, useState } from "react";

/** useNow is the time, which moves every so many milliseconds. */
export function useNow(every: number): number {
	const [now, setNow] = useState(Date.now);
	useEffect(() => {
		const t = setInterval(() => setNow(Date.now()), every);
		return () => clearInterval(t);
	}, [every]);
	return now;
}
