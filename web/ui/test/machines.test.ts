import { describe, expect, it } from "vitest";
import type { Info, Sandbox } from "../src/api/types";
import { happened } from "../src/pages/machine-events";
import { cpuShare, line } from "../src/pages/machine-metrics";
import { actions, found, left, noMemory, shared } from "../src/pages/machines-actions";
import { bodyOf } from "../src/pages/machines-create";
import {
	blocked,
	type Decision,
	group,
	merged,
	offers,
	ruleText,
	sentAt,
	special,
	withoutRule,
	withRule,
} from "../src/pages/network-rules";
import { badHost, hostsOf, howText } from "../src/pages/secrets-form";
import { whyAuto } from "../src/pages/settings-server";
import { rowsCSV } from "../src/pages/usage";
import { hours, type Row, since, wholeDays } from "../src/pages/usage-fold";
import { cell, csv } from "../src/ui/table-csv";
import { allows, lacking } from "../src/ui/table-scope";

const sb = (o: Partial<Sandbox>): Sandbox => ({
	id: "sbx_1",
	state: "running",
	isolation: "user-kernel",
	provider: "gvisor",
	template: "host",
	cpus: 1,
	memory_mb: 512,
	disk_mb: 2048,
	pids_max: 512,
	network: "default",
	root: false,
	persist: false,
	workdir: "/workspace",
	created_at: "2026-11-28T00:00:00Z",
	...o,
});
const info = {
	providers: [
		{ name: "gvisor", isolation: "user-kernel", ok: true, can: ["pause", "snapshot", "fork", "network"] },
		{ name: "process", isolation: "none", ok: true, can: [] },
	],
} as unknown as Info;
const verbs = (s: Sandbox) => actions(s, info).map((a) => a.verb);

describe("actions of a machine", () => {
	it("are those that its state allows", () => {
		expect(verbs(sb({ state: "running" }))).toEqual(["pause", "stop", "snapshot", "fork", "extend", "destroy"]);
		expect(verbs(sb({ state: "paused" }))).toContain("resume");
		expect(verbs(sb({ state: "paused" }))).not.toContain("pause");
		expect(verbs(sb({ state: "failed" }))).toEqual(["start", "snapshot", "fork", "extend", "destroy"]);
		expect(verbs(sb({ state: "creating" }))).toEqual(["destroy"]);
		expect(verbs(sb({ state: "destroyed" }))).toEqual([]);
	});
	it("say why when the provider cannot", () => {
		const a = actions(sb({ provider: "process" }), info).find((x) => x.verb === "pause");
		expect(a?.why).toMatch(/process cannot pause/);
		expect(noMemory(sb({ provider: "process" }), info, "fork")).toMatch(/cannot save memory/);
		expect(noMemory(sb({ state: "stopped" }), info, "snapshot")).toMatch(/no memory/);
		expect(noMemory(sb({}), info, "snapshot")).toBe("");
		expect(actions(sb({ provider: "later" }), info).every((x) => !x.why)).toBe(true);
	});
	it("of several are for those that can", () => {
		const list = [sb({ id: "a" }), sb({ id: "b", state: "stopped" }), sb({ id: "c", provider: "process" })];
		const of = new Map(shared(list, info).map(([v, l]) => [v, l.map((s) => s.id)]));
		expect(of.get("pause")).toEqual(["a"]);
		expect(of.get("start")).toEqual(["b"]);
		expect(of.get("destroy")).toEqual(["a", "b", "c"]);
		expect(of.has("resume")).toBe(false);
	});
	it("find and tell the time left", () => {
		expect(found(sb({ name: "Web" }), " web ")).toBe(true);
		expect(found(sb({ name: "Web" }), "db")).toBe(false);
		expect(left(sb({}), 0, String)).toBe("no end");
		expect(left(sb({ expires_at: "1970-01-01T00:00:05Z" }), 1000, String)).toBe("4000");
		expect(left(sb({ expires_at: "1970-01-01T00:00:05Z" }), 6000, String)).toBe("over");
	});
});

const no = (o: Partial<Decision>): Decision => ({
	n: 1,
	time: "2026-11-28T00:00:00Z",
	times: 1,
	host: "a.example.com",
	port: 443,
	allowed: false,
	why: "no rule allows a.example.com, port 443",
	...o,
});

