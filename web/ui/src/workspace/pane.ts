/** PaneProps are those of every pane of the workspace. */
export interface PaneProps {
	/** sandbox that the pane shows, by its id. */
	sandbox: string;
	/** run whose screen it is on; "" = that of the sandbox. */
	run: string;
	/** past: the screen shows the past; nothing may be changed, and terminals and previews are off. */
	past: boolean;
	/** hidden panes stay as they are, and ask for nothing. */
	hidden: boolean;
}
