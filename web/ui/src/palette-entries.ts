// What the palette leads to.

import type { Schemas } from "./api/types";
import { clip, visible } from "./ui/text";

export interface Entry {
	/** id is one of a kind. */
	id: string;
	group: string;
	name: string;
	/** also is what it is found by beside its name. */
	also: string;
	to: string;
}

export interface Known {
	runs?: Schemas["Run"][] | null;
	sandboxes?: Schemas["Sandbox"][] | null;
	workflows?: Schemas["Workflow"][] | null;
	skills?: Schemas["Skill"][] | null;
}

const places: [string, string, string][] = [
	["/", "Runs", "home start task"],
	["/approvals", "Approvals", "waiting decisions"],
	["/vms", "Machines", "sandboxes vms"],
	["/workflows", "Workflows", "several agents"],
	["/skills", "Skills", ""],
	["/network", "Network", "egress rules hosts"],
	["/secrets", "Secrets", "keys"],
	["/usage", "Usage", "tokens cost money"],
	["/settings/models", "Settings: models", ""],
	["/settings/providers", "Settings: providers", "isolation"],
	["/settings/templates", "Settings: templates", ""],
	["/settings/keys", "Settings: keys", "api"],
];

const actions: [string, string, string][] = [
	["/", "Start a run", "new task composer"],
	["/?state=interrupted", "Runs that need you", "waiting"],
	["/?state=running", "Runs that are running", ""],
	["/?state=failed", "Runs that failed", "error"],
	["/workflows?new=1", "New workflow", "definition yaml"],
];

const nameMax = 100;

/** entriesOf lists all that can be gone to, what is done first. */
export function entriesOf(known: Known): Entry[] {
	const fixed = (group: string, list: [string, string, string][]) =>
		list.map(([to, name, also]) => ({ id: `${group} ${to} ${name}`, group, name, also, to }));
	const named = (group: string, id: string, name: string, also: string, to: string): Entry => ({
		id: `${group} ${id}`,
		group,
		name: visible(clip(name || id, nameMax)),
		also: `${id} ${also}`,
		to,
	});
	return [
		...fixed("Do", actions),
		...fixed("Go to", places),
		...(known.runs ?? []).map((r) => named("Runs", r.id, r.title ?? "", `${r.state} ${r.agent}`, `/runs/${r.id}`)),
		...(known.sandboxes ?? []).map((s) => named("Machines", s.id, s.name ?? "", s.state, `/vms/${s.id}`)),
		...(known.workflows ?? []).map((w) => named("Workflows", w.name, w.name, "", `/workflows/${encodeURIComponent(w.name)}`)),
		...(known.skills ?? []).map((s) => named("Skills", s.name, s.name, s.description, `/skills/${encodeURIComponent(s.name)}`)),
	];
}

/** score says how well an entry fits what is typed: all words must stand in it; 0 = it does not fit. */
export function score(name: string, also: string, typed: string): number {
	const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
	const inName = name.toLowerCase();
	const all = `${inName} ${also.toLowerCase()}`;
	if (!words.every((w) => all.includes(w))) return 0;
	if (words.length && inName.startsWith(words[0]!)) return 1;
	return words.every((w) => inName.includes(w)) ? 0.8 : 0.4;
}