describe("rules of the network", () => {
	it("are written as the server writes them", () => {
		expect(ruleText({ host: "*.example.net", ports: [443, 8443], methods: ["GET", "POST"], paths: ["/v1/**"] })).toBe(
			"*.example.net:443,8443 GET,POST /v1/**",
		);
		expect(ruleText({ host: "docs.example.com", access: "read" })).toBe("docs.example.com read");
		expect(ruleText({ host: "db", ports: [5432], pinned: true })).toBe("db:5432 pinned");
	});
	it("are offered with the narrowest first and all of the host last", () => {
		expect(offers(no({ method: "GET", path: "/x" })).map((o) => ruleText(o.rule))).toEqual([
			"a.example.com:443 GET /x",
			"a.example.com:443 read",
			"a.example.com:443",
		]);
		expect(offers(no({ method: "POST", path: "/x" })).map((o) => ruleText(o.rule))).toEqual([
			"a.example.com:443 POST /x",
			"a.example.com:443 POST",
			"a.example.com:443",
		]);
		expect(ruleText(offers(no({ method: "GET", path: "/*" }))[0]!.rule)).toBe("a.example.com:443 read");
		expect(
			offers(no({ why: "it carries neither HTTP nor TLS; a rule with `pinned` passes it on as it is" })).map((o) => o.rule.pinned),
		).toEqual([true]);
	});
	it.each([
		"169.254.169.254",
		"10.1.2.3",
		"127.0.0.1",
		"172.31.255.255",
		"192.168.0.1",
		"100.64.0.1",
		"168.63.129.16",
		"0.0.0.0",
		"224.0.0.1",
		"[::1]",
		"::1",
		"::ffff:169.254.169.254",
		"::ffff:a9fe:a9fe",
		"fd00::1",
		"fe80::1%eth0",
		"64:ff9b::a9fe:a9fe",
		"2002:a9fe:a9fe::",
		"localhost",
		"x.localhost.",
		"metadata.google.internal",
		"2852039166",
		"0xa9fea9fe",
		"0xA9.254.169.254",
		"017.0.0.1",
		"::zz",
	])("never offer %s", (host) => {
		expect(special(host)).not.toBe("");
		const d = no({ host, method: "GET", path: "/", why: `no rule allows ${host}, port 80` });
		expect(offers(d)).toEqual([]);
		expect(blocked(d)).toMatch(/whatever a rule says/);
	});
	it.each(["example.com", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "internal.example.com", "100.128.0.1", "::ffff:8.8.8.8"])(
		"know that %s is public",
		(host) => {
			expect(special(host)).toBe("");
		},
	);
	it("do not offer what would not help", () => {
		expect(blocked(no({ why: "a rule denies a.example.com" }))).toMatch(/denies wins/);
		expect(blocked(no({ why: "a.example.com resolves to a private address, which is always refused" }))).toMatch(/always refused/);
		expect(blocked(no({ why: "the certificate of a.example.com is not valid: x" }))).toMatch(/would not help/);
		expect(blocked(no({ why: "of a.example.com only this is allowed: a.example.com read" }))).toBe("");
	});
	it("are added and taken away one by one, without the profile's own", () => {
		const p = { profile: "default" as const, allow: [{ host: "x" }], deny: [{ host: "y" }], usual: [{ host: "z" }] };
		const rule = { host: "a.example.com", ports: [443] };
		const more = withRule(p, rule);
		expect(more).toEqual({ profile: "default", allow: [{ host: "x" }, rule], deny: [{ host: "y" }] });
		expect(withoutRule(more, { ...rule, methods: null })).toEqual({ profile: "default", allow: [{ host: "x" }], deny: [{ host: "y" }] });
		expect(withoutRule(p, rule)).toBeNull();
		expect(withoutRule(p, { host: "y" }, "deny")?.deny).toEqual([]);
	});
});

