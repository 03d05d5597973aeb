import { lazy, type ReactNode, Suspense, useRef } from "react";

export interface DialogProps {
	title: string;
	/** text says what it is about, for all who open it. */
	text?: ReactNode;
	open: boolean;
	onClose(): void;
	children: ReactNode;
	wide?: boolean;
}

const Box = lazy(() => import("./dialog_box"));

/** Dialog asks before something is done. Its first focus is the element with data-first, or its first
 * control; the last goes back to where it was. What draws it is loaded with the first one that opens. */
export function Dialog(props: DialogProps) {
	const opened = useRef(false);
	if (props.open) opened.current = true;
	if (!opened.current) return null;
	return (
		<Suspense fallback={null}>
			<Box {...props} />
		</Suspense>
	);
}
