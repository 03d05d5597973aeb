/** linkOf is the address of a link in a terminal, as it would be opened; null = it is of no kind that may be. */
export function linkOf(text: string): URL | null {
	let url: URL;
	try {
		url = new URL(text);
	} catch {
		return null;
	}
	return url.protocol === "http:" || url.protocol === "https:" ? url : null;
}
