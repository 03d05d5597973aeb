// The files of a machine as they are now, or as they were in a revision.

import { type QueryFunctionContext, useQueries } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { get, look, query, send } from "../api/http";
import type { Page } from "../api/queries";
import type { Schemas } from "../api/types";
import { encoded, inside, keyOf, nameOf, type PathRef, relative } from "../undo/paths";
import { freshMS, historyOf } from "./changes-data";

export type FileInfo = Schemas["File"];

/** Node is what is at a path of the tree. */
export interface Node extends PathRef {
	name: string;
	type: FileInfo["type"];
	size: number;
	target?: string;
}

export interface Listing {
	nodes: Node[];
	/** cut: there is more than is listed. */
	cut: boolean;
}

const pageSize = 2000;

export const filesOf = (sandbox: string) => `/v1/sandboxes/${encodeURIComponent(sandbox)}/files`;

const order = (a: Node, b: Node) =>
	Number(b.type === "directory") - Number(a.type === "directory") || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);

/** listNow lists a directory as it is now. Only the first time, which a person asked for, it may wake the machine. */
async function listNow(sandbox: string, dir: PathRef, signal: AbortSignal, again: boolean): Promise<Listing> {
	const page = await (again ? look : get)<Page<FileInfo>>(`${filesOf(sandbox)}/list?path=${inside(dir)}&page_size=${pageSize}`, signal);
	const nodes = (page.items ?? []).map((f): Node => ({ ...relative(f), name: f.name, type: f.type, size: f.size, target: f.target }));
	return { nodes: nodes.sort(order), cut: !!page.next_page_token };
}

const pagesMax = 5; // more names than that are no help

/** listAt lists a directory of a revision. */
async function listAt(sandbox: string, n: number, dir: PathRef, signal: AbortSignal): Promise<Listing> {
	const path = dir.path ? `&path=${encoded(dir)}` : "";
	const nodes: Node[] = [];
	let token: string | undefined;
	for (let i = 0; i < pagesMax && (!i || token); i++) {
		const at = `${historyOf(sandbox)}/${n}/list${query({ page_size: 1000, page_token: token })}${path}`;
		const page = await get<Schemas["TreePage"]>(at, signal);
		for (const e of page.items ?? [])
			nodes.push({ path: e.path, path_bytes: e.path_bytes, name: nameOf(e.path), type: e.type, size: e.size, target: e.target });
		token = page.next_page_token;
	}
	return { nodes: nodes.sort(order), cut: !!token };
}

/** useListings lists directories that are open; n 0 = as they are now. */
export function useListings(sandbox: string, n: number, dirs: PathRef[], hidden: boolean, fresh: boolean) {
	return useQueries({
		queries: dirs.map((dir) => ({
			queryKey: ["history", sandbox, "files", n, keyOf(dir)],
			queryFn: ({ signal, client, queryKey }: QueryFunctionContext) =>
				n ? listAt(sandbox, n, dir, signal) : listNow(sandbox, dir, signal, client.getQueryData(queryKey) !== undefined),
			enabled: !hidden,
			staleTime: n ? Number.POSITIVE_INFINITY : 0,
			refetchInterval: !n && fresh ? freshMS : (false as const),
		})),
	});
}

export interface TreeRow {
	node: Node;
	depth: number;
	/** open of a directory; what is in it may not be known yet. */
	open: boolean;
	state: "" | "asking" | "cut" | "empty" | "failed";
	error?: unknown;
}

export interface DirState {
	data?: Listing;
	error: unknown;
}

/** treeRows are the rows of a tree whose open directories are listed. */
export function treeRows(dirs: ReadonlyMap<string, DirState>, open: ReadonlyMap<string, PathRef>): TreeRow[] {
	const rows: TreeRow[] = [];
	const walk = (key: string, depth: number) => {
		for (const node of dirs.get(key)?.data?.nodes ?? []) {
			const k = keyOf(node);
			const isOpen = node.type === "directory" && open.has(k);
			const of = isOpen ? dirs.get(k) : undefined;
			const state = !isOpen ? "" : of?.error ? "failed" : !of?.data ? "asking" : of.data.cut ? "cut" : of.data.nodes.length ? "" : "empty";
			rows.push({ node, depth, open: isOpen, state, error: of?.error });
			if (isOpen) walk(k, depth + 1);
		}
	};
	walk("", 0);
	return rows;
}

const attendedMS = 5 * 60_000;
const signs = ["pointerdown", "pointermove", "keydown", "focus"] as const;

/** useAttended reports whether a person is at the page. To ask a machine keeps it from being paused for ever. */
export function useAttended(hidden: boolean): boolean {
	const [attended, setAttended] = useState(true);
	useEffect(() => {
		if (hidden) return;
		let timer: ReturnType<typeof setTimeout> | undefined;
		const seen = () => {
			setAttended(true);
			clearTimeout(timer);
			timer = setTimeout(() => setAttended(false), attendedMS);
		};
		seen();
		for (const s of signs) addEventListener(s, seen, { passive: true, capture: true });
		return () => {
			clearTimeout(timer);
			for (const s of signs) removeEventListener(s, seen, { capture: true });
		};
	}, [hidden]);
	return attended;
}

export const textMax = 1 << 20;

/** Content is that of a file, read once. */
export interface Content {
	text: string;
	/** etag is what a write expects to be there still. */
	etag: string;
	size: number;
	/** why it is no text that is shown; "" = it is one. */
	why: string;
}

/** begin reads so many bytes at most of an answer. */
async function begin(res: Response, most: number): Promise<Uint8Array> {
	const parts: Uint8Array[] = [];
	let size = 0;
	const reader = res.body?.getReader();
	while (reader && size < most) {
		const { done, value } = await reader.read();
		if (done) break;
		parts.push(value);
		size += value.length;
	}
	await reader?.cancel();
	const data = new Uint8Array(size);
	let at = 0;
	for (const p of parts) {
		data.set(p, at);
		at += p.length;
	}
	return data;
}

/** readText reads a file that may be a text. */
export async function readText(sandbox: string, n: number, p: PathRef, size: number, signal?: AbortSignal): Promise<Content> {
	if (size > textMax) return { text: "", etag: "", size, why: "It is too large to show here: download it." };
	const url = n ? `${historyOf(sandbox)}/${n}/file?path=${encoded(p)}` : `${filesOf(sandbox)}?path=${inside(p)}&hash=true`;
	const res = await send(url, { headers: { Accept: "*/*" }, signal });
	const data = await begin(res, textMax + 1);
	const etag = res.headers.get("ETag") ?? "";
	if (data.length > textMax) return { text: "", etag, size: data.length, why: "It is too large to show here: download it." };
	try {
		if (data.includes(0)) throw new TypeError("NUL");
		return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data), etag, size: data.length, why: "" };
	} catch {
		return { text: "", etag, size: data.length, why: "It is no text." };
	}
}

/** write saves a file; etag = only over that content, "absent" = only a new file, "" = over anything. It returns the new etag. */
export async function write(sandbox: string, p: PathRef, body: Blob, etag: string): Promise<string> {
	const headers: Record<string, string> = { "Content-Type": "application/octet-stream" };
	if (etag === "absent") headers["If-None-Match"] = "*";
	else if (etag) headers["If-Match"] = etag;
	const res = await send(`${filesOf(sandbox)}?path=${inside(p)}`, { method: "PUT", body, headers });
	await res.body?.cancel();
	return res.headers.get("ETag") ?? "";
}
