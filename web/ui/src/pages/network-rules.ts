// Rules of the network in words, which of them would let a refused request pass, and what no
// rule can allow.

import type { Schemas } from "../api/types";

export type Decision = Schemas["NetworkDecision"];
export type Rule = Schemas["NetworkRule"];
export type Policy = Schemas["NetworkPolicy"];

/** ruleText writes a rule as the server does. */
export function ruleText(r: Rule): string {
	let s = r.host;
	if (r.ports?.length) s += `:${r.ports.join(",")}`;
	if (r.access) s += ` ${r.access}`;
	for (const list of [r.methods, r.paths]) if (list?.length) s += ` ${list.join(",")}`;
	return r.pinned ? `${s} pinned` : s;
}

export interface Offer {
	rule: Rule;
	/** words say what the rule would allow. */
	words: string;
}

const reading = ["GET", "HEAD", "OPTIONS"];

/** offers are rules that would let a request pass, the narrowest first; none where blocked says why. */
export function offers(d: Decision): Offer[] {
	if (d.allowed || blocked(d)) return [];
	const at = { host: d.host, ports: [d.port] };
	const where = `${d.host}, port ${d.port}`;
	if (needsPin(d))
		return [{ rule: { ...at, pinned: true }, words: `everything to ${where}, passed on as it is: nothing is known of what is in it` }];
	const list: Offer[] = [];
	if (d.method && d.path?.startsWith("/") && !/[*?#]/.test(d.path))
		list.push({ rule: { ...at, methods: [d.method], paths: [d.path] }, words: `${d.method} of this path alone` });
	if (!d.method || reading.includes(d.method))
		list.push({ rule: { ...at, access: "read" }, words: `reading from ${where}: GET, HEAD, OPTIONS, and what git fetches with` });
	if (d.method && !reading.includes(d.method))
		list.push({ rule: { ...at, methods: [d.method] }, words: `${d.method} to every path of ${where}` });
	list.push({ rule: at, words: `everything to ${where}` });
	return list;
}

const needsPin = (d: Decision) => /\bneither HTTP nor TLS\b/.test(d.why ?? "");

/** blocked says why no rule would help; "" = one would. */
export function blocked(d: Decision): string {
	if (d.allowed) return "";
	const what = special(d.host);
	if (what) return `${d.host} is ${what}: nothing is sent there, whatever a rule says.`;
	const why = d.why ?? "";
	if (/always refused/.test(why)) return `${why}.`;
	if (why.startsWith("a rule denies")) return "A rule of this machine denies it, and what denies wins: take that rule away first.";
	if (/TLS without the name/.test(why)) return "It does not say which host it wants, so that no rule can be about it.";
	if (why.startsWith("no rule allows") || /^of .* only this is allowed/.test(why) || needsPin(d)) return "";
	return "A rule would not help: it was refused for another reason.";
}

// The same as in the server, which refuses them in any case; here they decide what is offered.
const ranges4: [string, number, string][] = [
	["0.0.0.0", 8, "an unspecified address"],
	["10.0.0.0", 8, "a private address"],
	["100.64.0.0", 10, "a private address of a carrier"],
	["127.0.0.0", 8, "an address of the host itself"],
	["168.63.129.16", 32, "an address of a cloud's own services"],
	["169.254.0.0", 16, "a link-local address, where metadata of clouds is"],
	["172.16.0.0", 12, "a private address"],
	["192.0.0.0", 24, "a special address"],
	["192.168.0.0", 16, "a private address"],
	["198.18.0.0", 15, "a special address"],
	["224.0.0.0", 4, "a multicast address"],
	["240.0.0.0", 4, "a special address"],
];

const ranges6: [string, number, string][] = [
	["64:ff9b::", 96, "an address that stands for one of IPv4"],
	["64:ff9b:1::", 48, "an address that stands for one of IPv4"],
	["100::", 64, "a special address"],
	["2001::", 32, "an address that stands for one of IPv4"],
	["2002::", 16, "an address that stands for one of IPv4"],
	["fc00::", 7, "a private address"],
	["fe80::", 10, "a link-local address"],
	["fec0::", 10, "a private address"],
	["ff00::", 8, "a multicast address"],
	["::", 96, "a special address"],
];

/** special says what a host is that nothing may be sent to; "" = a public name or address. */
export function special(host: string): string {
	const h = host
		.toLowerCase()
		.replace(/^\[|\]$/g, "")
		.replace(/\.$/, "");
	if (/(^|\.)(localhost|internal|local|lan|home\.arpa)$/.test(h)) return "a name of private networks";
	const v4 = parse4(h);
	if (v4 !== null) return find4(v4);
	if (h.includes(":")) return of6(h.replace(/%.*$/, ""));
	if (/^(0x[0-9a-f]*|\d+)(\.(0x[0-9a-f]*|\d+))*$/.test(h)) return "an address that is written in an odd way";
	return "";
}

function find4(a: number): string {
	return ranges4.find(([net, bits]) => a >>> (32 - bits) === parse4(net)! >>> (32 - bits))?.[2] ?? "";
}

function of6(h: string): string {
	const a = parse6(h);
	if (a === null) return "no address";
	if (a >> 32n === 0xffffn) return find4(Number(a & 0xffffffffn));
	return ranges6.find(([net, bits]) => a >> BigInt(128 - bits) === parse6(net)! >> BigInt(128 - bits))?.[2] ?? "";
}

function parse4(h: string): number | null {
	const parts = h.split(".");
	if (parts.length !== 4 || !parts.every((p) => /^(0|[1-9]\d{0,2})$/.test(p) && Number(p) < 256)) return null;
	return parts.reduce((n, p) => n * 256 + Number(p), 0);
}

function parse6(h: string): bigint | null {
	const tail = /:(\d+\.\d+\.\d+\.\d+)$/.exec(h)?.[1];
	let text = h;
	if (tail) {
		const v4 = parse4(tail);
		if (v4 === null) return null;
		text = `${h.slice(0, -tail.length)}${(v4 >>> 16).toString(16)}:${(v4 & 0xffff).toString(16)}`;
	}
	const halves = text.split("::");
	if (halves.length > 2) return null;
	const [left, right] = halves.map((s) => (s ? s.split(":") : []));
	const groups = right ? [...left!, ...Array<string>(Math.max(0, 8 - left!.length - right.length)).fill("0"), ...right] : left!;
	if (groups.length !== 8 || !groups.every((g) => /^[0-9a-f]{1,4}$/.test(g))) return null;
	return groups.reduce((n, g) => (n << 16n) | BigInt(Number.parseInt(g, 16)), 0n);
}

const same = (a: Rule, b: Rule) => JSON.stringify(plain(a)) === JSON.stringify(plain(b));
const plain = (r: Rule) => [r.host, r.ports ?? [], r.access ?? "", r.methods ?? [], r.paths ?? [], !!r.pinned];

/** withRule is a policy with exactly one more rule that allows. */
export function withRule(p: Policy, rule: Rule): Policy {
	return { profile: p.profile, allow: [...(p.allow ?? []), rule], deny: p.deny ?? [] };
}

/** withoutRule takes one rule away, the last that is the same; null = it is not there. */
export function withoutRule(p: Policy, rule: Rule, list: "allow" | "deny" = "allow"): Policy | null {
	const at = (p[list] ?? []).map((r) => same(r, rule)).lastIndexOf(true);
	if (at < 0) return null;
	return { profile: p.profile, allow: p.allow ?? [], deny: p.deny ?? [], [list]: p[list]!.filter((_, i) => i !== at) };
}

/** Seen is a decision and the machine that it is about. */
export interface Seen {
	sandbox: string;
	d: Decision;
}

export interface Group {
	host: string;
	allowed: number;
	refused: number;
	/** last is when the newest was made, ms */
	last: number;
	rows: Seen[];
}

/** group puts decisions together by host, those that were made last first. */
export function group(seen: Seen[]): Group[] {
	const groups = new Map<string, Group>();
	for (const s of seen) {
		const host = s.d.host.toLowerCase();
		let g = groups.get(host);
		if (!g) {
			g = { host, allowed: 0, refused: 0, last: 0, rows: [] };
			groups.set(host, g);
		}
		if (s.d.allowed) g.allowed += s.d.times;
		else g.refused += s.d.times;
		g.last = Math.max(g.last, Date.parse(s.d.time));
		g.rows.push(s);
	}
	for (const g of groups.values()) g.rows.sort((a, b) => Date.parse(b.d.time) - Date.parse(a.d.time) || b.d.n - a.d.n);
	return [...groups.values()].sort((a, b) => b.last - a.last || a.host.localeCompare(b.host));
}

export const keptMax = 1000;

/** merged puts newer decisions behind those that are known; null = some between are missing. */
export function merged(old: Decision[], more: Decision[]): Decision[] | null {
	const first = more[0];
	if (!old.length) return more;
	const last = old.at(-1)!;
	if (!first || first.n !== last.n || first.host !== last.host) return null;
	return [...old.slice(0, -1), ...more].slice(-keptMax);
}

/** sentAt is when each secret was last sent with a request, ms, by name. */
export function sentAt(seen: Seen[]): Map<string, number> {
	const at = new Map<string, number>();
	for (const { d } of seen) {
		if (!d.allowed) continue;
		for (const name of (d.secrets ?? "").split(",").map((s) => s.trim()))
			if (name) at.set(name, Math.max(at.get(name) ?? 0, Date.parse(d.time)));
	}
	return at;
}
