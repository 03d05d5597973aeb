import { useEffect, useState } from "react";

const skeletonMS = 150;

/** Skeleton stands for rows on the first load, if that takes a while. */
export function Skeleton({ label }: { label: string }) {
	const [late, setLate] = useState(false);
	useEffect(() => {
		const t = setTimeout(() => setLate(true), skeletonMS);
		return () => clearTimeout(t);
	}, []);
	if (!late) return null;
	return (
		<div className="flex flex-col gap-2 p-3" role="status" aria-label={label}>
			{[60, 80, 40, 70, 50].map((w) => (
				<div key={w} aria-hidden className="h-5 rounded bg-sunken" style={{ width: `${w}%` }} />
			))}
		</div>
	);
}
