import type { PaneProps } from "./pane";

export default function ChangesPane({ sandbox }: PaneProps) {
	return <p className="p-3 text-quiet">{sandbox}</p>;
}
