// Numbers and times as people read them.

export function duration(ms: number): string {
	if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
	const s = ms / 1000;
	if (s < 10) return `${s.toFixed(1)} s`;
	if (s < 60) return `${Math.round(s)} s`;
	const m = Math.floor(s / 60);
	if (m < 60) return `${m} min ${Math.floor(s % 60)} s`;
	const h = Math.floor(m / 60);
	return h < 48 ? `${h} h ${m % 60} min` : `${Math.floor(h / 24)} days`;
}

export function bytes(n: number): string {
	const units = ["B", "KB", "MB", "GB", "TB"];
	let i = 0;
	let v = n;
	while (v >= 1000 && i < units.length - 1) {
		v /= 1000;
		i++;
	}
	return `${i && v < 10 ? v.toFixed(1) : Math.round(v)} ${units[i]}`;
}

export const money = (usd: number) => `$${usd.toFixed(usd !== 0 && usd < 0.1 ? 4 : 2)}`;

export function count(n: number): string {
	if (n < 10_000) return String(n);
	return n < 1_000_000 ? `${(n / 1000).toFixed(n < 100_000 ? 1 : 0)} k` : `${(n / 1_000_000).toFixed(1)} M`;
}

/** clock is a time of day, with the date when that is another one. */
export function clock(at: string | number, now = Date.now()): string {
	const t = new Date(at);
	const time = t.toLocaleTimeString([], { hour12: false });
	return t.toDateString() === new Date(now).toDateString() ? time : `${t.toLocaleDateString()} ${time}`;
}

export function ago(at: string | number, now = Date.now()): string {
	const s = Math.max(0, (now - new Date(at).getTime()) / 1000);
	if (s < 10) return "just now";
	if (s < 60) return `${Math.floor(s)} s ago`;
	if (s < 3600) return `${Math.floor(s / 60)} min ago`;
	return s < 172_800 ? `${Math.floor(s / 3600)} h ago` : `${Math.floor(s / 86_400)} days ago`;
}

export const plural = (n: number, one: string, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;
