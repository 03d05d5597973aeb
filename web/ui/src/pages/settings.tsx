// Settings, and what the server is.

import type { ComponentType } from "react";
import { Link } from "wouter";
import { Page } from "../ui/table";
import { Audit } from "./settings-audit";
import { Keys } from "./settings-keys";
import { About, Appearance } from "./settings-look";
import { MCPServers, Models, Plugins, Providers, Templates } from "./settings-server";

const parts: Record<string, [string, ComponentType]> = {
	models: ["Models", Models],
	providers: ["Providers", Providers],
	templates: ["Templates", Templates],
	keys: ["Keys", Keys],
	plugins: ["Plug-ins", Plugins],
	mcp: ["MCP servers", MCPServers],
	audit: ["Audit", Audit],
	appearance: ["Appearance", Appearance],
	about: ["About", About],
};

export default function SettingsPage({ part }: { part: string }) {
	const found = Object.hasOwn(parts, part) ? parts[part] : undefined;
	const Part = found?.[1];
	return (
		<Page title={found ? `Settings: ${found[0]}` : "Settings"}>
			<nav aria-label="Settings" className="flex min-w-0 flex-wrap gap-1">
				{Object.entries(parts).map(([key, [name]]) => (
					<Link
						key={key}
						href={`/settings/${key}`}
						aria-current={key === part ? "page" : undefined}
						className={`button ${key === part ? "border-accent text-accent" : ""}`}
					>
						{name}
					</Link>
				))}
			</nav>
			{Part ? <Part /> : <p>There are no such settings.</p>}
		</Page>
	);
}