describe("decisions", () => {
	it("are grouped by host with counts, the newest first", () => {
		const g = group([
			{ sandbox: "a", d: no({ times: 3 }) },
			{ sandbox: "b", d: no({ host: "A.example.com", allowed: true, time: "2026-11-28T00:01:00Z" }) },
			{ sandbox: "a", d: no({ host: "b.example.com", time: "2026-11-28T00:02:00Z" }) },
		]);
		expect(g.map((x) => [x.host, x.allowed, x.refused])).toEqual([
			["b.example.com", 0, 1],
			["a.example.com", 1, 3],
		]);
		expect(g[1]!.rows[0]!.sandbox).toBe("b");
	});
	it("are continued by their numbers, and read anew after a gap or a restart", () => {
		const old = [no({ n: 1 }), no({ n: 2 })];
		expect(merged(old, [no({ n: 2, times: 4 }), no({ n: 3 })])?.map((d) => [d.n, d.times])).toEqual([
			[1, 1],
			[2, 4],
			[3, 1],
		]);
		expect(merged(old, [])).toBeNull();
		expect(merged(old, [no({ n: 5 })])).toBeNull();
		expect(merged(old, [no({ n: 2, host: "other.example.com" })])).toBeNull();
		expect(merged([], [])).toEqual([]);
	});
	it("tell when a secret was last sent", () => {
		const at = sentAt([
			{ sandbox: "a", d: no({ allowed: true, secrets: "forge, search" }) },
			{ sandbox: "a", d: no({ allowed: false, secrets: "other" }) },
		]);
		expect([...at.keys()]).toEqual(["forge", "search"]);
	});
});

describe("CSV", () => {
	it.each([
		["=1+1", `"'=1+1"`],
		["+1", `"'+1"`],
		["-1", `"'-1"`],
		["@sum(a)", `"'@sum(a)"`],
		[" =1", `"' =1"`],
		["\t=1", `"'\t=1"`],
		["\u200b=1", `"'\u200b=1"`],
		['say "a", b', `"say ""a"", b"`],
		["two\nlines", `"two\nlines"`],
		["plain", "plain"],
		["it's", `"it's"`],
	])("writes %j as %j", (v, want) => expect(cell(v)).toBe(want));
	it("leaves numbers as they are, and those that are none out", () => {
		expect(
			csv(
				["a", "b"],
				[
					[-1.5, Number.NaN],
					[undefined, null],
				],
			),
		).toBe("a,b\r\n-1.5,\r\n,\r\n");
	});
});

const row = (o: Partial<Row>): Row => ({
	key: "m",
	runs: 1,
	steps: 2,
	tokens: 116,
	cost_usd: 0.5,
	usage: { input: 10, output: 5, cache_read: 100, cache_write: 1 },
	...o,
});

describe("usage", () => {
	it("begins with a day of UTC", () => {
		expect(since(1, Date.parse("2026-11-28T13:00:00Z"))).toBe("2026-11-28T00:00:00.000Z");
		expect(since(30, Date.parse("2026-11-28T13:00:00Z"))).toBe("2026-10-30T00:00:00.000Z");
	});
	it("by day has the days between", () => {
		const rows = [row({ key: "2026-11-28" }), row({ key: "2026-11-25" })];
		expect(wholeDays(rows).map((s) => [s.key, s.runs])).toEqual([
			["2026-11-25", 1],
			["2026-11-26", 0],
			["2026-11-27", 0],
			["2026-11-28", 1],
		]);
		expect(wholeDays(rows, 2).map((s) => s.key)).toEqual(["2026-11-27", "2026-11-28"]);
		expect(wholeDays([])).toEqual([]);
	});
	it("is written as CSV in whole numbers, formulas disarmed", () => {
		expect(rowsCSV("run", [row({ key: "run_1", title: "=cmd()" })]).split("\r\n")[1]).toBe(`run_1,"'=cmd()",1,2,11,100,5,0.5,no`);
	});
	it("of machines counts while they run", () => {
		expect(hours(sb({ started_at: "1970-01-01T00:00:00Z" }), 7_200_000)).toBe(2);
		expect(hours(sb({ state: "paused", started_at: "1970-01-01T00:00:00Z" }), 7_200_000)).toBe(0);
	});
});

