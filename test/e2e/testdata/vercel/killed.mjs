// A detached command goes on while the server is killed and started again, and a client
// finds it by the SDK's own way. Lines of stdin say when to go on.
//
//	node killed.mjs MODULES
import assert from 'node:assert/strict'
import { createInterface } from 'node:readline'
import { access, sdk } from './client.mjs'

const { Sandbox } = sdk
const stdin = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

const sbx = await Sandbox.create({ ...access, name: 'long', timeout: 300_000 })
const command = await sbx.runCommand({
  cmd: 'sh',
  args: ['-c', 'echo before; while [ ! -e go ]; do sleep 0.05; done; echo after; exit 7'],
  detached: true,
})
let begun
const first = new Promise((done) => (begun = done))
const broken = (async () => {
  for await (const log of command.logs()) begun(log)
})().then(() => assert.fail('the stream ended as if the command had'), (e) => e)
await first
console.log(JSON.stringify({ name: sbx.name, command: command.cmdId }))

await stdin.next() // the server was killed, and there is another
await broken
const again = await (await Sandbox.get({ ...access, name: 'long' })).getCommand(command.cmdId)
assert.equal(again.exitCode, null)
const ended = again.wait()
await sbx.fs.writeFile('go', '')
const { exitCode } = await ended
console.log(JSON.stringify({ exitCode, stdout: await again.stdout() }))
process.exit(0)
