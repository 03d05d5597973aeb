// The shell: rail, top bar, and the page of the route.

import { useQueryClient } from "@tanstack/react-query";
import {
	Activity,
	BarChart3,
	GitFork,
	Globe,
	Hand,
	KeyRound,
	type LucideIcon,
	MonitorCog,
	Moon,
	Settings,
	Sun,
	SunMoon,
	Wrench,
} from "lucide-react";
import { lazy, Suspense, useEffect, useState } from "react";
import { Link, Route, Switch, useLocation } from "wouter";
import { useApprovals } from "./api/queries";
import { socket, useLive } from "./live";
import { followEvents } from "./live/events";
import { Late } from "./live/late";
import { Upgrade } from "./live/upgrade";
import { LogOutButton } from "./log-out";
import { HomePage } from "./pages/home";
import { Palette } from "./palette";
import { Boundary } from "./ui/boundary";
import { clock } from "./ui/format";
import { Skeleton } from "./ui/skeleton";

const RunPage = lazy(() => import("./run/page"));
const ComparePage = lazy(() => import("./run/compare"));
const ApprovalsPage = lazy(() => import("./pages/approvals"));
const MachinesPage = lazy(() => import("./pages/machines"));
const MachinePage = lazy(() => import("./pages/machine"));
const WorkflowsPage = lazy(() => import("./pages/workflows"));
const SkillsPage = lazy(() => import("./pages/skills"));
const NetworkPage = lazy(() => import("./pages/network"));
const SecretsPage = lazy(() => import("./pages/secrets"));
const UsagePage = lazy(() => import("./pages/usage"));
const SettingsPage = lazy(() => import("./pages/settings"));

const places: [string, string, LucideIcon][] = [
	["/", "Runs", Activity],
	["/approvals", "Approvals", Hand],
	["/vms", "Machines", MonitorCog],
	["/workflows", "Workflows", GitFork],
	["/skills", "Skills", Wrench],
	["/network", "Network", Globe],
	["/secrets", "Secrets", KeyRound],
	["/usage", "Usage", BarChart3],
	["/settings", "Settings", Settings],
];

export function App() {
	const client = useQueryClient();
	const [path] = useLocation();
	useEffect(() => followEvents(client), [client]);
	return (
		<div className="flex h-full flex-col-reverse sm:flex-row">
			<a href="#main" className="sr-only focus:not-sr-only">
				Skip to the content
			</a>
			<Rail />
			<div className="flex min-h-0 min-w-0 flex-1 flex-col">
				<TopBar />
				<Late />
				<main id="main" tabIndex={-1} className="flex min-h-0 min-w-0 flex-1 flex-col overflow-auto outline-none">
					<Boundary key={path.split("/", 2).join("/")}>
						<Suspense fallback={<Skeleton label="Loading the page" />}>
							<Pages />
						</Suspense>
					</Boundary>
				</main>
			</div>
		</div>
	);
}

function Pages() {
	return (
		<Switch>
			<Route path="/" component={HomePage} />
			<Route path="/runs" component={HomePage} />
			<Route path="/runs/:id/compare">{(p) => <ComparePage key={p.id} id={p.id} />}</Route>
			<Route path="/runs/:id/*?">{(p) => <RunPage key={p.id} id={p.id} />}</Route>
			<Route path="/approvals" component={ApprovalsPage} />
			<Route path="/vms" component={MachinesPage} />
			<Route path="/vms/:id/:tab?">{(p) => <MachinePage key={p.id} id={p.id} tab={p.tab ?? "overview"} />}</Route>
			<Route path="/workflows/:name?">{(p) => <WorkflowsPage name={p.name} />}</Route>
			<Route path="/workflow-runs/:id">{(p) => <WorkflowsPage run={p.id} />}</Route>
			<Route path="/skills/:name?">{(p) => <SkillsPage name={p.name} />}</Route>
			<Route path="/network" component={NetworkPage} />
			<Route path="/secrets" component={SecretsPage} />
			<Route path="/usage" component={UsagePage} />
			<Route path="/settings/:part?">{(p) => <SettingsPage part={p.part ?? "models"} />}</Route>
			<Route>
				<div className="p-6">
					<h1 className="text-base font-semibold">There is no such page</h1>
					<p>
						<Link href="/" className="underline">
							Go to the runs
						</Link>
					</p>
				</div>
			</Route>
		</Switch>
	);
}

