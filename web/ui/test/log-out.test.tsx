import { cleanup, fireEvent, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import * as http from "../src/api/http";
import { LogOutButton } from "../src/log-out";
import { flat } from "../src/ui/text";
import { Lost, serve, show } from "./server";

afterEach(() => {
	cleanup();
	vi.unstubAllGlobals();
	vi.restoreAllMocks();
});

const by = (how: string) => ({ "GET /v1/login": { tenant: "t", user: "u", scopes: ["read"], by: how } });

test("a login is ended, and the next one asked for; while it goes on, the page says so", async () => {
	const away = vi.spyOn(http, "toLogin").mockImplementation(() => undefined);
	let answer: unknown = new Lost();
	const calls = serve({ ...by("login"), "POST /logout": () => answer });
	show(<LogOutButton />);
	fireEvent.click(await screen.findByRole("button", { name: "Log out" }));
	expect((await screen.findByRole("alert")).textContent).toContain("still logged in");
	expect(away).not.toHaveBeenCalled();
	answer = {};
	fireEvent.click(screen.getByRole("button", { name: "Log out" }));
	await waitFor(() => expect(calls.filter((c) => c.path === "/logout")).toHaveLength(2));
	await waitFor(() => expect(away).toHaveBeenCalledOnce());
	expect(screen.queryByRole("alert")).toBeNull();
});

test("a key has no login to end", async () => {
	const calls = serve(by("key"));
	show(<LogOutButton />);
	await waitFor(() => expect(calls).toHaveLength(1));
	expect(screen.queryByRole("button")).toBeNull();
});

test("nothing hides in the name of a file", () => {
	expect(flat("a\nb\u202ec\u200bd\te")).toBe("a\\u{a}b\\u{202e}c\\u{200b}d\te");
});
