import type { PaneProps } from "./pane";

export default function FilesPane({ sandbox }: PaneProps) {
	return <p className="p-3 text-quiet">{sandbox}</p>;
}
