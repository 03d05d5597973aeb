// What is pasted is text of others: lines would be run as they arrive.

// All control characters but tab and the ends of lines.
const control = /(?![\t\n\r])\p{Cc}/gu;

export interface Paste {
	/** text is what may be pasted: without control characters, which could end a bracketed paste. */
	text: string;
	lines: number;
	/** removed control characters */
	removed: number;
}

/** pasteOf looks at what is to be pasted. */
export function pasteOf(raw: string): Paste {
	const text = raw.replace(control, "");
	const lines = text.split(/\r\n|\r|\n/).length;
	return { text, lines, removed: raw.length - text.length };
}

/** asks reports whether a person is to be asked before. A line that ends would be run at once. */
export const asks = (p: Paste): boolean => p.lines > 1 || p.removed > 0;
