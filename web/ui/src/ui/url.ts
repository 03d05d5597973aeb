// What a person can point at is in the address: parameters that are read and written one by one.

import { useCallback } from "react";
import { useLocation, useSearch } from "wouter";

/** useParam reads a parameter of the address; "" = it is not there. push leaves a step for the back button. */
export function useParam(name: string): [string, (value: string, push?: boolean) => void] {
	const search = useSearch();
	const [path, go] = useLocation();
	const value = new URLSearchParams(search).get(name) ?? "";
	const set = useCallback(
		(to: string, push = false) => {
			const q = new URLSearchParams(location.search);
			if (to) q.set(name, to);
			else q.delete(name);
			const s = q.toString();
			go(path + (s ? `?${s}` : ""), { replace: !push });
		},
		[name, path, go],
	);
	return [value, set];
}

/** useNumber is useParam for a number; 0 = it is not there, or is none. */
export function useNumber(name: string): [number, (value: number, push?: boolean) => void] {
	const [text, set] = useParam(name);
	const n = /^\d{1,15}$/.test(text) ? Number(text) : 0;
	return [n, (to, push) => set(to ? String(to) : "", push)];
}
