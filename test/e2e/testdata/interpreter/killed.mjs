// The kernel's variables are there after the server was killed under a stream. Lines of
// stdin say when to go on.
//
//	node killed.mjs MODULES PACKAGE
import assert from 'node:assert/strict'
import { createInterface } from 'node:readline'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [modules, name] = process.argv.slice(2)
const { Sandbox } = await import(pathToFileURL(createRequire(modules + '/').resolve(name)))
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

const sbx = await Sandbox.create({ timeoutMs: 300_000 })
await sbx.runCode('kept = 42')
let begin
const begun = new Promise((resolve) => { begin = resolve })
const broken = sbx.runCode('import time; print("begun", flush=True); time.sleep(300)', { onStdout: begin }).catch((e) => e)
await begun
console.log('begun')

await lines.next() // the server was killed, and there is another
assert.ok((await broken) instanceof Error, 'the execution ended with its server')
const again = await Sandbox.connect(sbx.sandboxId)
console.log((await again.runCode('kept', { timeoutMs: 60_000 })).text)
process.exit(0)
