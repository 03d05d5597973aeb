// usage: node deepagents.mjs MODULES STEPS memory|none
//
// Runs the deepagents package with a scripted model: STEPS steps of one trivial
// tool call each, then a last answer. Prints {"ms","calls","rss_mb"} as JSON.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [modules, count, saver] = [process.argv[2], Number(process.argv[3]), process.argv[4]];
const require = createRequire(pathToFileURL(modules + "/package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { BaseChatModel } = await load("@langchain/core/language_models/chat_models");
const { AIMessage } = await load("@langchain/core/messages");
const { MemorySaver } = await load("@langchain/langgraph");
const { createDeepAgent } = await load("deepagents");
const { tool } = await load("langchain");
const { z } = await load("zod");

class Scripted extends BaseChatModel {
  step = 0;
  _llmType() { return "scripted"; }
  bindTools() { return this; }
  async _generate() {
    const n = ++this.step;
    const message = n > count
      ? new AIMessage("It is done.")
      : new AIMessage({ content: "I look.", tool_calls: [{ id: `call_${n}`, name: "look", args: { n }, type: "tool_call" }] });
    return { generations: [{ text: String(message.content), message }] };
  }
}

let calls = 0;
const look = tool(({ n }) => { calls++; return `seen ${n}`; }, { name: "look", description: "Looks.", schema: z.object({ n: z.number() }) });
const agent = createDeepAgent({
  model: new Scripted({}), tools: [look], systemPrompt: "You work.",
  ...(saver === "memory" ? { checkpointer: new MemorySaver() } : {}),
});
const began = process.hrtime.bigint();
await agent.invoke({ messages: [{ role: "user", content: "do it" }] }, { recursionLimit: 100_000, configurable: { thread_id: "bench" } });
const ms = Number(process.hrtime.bigint() - began) / 1e6;
const rss = Number(/VmHWM:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))[1]) / 1024;
console.log(JSON.stringify({ ms, calls, rss_mb: rss }));
