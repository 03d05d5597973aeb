// One machine.

import { useQueryClient } from "@tanstack/react-query";
import { lazy, type ReactNode, Suspense, useEffect, useState } from "react";
import { useLocation } from "wouter";
import { useSandbox } from "../api/queries";
import type { Sandbox } from "../api/types";
import { NoPage } from "../ui/problem";
import { Skeleton } from "../ui/skeleton";
import { Isolation, State } from "../ui/state";
import { Safe } from "../ui/text";
import { UndoHost } from "../undo/host";
import { Events } from "./machine-events";
import { Overview } from "./machine-overview";
import { Snapshots } from "./machine-snapshots";
import { useMachines } from "./machines";
import { nameOf, why } from "./machines-actions";
import { Actions, Doing, Machinery, Trouble } from "./machines-do";
import { DecisionLog, PolicyView } from "./network-log";

const panes = {
	terminal: lazy(() => import("../workspace/terminal")),
	files: lazy(() => import("../workspace/files")),
	changes: lazy(() => import("../workspace/changes")),
	preview: lazy(() => import("../workspace/preview")),
};

type Pane = keyof typeof panes;
const isPane = (name: string): name is Pane => name in panes;

const tabs = ["overview", "terminal", "files", "changes", "preview", "network", "snapshots", "events"] as const;
type Tab = (typeof tabs)[number];

export default function MachinePage({ id, tab }: { id: string; tab: string }) {
	const machine = useSandbox(id);
	const [, go] = useLocation();
	const m = machine.data;
	useIdInAddress(m, id, tab);
	if (!m && machine.error) return <NoPage of={machine.error} what="machine" again={() => void machine.refetch()} />;
	if (!m) return <Skeleton label="Loading the machine" />;
	return (
		<Machinery onDestroyed={() => go("/vms")}>
			<div className="flex min-h-0 min-w-0 flex-1 flex-col">
				<Header machine={m} />
				<Tabs machine={m} tab={tabs.find((t) => t === tab) ?? "overview"} />
			</div>
		</Machinery>
	);
}

/** useIdInAddress writes the id where the address has a name: a name may be another's tomorrow. */
function useIdInAddress(m: Sandbox | undefined, given: string, tab: string): void {
	const client = useQueryClient();
	const [, go] = useLocation();
	useEffect(() => {
		if (!m || m.id === given) return;
		client.setQueryData(["sandboxes", m.id], m);
		go(`/vms/${m.id}${tab === "overview" ? "" : `/${tab}`}${location.search}`, { replace: true });
	}, [m, given, tab, client, go]);
}

function Header({ machine: m }: { machine: Sandbox }) {
	return (
		<div className="flex shrink-0 flex-col gap-2 px-4 pt-4">
			<div className="flex min-w-0 flex-wrap items-center gap-x-3 gap-y-2">
				<h1 className="min-w-0 break-all text-base font-semibold">
					<Safe>{nameOf(m)}</Safe>
				</h1>
				<State of={m.state} />
				<Isolation of={m.isolation} />
				<Doing id={m.id} />
				<span className="flex-1" />
				<Actions of={m} />
			</div>
			{why(m) && (
				<p className="break-words text-quiet">
					<Safe>{why(m)}</Safe>
				</p>
			)}
			<Trouble id={m.id} />
		</div>
	);
}

/** Tabs keep what was opened, so that a terminal goes on while another tab is looked at. */
function Tabs({ machine: m, tab }: { machine: Sandbox; tab: Tab }) {
	const [, go] = useLocation();
	const [opened, setOpened] = useState<ReadonlySet<Pane>>(new Set());
	if (isPane(tab) && !opened.has(tab)) setOpened(new Set([...opened, tab]));
	const pick = (t: Tab) => go(`/vms/${m.id}${t === "overview" ? "" : `/${t}`}`);
	const keys = (e: React.KeyboardEvent) => {
		const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
		if (!step) return;
		e.preventDefault();
		const to = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length]!;
		pick(to);
		document.getElementById(`vm-tab-${to}`)?.focus();
	};
	return (
		<>
			<div
				role="tablist"
				aria-label="Of this machine"
				className="mt-2 flex shrink-0 gap-1 overflow-x-auto border-line border-b px-4"
				onKeyDown={keys}
			>
				{tabs.map((t) => (
					<button
						key={t}
						type="button"
						role="tab"
						id={`vm-tab-${t}`}
						aria-selected={t === tab}
						aria-controls={`vm-pane-${t}`}
						tabIndex={t === tab ? 0 : -1}
						className={`min-h-8 shrink-0 px-2 capitalize ${t === tab ? "border-accent border-b-2 text-text" : "text-quiet"}`}
						onClick={() => pick(t)}
					>
						{t}
					</button>
				))}
			</div>
			<UndoHost sandbox={m.id} past={false} />
			{(Object.keys(panes) as Pane[])
				.filter((p) => opened.has(p))
				.map((p) => {
					const View = panes[p];
					return (
						<Panel key={p} of={p} shown={p === tab} full>
							<Suspense fallback={null}>
								<View sandbox={m.id} run={m.run ?? ""} past={false} hidden={p !== tab} />
							</Suspense>
						</Panel>
					);
				})}
			{!isPane(tab) && (
				<Panel of={tab} shown>
					<Plain machine={m} tab={tab} />
				</Panel>
			)}
		</>
	);
}

function Panel({ of, shown, full, children }: { of: Tab; shown: boolean; full?: boolean; children: ReactNode }) {
	return (
		<div
			role="tabpanel"
			id={`vm-pane-${of}`}
			aria-labelledby={`vm-tab-${of}`}
			hidden={!shown}
			// biome-ignore lint/a11y/noNoninteractiveTabindex: a panel that scrolls must be reachable by keys.
			tabIndex={0}
			className={shown ? `flex min-h-0 min-w-0 flex-1 flex-col ${full ? "min-h-72" : "gap-4 overflow-auto p-4"}` : "hidden"}
		>
			{children}
		</div>
	);
}

function Plain({ machine: m, tab }: { machine: Sandbox; tab: Tab }) {
	const all = useMachines().data?.items ?? [];
	switch (tab) {
		case "network":
			return (
				<>
					<PolicyView machine={m} />
					<DecisionLog machines={[m]} one />
				</>
			);
		case "snapshots":
			return <Snapshots machine={m} all={all} />;
		case "events":
			return <Events machine={m} />;
		default:
			return <Overview machine={m} />;
	}
}
