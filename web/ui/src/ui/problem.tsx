import { Link } from "wouter";
import { Problem } from "../api/http";
import { Safe } from "./text";

const who: Record<number, string> = {
	0: "The server does not answer: is it running?",
	403: "Your key lacks the right to do this.",
	404: "It was deleted, or it is not yours.",
	409: "Something changed meanwhile.",
};

/** ProblemBox shows all that is known of what went wrong. */
export function ProblemBox({ of, again }: { of: unknown; again?: () => void }) {
	const p =
		of instanceof Problem ? of : new Problem(0, "Something went wrong in this page", of instanceof Error ? of.message : String(of), "", "");
	return (
		<div role="alert" className="flex flex-col gap-1 rounded-md border border-bad bg-bad-ground p-3 break-words">
			<strong className="text-bad">
				<Safe>{p.title}</Safe>
			</strong>
			{p.detail && (
				<span>
					<Safe>{p.detail}</Safe>
				</span>
			)}
			{p.hint && (
				<span>
					Hint: <Safe>{p.hint}</Safe>
				</span>
			)}
			{who[p.status] && <span className="text-quiet">{who[p.status]}</span>}
			{p.request && <code className="text-quiet select-all">request {p.request}</code>}
			{again && (
				<button type="button" className="button self-start" onClick={again}>
					Try again
				</button>
			)}
		</div>
	);
}

const titles: Record<number, (what: string) => string> = {
	403: (what) => `You may not see this ${what}`,
	404: (what) => `There is no such ${what}`,
};

/** NoPage stands in the place of what cannot be shown. What was deleted and what is another's look the same. */
export function NoPage({ of, what, again }: { of: unknown; what: string; again?: () => void }) {
	const status = of instanceof Problem ? of.status : -1;
	return (
		<div className="flex flex-col gap-3 p-4">
			<h1 className="text-base font-semibold">{titles[status]?.(what) ?? `This ${what} cannot be shown`}</h1>
			<ProblemBox of={of} again={again} />
			<Link href="/" className="self-start underline">
				Go to the runs
			</Link>
		</div>
	);
}
