// How the page looks and which keys it takes; and what it is made of.

import { useState } from "react";
import { useInfo, useLogin } from "../api/queries";
import { Facts, Scroll } from "../ui/table";

const themes: [string, string][] = [
	["system", "as the system says"],
	["light", "light"],
	["dark", "dark"],
	["contrast", "high contrast"],
];

const themeKey = "skete.theme";
/** keysKey, when it is 1, turns off keys that are single letters. */
const keysKey = "skete.keys.off";

function setTheme(to: string): void {
	if (to === "system") {
		delete document.documentElement.dataset.theme;
		localStorage.removeItem(themeKey);
	} else {
		document.documentElement.dataset.theme = to;
		localStorage.setItem(themeKey, to);
	}
}

export function Appearance() {
	const [theme, choose] = useState(() => document.documentElement.dataset.theme ?? "system");
	const [letters, setLetters] = useState(() => localStorage.getItem(keysKey) !== "1");
	return (
		<div className="flex min-w-0 flex-col gap-4">
			<fieldset className="flex flex-col gap-1">
				<legend className="font-semibold">Theme</legend>
				{themes.map(([value, text]) => (
					<label key={value} className="flex min-h-6 items-center gap-2">
						<input
							type="radio"
							name="theme"
							checked={theme === value}
							onChange={() => {
								setTheme(value);
								choose(value);
							}}
						/>
						{text}
					</label>
				))}
			</fieldset>
			<fieldset className="flex flex-col gap-1">
				<legend className="font-semibold">Keys</legend>
				<label className="flex min-h-6 items-start gap-2">
					<input
						type="checkbox"
						className="mt-1"
						checked={letters}
						onChange={(e) => {
							setLetters(e.target.checked);
							if (e.target.checked) localStorage.removeItem(keysKey);
							else localStorage.setItem(keysKey, "1");
						}}
					/>
					<span>
						Single letters are keys
						<span className="block text-quiet">
							Off: only keys with Ctrl, arrows and the like do something, for speech input and stray key presses.
						</span>
					</span>
				</label>
			</fieldset>
			<p className="text-quiet">These are kept in this browser. Movement follows what your system says of reduced motion.</p>
		</div>
	);
}

// What is linked into the page, with the licence that each states.
const parts: [string, string][] = [
	["@codemirror/*", "MIT"],
	["@dagrejs/dagre", "MIT"],
	["@tanstack/react-query", "MIT"],
	["@tanstack/react-virtual", "MIT"],
	["@xterm/*", "MIT"],
	["cmdk", "MIT"],
	["dompurify", "MPL-2.0 or Apache-2.0"],
	["lucide-react", "ISC"],
	["marked", "MIT"],
	["radix-ui", "MIT"],
	["react, react-dom", "MIT"],
	["uplot", "MIT"],
	["wouter", "Unlicense"],
];

export function About() {
	const info = useInfo().data;
	const login = useLogin().data;
	const mine = document.querySelector<HTMLMetaElement>('meta[name="skete-version"]')?.content ?? "";
	return (
		<div className="flex min-w-0 flex-col gap-4">
			<Facts
				of={[
					["Server", info?.version ?? "not known"],
					["This page", mine.startsWith("SKETE-") || !mine ? "not stamped: it is being developed" : mine],
					["You", login ? `${login.name || login.user}, by ${login.by}` : "not known"],
					["Tenant", login?.tenant ?? "not known"],
					["Scopes", (login?.scopes ?? []).join(", ")],
					["Licence", "Apache License 2.0"],
					[
						"API",
						<a key="docs" href="/docs" className="text-accent underline">
							its documentation
						</a>,
					],
				]}
			/>
			<h2 className="font-semibold">What this page is made with</h2>
			<Scroll label="Licences">
				<table className="table">
					<thead>
						<tr>
							<th scope="col">Package</th>
							<th scope="col">Licence</th>
						</tr>
					</thead>
					<tbody>
						{parts.map(([name, licence]) => (
							<tr key={name}>
								<td>{name}</td>
								<td>{licence}</td>
							</tr>
						))}
					</tbody>
				</table>
			</Scroll>
		</div>
	);
}
