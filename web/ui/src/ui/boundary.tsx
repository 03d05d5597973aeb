// What is seen in the place of a part that failed, where there would be nothing.

import { Component, type ReactNode } from "react";
import { Safe } from "./text";

interface Props {
	children: ReactNode;
}

const notLoaded = /dynamically imported module|importing a module script|unable to preload/i;

/** Boundary keeps the failure of a part from taking the rest of the page away. */
export class Boundary extends Component<Props, { error: unknown }> {
	override state = { error: null };

	static getDerivedStateFromError(error: unknown) {
		return { error };
	}

	override render() {
		return this.state.error === null ? this.props.children : <Failed of={this.state.error} />;
	}
}

/** Failed says what can be done: parts of an older version are gone after an upgrade. */
function Failed({ of }: { of: unknown }) {
	const text = of instanceof Error ? of.message : String(of);
	const gone = notLoaded.test(text);
	return (
		<div role="alert" className="m-4 flex flex-col gap-2 rounded-md border border-warn bg-warn-ground p-3 break-words">
			<h1 className="font-semibold text-warn">{gone ? "This part of the page could not be loaded" : "This part of the page failed"}</h1>
			<p>
				{gone
					? "The server may have been upgraded since this page was opened, or it does not answer. Reload the page when you are ready; messages that you have begun to write are kept."
					: "Reload the page. If it happens again, this is what to report:"}
			</p>
			<code className="text-quiet select-all">
				<Safe>{text}</Safe>
			</code>
			<button type="button" className="button main self-start" onClick={() => location.reload()}>
				Reload
			</button>
		</div>
	);
}
