// What has no lines: pictures, and sizes and hashes of what is no text.

import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { send } from "../api/http";
import { bytes } from "../ui/format";
import { visible } from "../ui/text";
import { type Change, type Entry, encoded, inside, type PathRef } from "../undo/paths";
import { historyOf } from "./changes-data";

export const pictureMax = 8 << 20;
const hashMax = 64 << 20;

const types: Record<string, string> = {
	png: "image/png",
	jpg: "image/jpeg",
	jpeg: "image/jpeg",
	gif: "image/gif",
	webp: "image/webp",
	avif: "image/avif",
	bmp: "image/bmp",
	ico: "image/x-icon",
};

/** pictureType is the type of a picture by its name; "" = it is none that is shown. */
export const pictureType = (path: string) => types[path.slice(path.lastIndexOf(".") + 1).toLowerCase()] ?? "";

/** contentOf is where a file's content is; revision 0 = as it is now. */
export function contentOf(sandbox: string, n: number, p: PathRef): string {
	return n ? `${historyOf(sandbox)}/${n}/file?path=${encoded(p)}` : `/v1/sandboxes/${encodeURIComponent(sandbox)}/files?path=${inside(p)}`;
}

interface SideProps {
	sandbox: string;
	n: number;
	path: PathRef;
	entry: Entry;
	word: string;
}

/** Picture shows a file by an address of this page alone: what it holds is never run. */
export function Picture({ sandbox, n, path, entry, word }: SideProps) {
	const [url, setURL] = useState("");
	const [bad, setBad] = useState("");
	const from = contentOf(sandbox, n, path);
	const type = pictureType(path.path);
	useEffect(() => {
		const stop = new AbortController();
		let made = "";
		send(from, { headers: { Accept: "*/*" }, signal: stop.signal })
			.then((res) => res.blob())
			.then((b) => {
				if (stop.signal.aborted) return;
				made = URL.createObjectURL(new Blob([b], { type }));
				setURL(made);
			})
			.catch((err: unknown) => {
				if (!stop.signal.aborted) setBad(err instanceof Error ? err.message : String(err));
			});
		return () => {
			stop.abort();
			if (made) URL.revokeObjectURL(made);
		};
	}, [from, type]);
	return (
		<figure className="flex min-w-0 flex-col gap-1">
			<figcaption className="text-quiet">
				{word}, {bytes(entry.size)}
			</figcaption>
			<div className="flex h-48 items-center justify-center overflow-hidden rounded border border-line bg-sunken">
				{bad && <span className="p-2 text-bad">{visible(bad)}</span>}
				{url && !bad && (
					<img
						src={url}
						alt={`${visible(path.path)}, ${word}`}
						className="max-h-full max-w-full object-contain"
						onError={() => setBad("It is no picture that the browser can show.")}
					/>
				)}
			</div>
		</figure>
	);
}

async function hashOf(from: string): Promise<string> {
	const res = await send(from, { headers: { Accept: "*/*" } });
	const sum = await crypto.subtle.digest("SHA-256", await res.arrayBuffer());
	return [...new Uint8Array(sum)].map((b) => b.toString(16).padStart(2, "0")).join("");
}

function Hash({ sandbox, n, path, entry, word }: SideProps) {
	const sum = useQuery({
		queryKey: ["hash", sandbox, n, path.path, path.path_bytes, n ? 0 : entry.size],
		queryFn: () => hashOf(contentOf(sandbox, n, path)),
		gcTime: 0,
	});
	return (
		<div className="[overflow-wrap:anywhere]">
			{word}: {bytes(entry.size)}, SHA-256{" "}
			<code className="select-all">{sum.data ?? (sum.isError ? visible(sum.error.message) : "…")}</code>
		</div>
	);
}

interface Props {
	sandbox: string;
	file: Change;
	from: number;
	to: number;
}

/** NoLines is what is shown of a file without lines. Its content is only asked for here. */
export function NoLines({ sandbox, file, from, to }: Props) {
	const [hashes, setHashes] = useState(false);
	const sides = [
		{ n: from, entry: file.before, word: "before" },
		{ n: to, entry: file.after, word: "after" },
	].filter((s): s is { n: number; entry: Entry; word: string } => s.entry?.type === "file");
	if (!sides.length) return null;
	const small = sides.every((s) => s.entry.size <= pictureMax);
	if (file.binary && small && pictureType(file.path))
		return (
			<div className="grid gap-2 p-2 sm:grid-cols-2">
				{sides.map((s) => (
					<Picture key={s.word} sandbox={sandbox} path={file} {...s} />
				))}
			</div>
		);
	const can = sides.every((s) => s.entry.size <= hashMax) && !!globalThis.crypto?.subtle;
	return (
		<div className="flex flex-col gap-1 px-2 py-1">
			<span className="text-quiet">
				{file.binary ? "It is no text." : file.large ? "It is too large to show here; `skete diff` shows it." : "No line differs."}
			</span>
			{(file.binary || file.large) && hashes && sides.map((s) => <Hash key={s.word} sandbox={sandbox} path={file} {...s} />)}
			{(file.binary || file.large) && !hashes && can && (
				<button type="button" className="button self-start" onClick={() => setHashes(true)}>
					Show the hashes
				</button>
			)}
		</div>
	);
}
