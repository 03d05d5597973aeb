import { useEffect, useRef, useState } from "react";

/** useSlow is a value that changes at most each `ms`, and is the newest in the end. */
export function useSlow<T>(value: T, ms: number): T {
	const [shown, setShown] = useState(value);
	const newest = useRef(value);
	const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
	newest.current = value;
	useEffect(() => {
		if (Object.is(value, shown) || timer.current) return;
		timer.current = setTimeout(() => {
			timer.current = undefined;
			setShown(newest.current);
		}, ms);
	});
	useEffect(
		() => () => {
			clearTimeout(timer.current);
			timer.current = undefined;
		},
		[],
	);
	return shown;
}
