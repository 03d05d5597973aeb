// Bad input with our own package.
import assert from 'node:assert/strict'
import * as sdk from 'skete'
import { sizes, tried, twoGigabytes, within } from './tried.mjs'

const fails = (promise, cls) => assert.rejects(within(promise), (e) => e instanceof cls)
const sandbox = await new sdk.Client().sandboxes.create()
const { files } = sandbox

// tar begins a tar with one large file.
async function* tar() {
  const head = new Uint8Array(512)
  const put = (at, text) => head.set(new TextEncoder().encode(text), at)
  put(0, 'large'), put(100, '0000644\0'), put(124, '20000000000\0'), put(148, ' '.repeat(8)), put(156, '0'), put(257, 'ustar\x0000')
  put(148, head.reduce((a, b) => a + b).toString(8).padStart(6, '0') + '\0 ')
  yield head
  yield* twoGigabytes()
}

await tried('2 GB', async () => {
  await fails(files.write('large', twoGigabytes()), sdk.LimitError)
  await fails(files.upload('.', tar()), sdk.LimitError)
  await files.remove('large', { recursive: true }).catch(() => {})
  await files.write('small', 'there is room again')
})
await tried('sizes of terminals', async () => {
  for (const terminal of sizes) await fails(sandbox.exec('true', { terminal }), sdk.InvalidError)
  const c = await sandbox.exec('sleep 600', { terminal: { cols: 80, rows: 24 } })
  for (const terminal of sizes) await fails(c.resize(terminal), sdk.InvalidError)
  await c.kill()
})
await tried('a watch of a directory that goes', async () => {
  await files.mkdir('going')
  const seen = []
  const leave = new AbortController()
  const watching = (async () => {
    for await (const e of files.watch('going', { recursive: true, signal: leave.signal })) seen.push(e)
  })().catch((e) => e)
  await within((async () => {
    for (let i = 0; seen.length === 0; i++) await files.write(`going/${i}`, '')
  })())
  await files.remove('going', { recursive: true })
  await within((async () => {
    while (!seen.some((e) => e.type === 'remove' && e.path.endsWith('/going'))) await new Promise((r) => setTimeout(r, 25))
  })())
  leave.abort()
  await within(watching)
  assert.equal((await sandbox.run('echo alive')).stdout, 'alive\n')
})
await tried('a paused sandbox', async () => {
  await sandbox.pause()
  assert.equal(await files.readText('small'), 'there is room again') // the call has woken it
  await sandbox.pause()
  assert.equal((await sandbox.run('echo awake')).stdout, 'awake\n')
})
await sandbox.remove()
process.exit(0)
