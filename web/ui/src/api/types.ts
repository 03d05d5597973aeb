// The API's types are generated from its OpenAPI document.
import type { components } from "../../../../sdk/typescript/src/openapi";

export type Schemas = components["schemas"];
export type Run = Schemas["Run"];
export type RunEvent = Schemas["RunEvent"];

/** RunEventPage is a page of a run's events, oldest first; before asks for the page before it. */
export interface RunEventPage {
	items: RunEvent[] | null;
	before?: number;
}

/** FollowMessage is what the server says on /v1/follow. */
export interface FollowMessage {
	topic?: string;
	thread?: string;
	seq?: number;
	event?: RunEvent;
	domain?: Schemas["Event"];
	live?: Live;
	gap?: { lost: number };
	end?: { seq: number; state: string };
	problem?: Schemas["Problem"];
	heartbeat?: string;
	pong?: number;
}
export type Live = Schemas["Live"];
export type Approval = Schemas["Approval"];
export type Todo = Schemas["Todo"];
export type Usage = Schemas["Usage"];
export type Sandbox = Schemas["Sandbox"];
export type Info = Schemas["Info"];
export type Login = Schemas["Login"];
