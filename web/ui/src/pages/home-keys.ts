// Texts that look like keys: they are not kept in the browser, and belong into /secrets, where
// no agent sees them.

const shapes: [string, RegExp][] = [
	["a private key", /-----BEGIN [A-Z ]*PRIVATE KEY-----/],
	["a key of Anthropic", /\bsk-ant-[A-Za-z0-9_-]{16,}/],
	["a key of OpenAI", /\bsk-(?:proj-|svcacct-)?[A-Za-z0-9_-]{20,}/],
	["a key of AWS", /\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/],
	["a token of GitHub", /\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})/],
	["a token of GitLab", /\bglpat-[A-Za-z0-9_-]{20,}/],
	["a key of Google", /\bAIza[A-Za-z0-9_-]{35}/],
	["a token of Slack", /\bxox[abeoprs]-[A-Za-z0-9-]{10,}/],
	["a key of Stripe", /\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}/],
	["a token of npm", /\bnpm_[A-Za-z0-9]{36}\b/],
	["a key of skete", /\be2b_[0-9a-f]{32,}/],
	["a JSON web token", /\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}/],
	["an address with a password", /\b[a-z][a-z0-9+.-]*:\/\/[^\s/:@]+:[^\s/@]{6,}@/i],
];

const assigned = /(?:api[_-]?key|secret|token|passw(?:or)?d|bearer)["']?\s*(?:[:=]|\s)\s*["']?([^\s"',;]{16,})/gi;

/** keyLike says what in a text looks like a key, in words; "" = nothing does. */
export function keyLike(text: string): string {
	for (const [name, shape] of shapes) if (shape.test(text)) return name;
	for (const m of text.matchAll(assigned)) if (random(m[1] ?? "")) return "a key or a password";
	return "";
}

/** random tells what was rolled from what was written: it mixes letters with digits, and repeats little. */
function random(s: string): boolean {
	if (!/\d/.test(s) || !/[A-Za-z]/.test(s) || /^https?:/.test(s)) return false;
	return new Set(s).size >= Math.min(10, s.length * 0.5);
}
