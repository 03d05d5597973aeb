// Paths of a workspace: text for people, and the exact bytes where they are no text.

import type { Schemas } from "../api/types";

export type Change = Schemas["PathChange"];
export type Entry = Schemas["TreeEntry"];

export interface PathRef {
	path: string;
	path_bytes?: string;
}

/** keyOf names a path among others. */
export const keyOf = (p: PathRef) => (p.path_bytes ? `bytes:${p.path_bytes}` : p.path);

/** exact is what a request gives of a path. */
export const exact = (p: PathRef): PathRef => (p.path_bytes ? { path: p.path, path_bytes: p.path_bytes } : { path: p.path });

/** encoded is a path as a parameter, byte for byte. */
export function encoded(p: PathRef): string {
	if (!p.path_bytes) return encodeURIComponent(p.path);
	return [...atob(p.path_bytes)].map((c) => `%${c.charCodeAt(0).toString(16).padStart(2, "0")}`).join("");
}

const workspace = "/workspace";

/** inside is a path of the workspace as the machine's files are asked for it. */
export function inside(p: PathRef): string {
	return p.path ? `${encodeURIComponent(`${workspace}/`)}${encoded(p)}` : encodeURIComponent(workspace);
}

/** relative is the path of a file of the machine in its workspace. */
export function relative(p: PathRef): PathRef {
	const prefix = `${workspace}/`;
	const path = p.path.startsWith(prefix) ? p.path.slice(prefix.length) : p.path;
	if (!p.path_bytes) return { path };
	const bytes = atob(p.path_bytes);
	return { path, path_bytes: btoa(bytes.startsWith(prefix) ? bytes.slice(prefix.length) : bytes) };
}

/** join is a name in a directory of the workspace. */
export const join = (dir: string, name: string) => (dir ? `${dir}/${name}` : name);
export const dirOf = (path: string) => path.slice(0, Math.max(0, path.lastIndexOf("/")));
export const nameOf = (path: string) => path.slice(path.lastIndexOf("/") + 1);

export const actions: Record<Change["action"], string> = {
	add: "made",
	remove: "removed",
	change: "changed",
	attributes: "attributes changed",
};
