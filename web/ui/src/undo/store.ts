// Which way back a person asks for. Any part of a screen can ask; the host on it shows the plan.

import { useSyncExternalStore } from "react";
import { useLogin } from "../api/queries";
import type { Schemas } from "../api/types";

export type Request = Schemas["PlanChange"];
export type Plan = Schemas["ChangePlan"];
export type Applied = Schemas["Applied"];
export type Choice = Schemas["RevertChoice"];

export interface Asked {
	sandbox: string;
	request: Request;
}

let asked: Asked | null = null;
const listeners = new Set<() => void>();

function set(to: Asked | null): void {
	asked = to;
	for (const on of listeners) on();
}

/** askWayBack shows what a way back would do. Nothing is done before a person agrees to it. */
export const askWayBack = (sandbox: string, request: Request) => set({ sandbox, request });
export const endWayBack = () => set(null);

function watch(on: () => void): () => void {
	listeners.add(on);
	return () => listeners.delete(on);
}

export function useAsked(): Asked | null {
	return useSyncExternalStore(watch, () => asked);
}

export const onlyLooks = "You may look here but not change anything: the key that you logged in with lacks the right “write”.";
export const onlyPast = "You look at the past: nothing is changed from here.";

/** useMay reports whether the login may change something. The server decides; this is for the looks. */
export function useMay(): boolean {
	const scopes = useLogin().data?.scopes;
	return !scopes || scopes.some((s) => s === "write" || s === "admin");
}
