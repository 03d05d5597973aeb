// The server is killed and started again under the streams of the package skete: nothing is
// lost and nothing comes twice. Lines of stdin say when to go on.
//
//	node killed.mjs
import assert from 'node:assert/strict'
import { createInterface } from 'node:readline'
import { Client } from 'skete'

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
const skete = new Client()
const sandbox = await skete.sandboxes.create()
const count = 40_000

// One writes all the time, one reads all the time, one is run to its end in one call.
const loud = await sandbox.exec(`i=0; while [ $i -lt ${count} ]; do i=$((i+1)); echo "line $i"; [ $((i%400)) = 0 ] && sleep 0.02; done; while [ ! -e go ]; do sleep 0.05; done; echo end; exit 7`)
const heard = await sandbox.exec('sha256sum', { stdin: true })
const run = sandbox.run('echo before; touch running; while [ ! -e go ]; do sleep 0.05; done; echo x >> times; echo after; exit 4')
let out = ''
const reading = (async () => {
  for await (const c of loud.output()) {
    assert.equal(c.gapEnd, undefined)
    out += new TextDecoder().decode(c.data)
  }
})()
const data = new Uint8Array(6 << 20).map((_, i) => i * 7)
const writing = (async () => {
  for (let at = 0; at < data.length; at += 64 << 10) {
    await heard.write(data.subarray(at, at + (64 << 10)))
    await new Promise((r) => setTimeout(r, 5))
  }
  await heard.closeStdin()
})()
while (out.length < 5_000 || !(await sandbox.files.exists('running'))) await new Promise((r) => setTimeout(r, 10))
console.log(JSON.stringify({ sandbox: sandbox.id, seen: out.length }))

await lines.next() // the server was killed, and there is another
await sandbox.files.write('go', '')
await Promise.all([reading, writing])
const { createHash } = await import('node:crypto')
let sum = ''
for await (const c of heard.output()) sum += new TextDecoder().decode(c.data)
const { exitCode, stdout } = await run
console.log(
  JSON.stringify({
    whole: out === Array.from({ length: count }, (_, i) => `line ${i + 1}\n`).join('') + 'end\n',
    exit: (await loud.wait()).code,
    input: sum.startsWith(createHash('sha256').update(data).digest('hex')),
    run: [exitCode, stdout, await sandbox.files.readText('times')],
  }),
)
process.exit(0)
