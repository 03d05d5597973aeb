/** lastLine is the last line of a text that says something. */
export function lastLine(s: string): string {
	const end = s.trimEnd();
	return end.slice(end.lastIndexOf("\n") + 1);
}
