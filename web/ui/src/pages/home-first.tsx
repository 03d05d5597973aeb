// What is seen before there is a run: what works on this host, and an example that needs no
// model and no network.

import { useRef, useState } from "react";
import { useLocation } from "wouter";
import { call, key, query, send } from "../api/http";
import { useInfo, useModels } from "../api/queries";
import type { Info, Run, Sandbox, Schemas } from "../api/types";
import { ProblemBox } from "../ui/problem";
import { Isolation } from "../ui/state";
import { Safe } from "../ui/text";

export const exampleModel = "example";

export function FirstStart() {
	const info = useInfo();
	const models = useModels();
	return (
		<section aria-labelledby="first" className="flex flex-col gap-3 rounded-lg border border-line p-4">
			<h2 id="first" className="text-base font-semibold">
				There are no runs yet
			</h2>
			<ul className="flex flex-col gap-2">
				<li>{info.data ? <Machines info={info.data} /> : info.error && <ProblemBox of={info.error} />}</li>
				<li>{models.data ? <ModelLine models={models.data.items ?? []} /> : models.error && <ProblemBox of={models.error} />}</li>
			</ul>
			{models.data?.items?.some((m) => m.name === exampleModel && m.source === "example") && <Example />}
		</section>
	);
}

function Machines({ info }: { info: Info }) {
	const all = info.providers ?? [];
	const best = all.find((p) => p.name === info.default_provider && p.ok);
	const others = all.filter((p) => p !== best);
	return (
		<>
			{best ? (
				<p>
					<strong>Machines work.</strong> Each agent gets one of its own from <code>{best.name}</code>, separated by{" "}
					<Isolation of={best.isolation} />
				</p>
			) : (
				<p className="text-bad">
					<strong>No provider of machines works on this host.</strong> <code>skete doctor</code> says what is missing.
				</p>
			)}
			{others.length > 0 && (
				<details>
					<summary className="w-fit text-quiet">Other providers ({others.length})</summary>
					<ul className="list-disc pl-5">
						{others.map((p) => (
							<li key={p.name} className="break-words">
								<code>{p.name}</code> <Isolation of={p.isolation} /> {p.ok ? "works" : <Safe>{p.error || "does not work"}</Safe>}
								{p.hint && (
									<span className="text-quiet">
										{" "}
										Hint: <Safe>{p.hint}</Safe>
									</span>
								)}
							</li>
						))}
					</ul>
				</details>
			)}
		</>
	);
}

const states: Record<string, string> = {
	ready: "it answers",
	key: "its key is there; the vendor was not asked",
	no_key: "its key is missing",
	down: "it does not answer",
};

function ModelLine({ models }: { models: Schemas["Model"][] }) {
	const chosen = models.find((m) => m.default);
	const others = models.filter((m) => m !== chosen && m.name !== exampleModel);
	const usable = chosen && (chosen.state === "ready" || chosen.state === "key");
	return (
		<>
			{chosen ? (
				<p>
					<strong>{usable ? "A model is there." : "The model cannot be asked."}</strong> Agents ask{" "}
					<code>
						<Safe>{chosen.name}</Safe>
					</code>{" "}
					unless you say otherwise: {states[chosen.state] ?? chosen.state} ({chosen.source}).
				</p>
			) : (
				<p>
					<strong className="text-warn">There is no model to ask yet.</strong> Set <code>ANTHROPIC_API_KEY</code> or{" "}
					<code>OPENAI_API_KEY</code> where the server runs, or start a local model server such as Ollama; <code>skete help models</code>{" "}
					says how.
				</p>
			)}
			{others.length > 0 && (
				<ul className="list-disc pl-5 text-quiet">
					{others.map((m) => (
						<li key={m.name}>
							<Safe>{m.name}</Safe>: {states[m.state] ?? m.state}
						</li>
					))}
				</ul>
			)}
		</>
	);
}

const exampleTask = "The tests in /workspace fail (python3 -m unittest). Find out why, fix the code, and show that they pass.";

async function exampleFiles(): Promise<[string, string][]> {
	const [code, test, shop] = await Promise.all([
		import("../../../../examples/bugfix/project/cart.py?raw"),
		import("../../../../examples/bugfix/project/test_cart.py?raw"),
		import("../../../../examples/bugfix/project/shop.py?raw"),
	]);
	return [
		["cart.py", code.default],
		["test_cart.py", test.default],
		["shop.py", shop.default],
	];
}

// The example asks once, so that a first run shows how a person decides.
const exampleAgent = {
	name: "example",
	description: "Mends the example, and asks before it starts a program that stays up.",
	approvals: [{ action: "ask", tools: ["service"], reason: "It keeps running when the agent is done." }],
};

/** startExample makes a machine with the project in it, and starts the scripted run there. */
export async function startExample(keys: [string, string], say: (step: string) => void): Promise<Run> {
	say("Making a machine");
	const machine = await call<Sandbox>("/v1/sandboxes", {
		method: "POST",
		body: { language: "python", persist: true, idle_timeout_ms: 3_600_000, metadata: { example: "bugfix" } },
		headers: { "Idempotency-Key": keys[0] },
	});
	say("Copying the project into it");
	for (const [name, text] of await exampleFiles())
		await send(`/v1/sandboxes/${machine.id}/files${query({ path: `/workspace/${name}` })}`, {
			method: "PUT",
			body: new Blob([text]),
			headers: { "Content-Type": "application/octet-stream" },
		});
	say("Starting the run");
	return call<Run>("/v1/runs", {
		method: "POST",
		body: {
			task: exampleTask,
			sandbox: machine.id,
			definition: exampleAgent,
			model: exampleModel,
			title: "Example: mend a shop's total",
			budget: { steps: 40 },
		},
		headers: { "Idempotency-Key": keys[1] },
	});
}

function Example() {
	const [step, setStep] = useState("");
	const [problem, setProblem] = useState<unknown>(null);
	const keys = useRef<[string, string]>([key(), key()]);
	const [, go] = useLocation();
	const run = async () => {
		setProblem(null);
		try {
			go(`/runs/${(await startExample(keys.current, setStep)).id}`);
		} catch (err) {
			setProblem(err);
			setStep("");
		}
	};
	return (
		<div className="flex flex-col gap-2">
			<p>
				In the example an agent mends a small shop whose total is wrong, asks you once, and shows you the page. A script plays the model, so
				it needs no key and no network; the machine, the commands, the page and the undo are real.
			</p>
			<div className="flex flex-wrap items-center gap-2">
				<button type="button" className="button main" disabled={step !== ""} onClick={() => void run()}>
					Run the example
				</button>
				<span role="status">{step}</span>
			</div>
			{problem !== null && <ProblemBox of={problem} again={() => void run()} />}
		</div>
	);
}
