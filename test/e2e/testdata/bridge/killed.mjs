// A command goes on while the server is killed and started again, and a client finds it
// by the SDK's own way. Lines of stdin say when to go on.
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
const out = []
const handle = await sbx.commands.run('echo before; while [ ! -e go ]; do sleep 0.05; done; echo after; exit 7', {
  background: true,
  timeoutMs: 0,
  onStdout: (d) => out.push(d),
})
const broken = handle.wait().catch((e) => e)
while (!out.length) await new Promise((r) => setTimeout(r, 20))
console.log(JSON.stringify({ sandbox: sbx.sandboxId, pid: handle.pid }))

await lines.next() // the server was killed, and there is another
const e = await broken
assert.ok(!e.exitCode, 'the command ended with its server')
const again = await (await Sandbox.connect(sbx.sandboxId)).commands.connect(handle.pid)
const ended = again.wait().catch((e) => e)
assert.ok((await sbx.commands.list()).some((p) => p.pid === handle.pid))
await sbx.files.write('go', '')
const { exitCode, stdout } = await ended
console.log(JSON.stringify({ exitCode, stdout }))
process.exit(0)
