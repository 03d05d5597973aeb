// The editor, which is loaded when a text is first looked at.

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, defaultHighlightStyle, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, type Extension } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
import { useEffect, useRef } from "react";

const theme = EditorView.theme({
	"&": { height: "100%", backgroundColor: "var(--ground)", color: "var(--text)", fontSize: "12px" },
	".cm-scroller": { fontFamily: "var(--font-mono, ui-monospace, monospace)", lineHeight: "1.5" },
	".cm-content": { caretColor: "var(--text)" },
	".cm-cursor": { borderLeftColor: "var(--text)" },
	".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--quiet)", borderRight: "1px solid var(--line)" },
	".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--sunken)" },
	"&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
		backgroundColor: "var(--accent-ground)",
	},
	".cm-panels": { backgroundColor: "var(--raised)", color: "var(--text)", borderColor: "var(--line)" },
	".cm-textfield": { backgroundColor: "var(--ground)", color: "var(--text)" },
	".cm-button": { backgroundImage: "none", backgroundColor: "var(--raised)", color: "var(--text)" },
	".cm-searchMatch": { backgroundColor: "var(--warn-ground)", outline: "1px solid var(--warn)" },
	".cm-specialChar": { color: "var(--bad)" },
	"&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
});

const colours: Record<string, string> = {
	"#708": "var(--pause)",
	"#219": "var(--accent)",
	"#164": "var(--good)",
	"#a11": "var(--bad)",
	"#e40": "var(--warn)",
	"#00f": "var(--accent)",
	"#30a": "var(--accent)",
	"#085": "var(--good)",
	"#167": "var(--accent)",
	"#256": "var(--pause)",
	"#00c": "var(--accent)",
	"#940": "var(--quiet)",
	"#f00": "var(--bad)",
	"#404740": "var(--quiet)",
};

// The default style in the colours of the page, which follow its theme.
const style = HighlightStyle.define(
	defaultHighlightStyle.specs.map((s) => ({ ...s, ...(s.color ? { color: colours[String(s.color)] ?? "var(--text)" } : {}) })),
);

// Each is loaded with the first file that is written in it.
const languages: [RegExp, () => Promise<Extension>][] = [
	[/\.[cm]?jsx?$/i, () => import("@codemirror/lang-javascript").then((m) => m.javascript({ jsx: true }))],
	[/\.[cm]?tsx?$/i, () => import("@codemirror/lang-javascript").then((m) => m.javascript({ jsx: true, typescript: true }))],
	[/\.pyi?$/i, () => import("@codemirror/lang-python").then((m) => m.python())],
	[/\.go$/i, () => import("@codemirror/lang-go").then((m) => m.go())],
];

// Characters that turn the direction of text would show another program than the one that runs.
const special = highlightSpecialChars({ addSpecialChars: /[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g });

interface Props {
	path: string;
	label: string;
	text: string;
	readOnly: boolean;
	onChange(text: () => string): void;
	onSave(): void;
}

export default function Editor({ path, label, text, readOnly, onChange, onSave }: Props) {
	const box = useRef<HTMLDivElement>(null);
	const calls = useRef({ onChange, onSave });
	calls.current = { onChange, onSave };
	useEffect(() => {
		const language = new Compartment();
		let closed = false;
		const view = new EditorView({
			parent: box.current!,
			state: EditorState.create({
				doc: text,
				extensions: [
					lineNumbers(),
					special,
					history(),
					drawSelection(),
					indentOnInput(),
					bracketMatching(),
					highlightActiveLine(),
					highlightSelectionMatches(),
					search(),
					syntaxHighlighting(style),
					theme,
					EditorView.contentAttributes.of({ "aria-label": label }),
					EditorView.lineWrapping,
					EditorState.readOnly.of(readOnly),
					keymap.of([
						{
							key: "Mod-s",
							preventDefault: true,
							run: () => {
								calls.current.onSave();
								return true;
							},
						},
						// Escape, then Tab leaves the editor, as its documentation promises.
						indentWithTab,
						...searchKeymap,
						...historyKeymap,
						...defaultKeymap,
					]),
					EditorView.updateListener.of((u) => {
						if (u.docChanged) calls.current.onChange(() => u.state.sliceDoc());
					}),
					language.of([]),
				],
			}),
		});
		languages
			.find(([name]) => name.test(path))?.[1]()
			.then((l) => closed || view.dispatch({ effects: language.reconfigure(l) }))
			.catch(() => {}); // without colours it is a text all the same
		return () => {
			closed = true;
			view.destroy();
		};
	}, [path, label, text, readOnly]);
	return <div ref={box} className="min-h-40 min-w-0 flex-1 overflow-hidden" />;
}
