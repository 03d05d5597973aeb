import { useState } from "react";

/** Copy puts a text on the clipboard, and says that it did. */
export function Copy({ text, word }: { text: string; word: string }) {
	const [said, setSaid] = useState("");
	const copy = async () => {
		try {
			await navigator.clipboard.writeText(text);
			setSaid("Copied");
		} catch {
			setSaid("Not copied: select the address instead");
		}
	};
	return (
		<button type="button" className="button" onClick={() => void copy()}>
			<span aria-live="polite">{said || word}</span>
		</button>
	);
}
