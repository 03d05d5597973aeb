// A deep agent that works in a machine of its own: it plans, writes, edits and runs; then
// all that it did is taken back.
//
//	npm install ./dist/skete-*.tgz deepagents langchain @langchain/langgraph @langchain/openai
//	SKETE_URL=… SKETE_KEY=… OPENAI_API_KEY=… node deep-agent.mjs
//
// OPENAI_BASE_URL and MODEL choose another model's server.
import { ChatOpenAI } from '@langchain/openai'
import { createDeepAgent } from 'deepagents'
import { todoListMiddleware } from 'langchain'
import { SketeSandbox } from 'skete/deepagents'

const task = process.argv[2] ?? 'Write primes.py, which prints the primes below 20. Run it.'
const model = new ChatOpenAI({ model: process.env.MODEL ?? 'gpt-5', configuration: { baseURL: process.env.OPENAI_BASE_URL } })
const backend = await SketeSandbox.create({ language: 'python' })
try {
  const agent = createDeepAgent({ model, backend, middleware: [todoListMiddleware()], systemPrompt: 'Your files are in /workspace.' })
  const { messages, todos } = await agent.invoke({ messages: [{ role: 'user', content: task }] })
  console.log(messages.at(-1).text)
  for (const t of todos ?? []) console.log(`${t.status}: ${t.content}`)

  const { history, files } = backend.sandbox
  const revisions = []
  for await (const r of history.list()) revisions.push(r)
  for (const r of revisions.reverse()) console.log(`revision ${r.n}: ${r.title}`)

  await backend.undo() // what it did last
  await history.restore(revisions[0].n) // all of it
  let left = 0
  for await (const _ of files.list('/workspace')) left++
  console.log(`files after all was taken back: ${left}`)
} finally {
  await backend.close()
}
