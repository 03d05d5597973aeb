// Which items are shown, in the address; what is hidden is counted. Finding hides nothing.

import { type RefObject, useCallback, useMemo } from "react";
import { useParam } from "../ui/url";
import { type Filter, type FilterKind, filterKinds } from "./rows";

/** useFilter reads the filter of the address: kind=commands,files&only=failed,changed. */
export function useFilter(): [Filter, (f: Filter) => void] {
	const [kind, setKind] = useParam("kind");
	const [only, setOnly] = useParam("only");
	const filter = useMemo(() => {
		const kinds = kind.split(",").filter((k): k is FilterKind => (filterKinds as readonly string[]).includes(k));
		const wants = only.split(",");
		return { kinds, failed: wants.includes("failed"), changed: wants.includes("changed") };
	}, [kind, only]);
	const set = useCallback(
		(f: Filter) => {
			setKind(f.kinds.join(","));
			setOnly([f.failed && "failed", f.changed && "changed"].filter(Boolean).join(","));
		},
		[setKind, setOnly],
	);
	return [filter, set];
}

interface Props {
	filter: Filter;
	onFilter(f: Filter): void;
	hidden: number;
	find: boolean;
	findBox: RefObject<HTMLInputElement | null>;
	words: string;
	onWords(words: string): void;
	onFind(open: boolean): void;
	found: number;
	place: number;
	onNext(by: 1 | -1): void;
	asPage: boolean;
	onPage(): void;
	before: boolean;
	/** searching says how far a search of older events is; "" = there is none. */
	searching: string;
	onSearch(): void;
}

export function FilterBar(p: Props) {
	const { filter: f, onFilter } = p;
	const filtered = f.kinds.length > 0 || f.failed || f.changed;
	const toggle = (k: FilterKind) => onFilter({ ...f, kinds: f.kinds.includes(k) ? f.kinds.filter((o) => o !== k) : [...f.kinds, k] });
	return (
		<div className="flex shrink-0 flex-wrap items-center gap-1 border-line border-b px-2 py-1">
			<details className="relative">
				<summary className="button list-none">{f.kinds.length ? f.kinds.join(", ") : "All kinds"}</summary>
				<fieldset className="absolute top-full left-0 z-20 flex flex-col gap-1 rounded-md border border-line bg-ground p-2">
					<legend className="sr-only">Kinds that are shown; none: all</legend>
					{filterKinds.map((k) => (
						<label key={k} className="flex min-h-6 items-center gap-2 whitespace-nowrap">
							<input type="checkbox" checked={f.kinds.includes(k)} onChange={() => toggle(k)} />
							{k}
						</label>
					))}
				</fieldset>
			</details>
			<button
				type="button"
				className={`button ${f.failed ? "border-accent text-accent" : ""}`}
				aria-pressed={f.failed}
				onClick={() => onFilter({ ...f, failed: !f.failed })}
			>
				Failed
			</button>
			<button
				type="button"
				className={`button ${f.changed ? "border-accent text-accent" : ""}`}
				aria-pressed={f.changed}
				onClick={() => onFilter({ ...f, changed: !f.changed })}
			>
				Changed files
			</button>
			{filtered && (
				<>
					<span role="status" className="text-quiet">
						{p.hidden} hidden
					</span>
					<button type="button" className="button plain" onClick={() => onFilter({ kinds: [], failed: false, changed: false })}>
						Show all
					</button>
				</>
			)}
			<span className="flex-1" />
			<button
				type="button"
				className={`button plain ${p.asPage ? "text-accent" : ""}`}
				aria-pressed={p.asPage}
				title="All rows at once: to print, to search with the browser, for screen readers"
				onClick={p.onPage}
			>
				As a page
			</button>
			{p.find ? (
				<search>
					<form
						className="flex min-w-0 flex-wrap items-center gap-1"
						onSubmit={(e) => {
							e.preventDefault();
							p.onNext(1);
						}}
					>
						<input
							ref={p.findBox}
							type="search"
							aria-label="Find in the run"
							placeholder="Find in the run"
							className="field w-36"
							value={p.words}
							onChange={(e) => p.onWords(e.target.value)}
							onKeyDown={(e) => {
								if (e.key === "Escape") p.onFind(false);
								else if (e.key === "Enter" && e.shiftKey) p.onNext(-1);
								else return;
								e.preventDefault();
							}}
						/>
						<span role="status" className="text-quiet">
							{p.words && (p.place ? `${p.place} of ${p.found}` : `${p.found} found`)}
							{p.words && (p.searching || (p.before && " in what is loaded"))}
						</span>
						{p.words && (p.before || p.searching) && (
							<button type="button" className="button" onClick={p.onSearch}>
								{p.searching ? "Stop searching" : "Search what is older"}
							</button>
						)}
					</form>
				</search>
			) : (
				<button type="button" className="button plain" onClick={() => p.onFind(true)}>
					Find <kbd>/</kbd>
				</button>
			)}
		</div>
	);
}