function Rail() {
	const [path] = useLocation();
	const open = useApprovals().data?.items?.length ?? 0;
	useEffect(() => {
		document.title = open ? `(${open}) skete` : "skete";
	}, [open]);
	return (
		<nav
			aria-label="Places"
			className="flex shrink-0 overflow-x-auto border-line border-t bg-raised sm:w-12 sm:flex-col sm:border-t-0 sm:border-r"
		>
			{places.map(([to, name, Icon]) => {
				const here = to === "/" ? path === "/" || path.startsWith("/runs") : path.startsWith(to);
				return (
					<Link
						key={to}
						href={to}
						title={name}
						aria-current={here ? "page" : undefined}
						className={`relative flex h-11 w-12 shrink-0 items-center justify-center ${here ? "bg-accent-ground text-accent" : "text-quiet hover:text-text"}`}
					>
						<Icon size={18} aria-hidden />
						<span className="sr-only">{name}</span>
						{to === "/approvals" && open > 0 && (
							<span className="absolute top-1 right-1 min-w-4 rounded-full bg-warn px-1 text-center text-[10px] text-ground">
								{open}
								<span className="sr-only"> waiting</span>
							</span>
						)}
					</Link>
				);
			})}
		</nav>
	);
}

/** TopBar: what comes later or changes its width stands where it moves nothing else. */
function TopBar() {
	return (
		<header className="flex h-10 shrink-0 items-center gap-2 border-line border-b px-3">
			<Link href="/" className="flex items-center gap-2 font-semibold">
				<img src="/ui/icon.svg" alt="" width="18" height="18" />
				skete
			</Link>
			<Connection />
			<span className="flex-1" />
			<Upgrade />
			<LogOutButton />
			<Palette />
			<Theme />
		</header>
	);
}

/** Connection says how fresh the page is. It never says how an agent is. */
function Connection() {
	const live = useLive();
	const [, tick] = useState(0);
	useEffect(() => {
		const t = setInterval(() => tick((n) => n + 1), 1000);
		return () => clearInterval(t);
	}, []);
	const late = live.state === "lost" || (live.state === "connecting" && Date.now() - live.since > 1000);
	return (
		<span
			role="status"
			className={`flex h-7 min-w-0 items-center gap-2 whitespace-nowrap ${late ? "text-warn" : "text-quiet"}`}
			data-live={live.state}
		>
			<span className="truncate">{late ? `reconnecting${live.lastAt ? `, last event ${clock(live.lastAt)}` : ""}` : live.state}</span>
			{late && (
				<button type="button" className="button" onClick={() => socket.again()}>
					Retry
				</button>
			)}
		</span>
	);
}

const themes = ["system", "light", "dark", "contrast"] as const;

function Theme() {
	const [theme, setTheme] = useState<string>(() => document.documentElement.dataset.theme ?? "system");
	const next = themes[(themes.indexOf(theme as (typeof themes)[number]) + 1) % themes.length]!;
	const Icon = theme === "light" ? Sun : theme === "dark" ? Moon : SunMoon;
	const change = () => {
		if (next === "system") {
			delete document.documentElement.dataset.theme;
			localStorage.removeItem("skete.theme");
		} else {
			document.documentElement.dataset.theme = next;
			localStorage.setItem("skete.theme", next);
		}
		setTheme(next);
	};
	return (
		<button
			type="button"
			className="button plain icon"
			onClick={change}
			aria-label={`Theme: ${theme}; change to ${next}`}
			title={`Theme: ${theme}`}
		>
			<Icon size={16} aria-hidden />
		</button>
	);
}
