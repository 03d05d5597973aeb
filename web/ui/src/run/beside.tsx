// What a person asks for beside the run: a fork of it, or an address for others.

import { Fork } from "./fork";
import { Share } from "./share";

interface Props {
	run: string;
	forkAt: number;
	sharing: boolean;
	onClose(): void;
}

export default function Beside({ run, forkAt, sharing, onClose }: Props) {
	return (
		<>
			<Fork run={run} at={forkAt} onClose={onClose} />
			<Share run={run} open={sharing} onClose={onClose} />
		</>
	);
}
