import type { PaneProps } from "./pane";

export default function PreviewPane({ sandbox }: PaneProps) {
	return <p className="p-3 text-quiet">{sandbox}</p>;
}
