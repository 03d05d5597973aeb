// Tables as CSV (RFC 4180), for spreadsheets.

export type Cell = string | number | undefined | null;

/** cell writes one value. A text that a spreadsheet would take for a formula gets a ' before it. */
export function cell(v: Cell): string {
	if (v === undefined || v === null) return "";
	if (typeof v === "number") return Number.isFinite(v) ? String(v) : "";
	const text = /^[\s\p{Cf}]*[=+\-@|%\uFF1D\uFF0B\uFF0D\uFF20]|^[\t\r\n]/u.test(v) ? `'${v}` : v;
	return /[",\r\n']|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** csv writes a table with a line of names. */
export function csv(names: string[], rows: Cell[][]): string {
	return [names, ...rows].map((r) => `${r.map(cell).join(",")}\r\n`).join("");
}

/** save lets the browser keep a text as a file. */
export function save(name: string, text: string, type = "text/csv;charset=utf-8"): void {
	const url = URL.createObjectURL(new Blob([text], { type }));
	const a = document.createElement("a");
	a.href = url;
	a.download = name;
	a.click();
	setTimeout(() => URL.revokeObjectURL(url), 0);
}
