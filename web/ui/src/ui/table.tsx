// Tables that scroll inside of a box of their own, so that the page never moves sideways.

import { cloneElement, Fragment, type ReactElement, type ReactNode, useId } from "react";

export interface Column<T> {
	name: string;
	cell(row: T): ReactNode;
	/** number: to the right, so that digits stand beneath each other. */
	number?: boolean;
	/** wide columns take what is left. */
	wide?: boolean;
}

interface Props<T> {
	/** label says what the table is of, for screen readers. */
	label: string;
	columns: Column<T>[];
	rows: T[];
	id(row: T): string;
	/** name of a row, for the label of its check box. */
	name?(row: T): string;
	chosen?: ReadonlySet<string>;
	onChoose?(chosen: Set<string>): void;
	/** below is shown beneath a row, over its whole width. */
	below?(row: T): ReactNode;
	empty?: ReactNode;
}

export function Table<T>({ label, columns, rows, id, name, chosen, onChoose, below, empty }: Props<T>) {
	if (!rows.length && empty) return <div className="text-quiet">{empty}</div>;
	const all = rows.length > 0 && rows.every((r) => chosen?.has(id(r)));
	const toggle = (key: string) => {
		const next = new Set(chosen);
		if (!next.delete(key)) next.add(key);
		onChoose?.(next);
	};
	return (
		<Scroll label={label}>
			<table className="table" aria-label={label}>
				<thead>
					<tr>
						{onChoose && (
							<th scope="col">
								<Check label={`Choose all of ${label}`} on={all} onChange={() => onChoose(all ? new Set() : new Set(rows.map(id)))} />
							</th>
						)}
						{columns.map((c) => (
							<th key={c.name} scope="col" className={c.number ? "!text-right" : ""}>
								{c.name}
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{rows.map((r) => {
						const key = id(r);
						const more = below?.(r);
						return (
							<Fragment key={key}>
								<tr className={chosen?.has(key) ? "bg-accent-ground" : ""}>
									{onChoose && (
										<td>
											<Check label={`Choose ${name?.(r) ?? key}`} on={chosen?.has(key) ?? false} onChange={() => toggle(key)} />
										</td>
									)}
									{columns.map((c) => (
										<td key={c.name} className={`${c.number ? "whitespace-nowrap text-right" : ""} ${c.wide ? "w-full min-w-40" : ""}`}>
											{c.cell(r)}
										</td>
									))}
								</tr>
								{more && (
									<tr>
										<td colSpan={columns.length + (onChoose ? 1 : 0)}>{more}</td>
									</tr>
								)}
							</Fragment>
						);
					})}
				</tbody>
			</table>
		</Scroll>
	);
}

/** Scroll is a box that scrolls sideways, by keys too. It is relative, so that what is hidden but for screen readers stays in it. */
export function Scroll({ label, children }: { label: string; children: ReactNode }) {
	return (
		// biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keys.
		<section aria-label={label} tabIndex={0} className="relative min-w-0 overflow-x-auto">
			{children}
		</section>
	);
}

function Check({ label, on, onChange }: { label: string; on: boolean; onChange(): void }) {
	return (
		<label className="flex min-h-6 min-w-6 items-center justify-center">
			<input type="checkbox" checked={on} onChange={onChange} />
			<span className="sr-only">{label}</span>
		</label>
	);
}

/** Facts are names with their values, one beneath the other. */
export function Facts({ of }: { of: [string, ReactNode][] }) {
	return (
		<dl className="grid grid-cols-[minmax(6rem,max-content)_minmax(0,1fr)] gap-x-4 gap-y-1">
			{of.map(([name, value]) => (
				<Fragment key={name}>
					<dt className="text-quiet">{name}</dt>
					<dd className="min-w-0 break-words">{value}</dd>
				</Fragment>
			))}
		</dl>
	);
}

/** Facets are filters of which one is on, with how many each would show. */
export function Facets({
	label,
	of,
	on,
	onPick,
}: {
	label: string;
	of: [string, ReactNode, number?][];
	on: string;
	onPick(v: string): void;
}) {
	return (
		<fieldset className="flex min-w-0 flex-wrap gap-1">
			<legend className="sr-only">{label}</legend>
			{of.map(([value, text, n]) => (
				<button
					key={value}
					type="button"
					aria-pressed={value === on}
					className={`button ${value === on ? "border-accent text-accent" : ""}`}
					onClick={() => onPick(value)}
				>
					{text}
					{n !== undefined && <span className="text-quiet tabular-nums">{n}</span>}
				</button>
			))}
		</fieldset>
	);
}

/** Page is the frame of a page: its one heading, what can be done, and the rest. */
export function Page({ title, actions, children }: { title: ReactNode; actions?: ReactNode; children: ReactNode }) {
	return (
		<div className="mx-auto flex w-full min-w-0 max-w-7xl flex-col gap-4 p-4">
			<div className="flex min-w-0 flex-wrap items-center gap-2">
				<h1 className="min-w-0 flex-1 break-words text-base font-semibold">{title}</h1>
				{actions}
			</div>
			{children}
		</div>
	);
}

interface FieldProps {
	label: string;
	hint?: ReactNode;
	/** children is the control; the hint describes it. */
	children: ReactElement<{ "aria-describedby"?: string }>;
}

/** Field is a control with its label and, beneath, what is to be known of it. */
export function Field({ label, hint, children }: FieldProps) {
	const id = useId();
	return (
		<div className="flex min-w-0 flex-col gap-1">
			{/* biome-ignore lint/a11y/noLabelWithoutControl: the control is among the children. */}
			<label className="flex min-w-0 flex-col gap-1">
				<span className="font-medium">{label}</span>
				{hint ? cloneElement(children, { "aria-describedby": id }) : children}
			</label>
			{hint && (
				<span id={id} className="text-quiet">
					{hint}
				</span>
			)}
		</div>
	);
}
