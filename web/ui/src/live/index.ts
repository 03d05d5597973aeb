import { useSyncExternalStore } from "react";
import { get } from "../api/http";
import { FollowSocket, type LiveState } from "./socket";

const url = () => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/follow`;

/** socket is the tab's. A connection that fails may have lost its login: that call leads there. */
export const socket = new FollowSocket({ url, onFail: () => void get("/v1/login").catch(() => {}) });

export function useLive(): LiveState {
	return useSyncExternalStore(socket.watch, socket.snapshot);
}
