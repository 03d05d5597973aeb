// The screen of a run: outline, timeline, workspace.

import { useState } from "react";
import { ProblemBox } from "../ui/problem";
import { Split } from "../ui/split";
import { Workspace } from "../workspace";
import { RunHeader } from "./header";
import { Outline } from "./outline";
import { useRun } from "./store";
import { Timeline } from "./timeline";

export default function RunPage({ id }: { id: string }) {
	const { store, view, error } = useRun(id);
	const [hide, setHide] = useState(false);
	if (error) return <ProblemBox of={error} />;
	if (!view) return null;
	const machine = view.fold.thread(view.run.thread).machine || view.run.sandbox || "";
	return (
		<div className="flex min-h-0 flex-1 flex-col">
			<RunHeader view={view} onWorkspace={() => setHide(!hide)} workspace={!hide} />
			<div className="flex min-h-0 flex-1">
				<Outline view={view} />
				<Split
					name="the timeline"
					at={0.5}
					left={<Timeline store={store} view={view} />}
					right={<Workspace sandbox={machine} run={id} past={false} />}
					hideRight={hide}
				/>
			</div>
		</div>
	);
}
