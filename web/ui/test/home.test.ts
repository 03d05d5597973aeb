import { beforeEach, expect, test } from "vitest";
import { empty, keepDraft, readDraft, startOf } from "../src/pages/home-draft";
import { keyLike } from "../src/pages/home-keys";

// They are put together so that no file holds what scanners of keys look for.
const letters = "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA2cD4fG6";

test.each([
	["a key of Anthropic", `use sk-${"ant-"}api03-${letters}`],
	["a key of OpenAI", `sk-${"proj-"}${letters}`],
	["a key of AWS", `AKIA${"IOSFODNN7EXAMPLE"}`],
	["a token of GitHub", `ghp_${letters}`],
	["a token of GitLab", `glpat-${letters}`],
	["a key of Google", `AIza${letters.slice(0, 35)}`],
	["a token of Slack", `xoxb-${"123456789012"}-abc`],
	["a key of Stripe", `sk_live_${letters}`],
	["a key of skete", `e2b_${"0123456789abcdef".repeat(2)}`],
	["a private key", "-----BEGIN OPENSSH PRIVATE KEY-----"],
	["a JSON web token", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3.SflKxwRJSMeKKF2QT4"],
	["an address with a password", "postgres://ana:hunter2hunter@db.example/x"],
	["a key or a password", `API_KEY=${letters}`],
	["a key or a password", `password: "${letters.slice(0, 18)}"`],
])("%s is seen", (name, text) => {
	expect(keyLike(`Please call it with ${text} now`)).toBe(name);
});

test.each([
	"Fix the failing test in parser_test.go and explain the token: it is a keyword.",
	"Read https://example.org/a/very/long/path/with-Numbers123456789 and sum it up",
	"The secret to good code is readability, and API keys are documented in docs/network.md",
	"sk-learn is a library; use risk-assessment-of-the-first-quarter",
	"commit 489f68e2a9c1b3d4e5f60718293a4b5c6d7e8f90 broke it",
	"password: correct horse battery staple",
	"the token budget is 500000 tokens",
])("a task is no key: %s", (text) => {
	expect(keyLike(text)).toBe("");
});

beforeEach(() => localStorage.clear());

test("a draft outlives a reload, but never with a key in it", () => {
	const draft = { ...empty, task: "Fix it", steps: "40", plan: true };
	expect(keepDraft(draft)).toBe(true);
	expect(readDraft()).toEqual(draft);
	expect(keepDraft({ ...draft, task: `Fix it with ghp_${letters}` })).toBe(false);
	expect(JSON.stringify({ ...localStorage })).not.toContain("Fix it");
	expect(readDraft()).toEqual(empty);
});

test("a kept draft that is none is an empty one", () => {
	for (const bad of ["{", "null", "[]", '{"task":1,"plan":"yes","__proto__":{"task":"x"}}']) {
		localStorage.setItem("skete.draft", bad);
		expect(readDraft()).toEqual(empty);
	}
});

test("a start asks for what was chosen, and for nothing else", () => {
	expect(startOf({ ...empty, task: "Do it" })).toEqual({ task: "Do it" });
	expect(startOf({ ...empty, task: "Do it", agent: "a", network: "none", steps: "40", cost: "2.5", keep: true })).toEqual({
		task: "Do it",
		agent: "a",
		spec: { network: "none" },
		budget: { steps: 40, cost_usd: 2.5 },
		keep: true,
	});
	for (const bad of [{ steps: "4.5" }, { steps: "-1" }, { cost: "much" }, { cost: "Infinity" }, { task: "  " }])
		expect(typeof startOf({ ...empty, task: "Do it", ...bad })).toBe("string");
});
