// Skills that agents have.

import { useQueries, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { get } from "../api/http";
import type { Page } from "../api/queries";
import type { Schemas } from "../api/types";
import { ProblemBox } from "../ui/problem";
import { clip, Safe } from "../ui/text";
import { SkillView, Trust } from "./skills-detail";
import { InstallDialog } from "./skills-install";

type Skill = Schemas["Skill"];

export default function SkillsPage({ name }: { name?: string }) {
	return name ? <SkillView key={name} name={decodeURIComponent(name)} /> : <Overview />;
}

function Overview() {
	const list = useQuery({ queryKey: ["skills", "list"], queryFn: () => get<Page<Skill>>("/v1/skills") });
	const [installing, setInstalling] = useState(false);
	return (
		<div className="mx-auto flex w-full max-w-6xl flex-col gap-3 p-4">
			<div className="flex flex-wrap items-center gap-2">
				<h1 className="text-base font-semibold">Skills</h1>
				<span className="flex-1" />
				<button type="button" className="button main" onClick={() => setInstalling(true)}>
					Install
				</button>
			</div>
			{list.error && <ProblemBox of={list.error} again={() => void list.refetch()} />}
			{list.data && <Table items={list.data.items ?? []} />}
			{installing && <InstallDialog onClose={() => setInstalling(false)} />}
		</div>
	);
}

/** warningsMax: of so many skills the warnings are asked for, which lists do not have. */
const warningsMax = 30;

function Table({ items }: { items: Skill[] }) {
	const whole = useQueries({
		queries: items.slice(0, warningsMax).map((s) => ({
			queryKey: ["skills", "one", s.name, ""],
			queryFn: () => get<Skill>(`/v1/skills/${encodeURIComponent(s.name)}`),
			staleTime: 300_000,
		})),
	});
	if (!items.length)
		return (
			<p className="text-quiet">
				There are none. Install one here, or <code>skete skill install provided:data-report</code>.
			</p>
		);
	return (
		// biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys.
		<section className="relative overflow-x-auto" aria-label="Table of skills" tabIndex={0}>
			<table className="table">
				<thead>
					<tr>
						{["Name", "Source", "Version", "Warnings", "Trust", "Agents"].map((h) => (
							<th key={h} scope="col">
								{h}
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{items.map((s, i) => (
						<Row key={s.name} skill={s} warnings={whole[i]?.data ? (whole[i].data.warnings?.length ?? 0) : undefined} />
					))}
				</tbody>
			</table>
		</section>
	);
}

function Row({ skill: s, warnings }: { skill: Skill; warnings?: number }) {
	const current = s.versions?.find((v) => v.version === s.version);
	return (
		<tr>
			<td className="w-full min-w-40">
				<Link href={`/skills/${encodeURIComponent(s.name)}`} className="text-accent underline-offset-2 hover:underline">
					<Safe>{s.name}</Safe>
				</Link>
				<span className="block break-words text-quiet">
					<Safe>{clip(s.description, 200)}</Safe>
				</span>
			</td>
			<td className="min-w-24 break-words">
				<Safe>{current?.from ?? ""}</Safe>
			</td>
			<td className="whitespace-nowrap">
				<code title={s.version}>{s.version.slice(0, 12)}</code>
				{(s.versions?.length ?? 0) > 1 && <span className="block text-quiet">of {s.versions?.length}</span>}
			</td>
			<td className={warnings ? "text-warn" : ""}>{warnings === undefined ? "" : warnings || "none"}</td>
			<td>
				<Trust on={s.trusted} />
			</td>
			<td>
				<Safe>{s.agents?.length ? s.agents.join(", ") : "all"}</Safe>
			</td>
		</tr>
	);
}
