// The palette itself; loaded when it is first opened.

import { useQuery } from "@tanstack/react-query";
import { Command } from "cmdk";
import { useLocation } from "wouter";
import { get } from "./api/http";
import { type Page, useRuns, useSandboxes } from "./api/queries";
import type { Schemas } from "./api/types";
import { type Entry, entriesOf, score } from "./palette-entries";
import { Dialog } from "./ui/dialog";

export function PaletteBox({ onClose }: { onClose(): void }) {
	const runs = useRuns();
	const sandboxes = useSandboxes();
	const workflows = useQuery({ queryKey: ["workflows", "list"], queryFn: () => get<Page<Schemas["Workflow"]>>("/v1/workflows") });
	const skills = useQuery({ queryKey: ["skills", "list"], queryFn: () => get<Page<Schemas["Skill"]>>("/v1/skills") });
	const [, go] = useLocation();
	const entries = entriesOf({
		runs: runs.data?.items,
		sandboxes: sandboxes.data?.items,
		workflows: workflows.data?.items,
		skills: skills.data?.items,
	});
	const groups = new Map<string, Entry[]>();
	for (const e of entries) groups.set(e.group, [...(groups.get(e.group) ?? []), e]);
	return (
		<Dialog open onClose={onClose} title="Go to" text="Type a part of a name; arrows choose, Enter goes there.">
			<Command
				label="Go to"
				loop
				filter={(_, typed, words) => score(words?.[0] ?? "", words?.[1] ?? "", typed)}
				className="flex min-h-0 flex-col gap-2"
			>
				<Command.Input data-first aria-label="Search" className="field w-full" placeholder="Run, machine, workflow, skill, page" />
				<Command.List className="max-h-[60dvh] overflow-auto">
					<Command.Empty className="p-2 text-quiet">
						Nothing here has such a name. Runs older than the newest 50 are not searched.
					</Command.Empty>
					{[...groups].map(([group, list]) => (
						<Command.Group
							key={group}
							heading={group}
							className="[&_[cmdk-group-heading]]:px-2 [&_[cmdk-group-heading]]:pt-2 [&_[cmdk-group-heading]]:text-quiet"
						>
							{list.map((e) => (
								<Command.Item
									key={e.id}
									value={e.id}
									keywords={[e.name, e.also]}
									onSelect={() => {
										onClose();
										go(e.to);
									}}
									className="flex min-h-7 cursor-pointer items-center rounded px-2 break-words aria-selected:bg-accent-ground aria-selected:text-accent"
								>
									{e.name}
								</Command.Item>
							))}
						</Command.Group>
					))}
				</Command.List>
			</Command>
		</Dialog>
	);
}