describe("scopes", () => {
	it("are read as the server reads them", () => {
		expect(allows(["admin"], "write")).toBe(true);
		expect(allows(["write"], "read")).toBe(true);
		expect(allows(["read"], "write")).toBe(false);
		expect(allows(["write"], "admin")).toBe(false);
		expect(lacking(["read"], "write")).toMatch(/needs write/);
		expect(lacking(undefined, "write")).toBe("");
	});
});

describe("secrets", () => {
	it("go to hosts that are named", () => {
		expect(hostsOf(" A.example.com, *.example.net\n a.example.com ")).toEqual(["a.example.com", "*.example.net"]);
		expect(badHost("a.example.com")).toBe("");
		expect(badHost("*.example.net")).toBe("");
		for (const bad of ["*", "https://a.example.com", "a.example.com/x", "a b", "a.*.com", "user@host", "host:443"])
			expect(badHost(bad), bad).not.toBe("");
	});
	it("say how they are sent", () => {
		expect(howText({ host: "a", as: "header", key: "X-Api-Key", paths: ["/v1/**"], env: "TOKEN", agents: ["coder"] })).toBe(
			"in the header X-Api-Key; only /v1/**; placeholder in $TOKEN; for agent coder",
		);
		expect(howText({ host: "a", as: "bearer" })).toBe("as Authorization: Bearer; for all machines");
	});
});

describe("providers", () => {
	const of = (def: string, ...list: [string, string, boolean][]) =>
		({ default_provider: def, providers: list.map(([name, isolation, ok]) => ({ name, isolation, ok, can: [] })) }) as unknown as Info;
	it("say why auto chose or passed each", () => {
		const i = of(
			"gvisor",
			["qemu", "microvm-emulated", true],
			["gvisor", "user-kernel", true],
			["docker", "container", true],
			["process", "none", true],
		);
		expect(whyAuto(i, "qemu")).toMatch(/only where it is required/);
		expect(whyAuto(i, "gvisor")).toMatch(/^chosen by auto/);
		expect(whyAuto(i, "docker")).toMatch(/gvisor is stronger/);
		expect(whyAuto(i, "process")).toMatch(/isolates nothing/);
		expect(whyAuto(of("gvisor", ["firecracker", "microvm", false], ["gvisor", "user-kernel", true]), "firecracker")).toMatch(
			/does not work/,
		);
		expect(whyAuto(of("process", ["process", "none", true]), "process")).toBe("chosen by auto: the strongest of this server");
	});
});

describe("a machine", () => {
	it("tells what happened in order, the newest first", () => {
		const m = sb({ deaths: [{ time: "2026-11-28T02:00:00Z", reason: "out of memory" }] });
		const list = happened(
			m,
			[{ n: 1, time: "2026-11-28T01:00:00Z", who: "ana", title: "start" } as never],
			[{ n: 7, time: "2026-11-28T03:00:00Z", who: "key", what: "api.stop-sandbox", result: "200" }],
		);
		expect(list.map((h) => h.what)).toEqual(["api.stop-sandbox", "ended, unasked", "revision 1", "made"]);
	});
	it("measures its CPUs between two looks", () => {
		const at = (time: string, us: number) => ({ time, cpu_used_us: us }) as never;
		expect(cpuShare(at("2026-11-28T00:00:00Z", 0), at("2026-11-28T00:00:02Z", 1_000_000), 2)).toBe(0.25);
		expect(cpuShare(undefined, at("2026-11-28T00:00:02Z", 0), 2)).toBeNull();
		expect(cpuShare(at("2026-11-28T00:00:00Z", 9), at("2026-11-28T00:00:02Z", 0), 2)).toBeNull();
		expect(line([0, null, 1, 0.5], 30, 10)).toBe("M0.0 9.0M20.0 1.0L30.0 5.0");
	});
	it("is asked for with numbers alone", () => {
		expect(bodyOf({ name: " a ", cpus: "0.5", memory: "", ttl: 0 })).toEqual({ name: "a", cpus: 0.5 });
		expect(bodyOf({ cpus: "many", memory: "", ttl: 0 })).toMatch(/CPUs/);
		expect(bodyOf({ cpus: "", memory: "0.5", ttl: 0 })).toMatch(/Memory/);
	});
});
