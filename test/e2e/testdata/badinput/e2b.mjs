// Bad input with the SDK of E2B.
//
//	node e2b.mjs MODULES PACKAGE
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
import { sizes, tried, twoGigabytes, within } from './tried.mjs'

const [modules, name] = process.argv.slice(2)
const { Sandbox, InvalidArgumentError, NotEnoughSpaceError, SandboxError } = await import(pathToFileURL(createRequire(modules + '/').resolve(name)))

const sbx = await Sandbox.create({ timeoutMs: 300_000 })

await tried('2 GB', async () => {
  await assert.rejects(within(sbx.files.write('large', ReadableStream.from(twoGigabytes()))), NotEnoughSpaceError)
  assert.equal(await sbx.files.exists('large'), false)
  await sbx.files.write('small', 'there is room again')
})
await tried('many files at once', async () => {
  const files = Array.from({ length: 100 }, (_, i) => ({ path: `many/${i}`, data: String(i) }))
  assert.equal((await within(sbx.files.writeFiles(files))).length, 100)
})
await tried('sizes of terminals', async () => {
  for (const size of sizes) await assert.rejects(within(sbx.pty.create({ ...size, onData: () => {} })), InvalidArgumentError)
  const seen = []
  const pty = await sbx.pty.create({ cols: 80, rows: 24, onData: (d) => seen.push(new TextDecoder().decode(d)) })
  for (const size of sizes) await assert.rejects(within(sbx.pty.resize(pty.pid, size)), InvalidArgumentError)
  await sbx.pty.sendInput(pty.pid, new TextEncoder().encode('echo "is $(stty size)"; exit\n'))
  await within(pty.wait())
  assert.match(seen.join(''), /is 24 80/)
})
await tried('a watch of a directory that goes', async () => {
  await sbx.files.makeDir('going')
  let told
  const gone = new Promise((done) => (told = done))
  const watch = await sbx.files.watchDir('going', (e) => e.type === 'remove' && told(), { onExit: told, timeoutMs: 0 })
  await sbx.commands.run('rm -rf going; mkdir going; rm -rf going')
  await within(gone)
  await watch.stop()
  assert.deepEqual((await sbx.commands.run('echo alive')).stdout, 'alive\n')
})
await tried('a paused sandbox', async () => {
  const handle = await sbx.commands.run('sleep 600', { background: true })
  await sbx.pause()
  for (const call of [
    () => sbx.commands.run('true'), () => sbx.commands.list(), () => sbx.commands.connect(handle.pid), () => sbx.files.read('small'), () => sbx.files.write('x', 'y'),
    () => sbx.files.list('.'), () => sbx.files.watchDir('.', () => {}), () => sbx.pty.create({ cols: 80, rows: 24, onData: () => {} }),
  ]) {
    await assert.rejects(within(call()), (e) => e instanceof SandboxError, String(call))
  }
  assert.equal(await sbx.isRunning(), false)
  assert.deepEqual(await sbx.getMetrics(), [])
  const again = await Sandbox.connect(sbx.sandboxId)
  assert.equal(await again.files.read('small'), 'there is room again')
})
await sbx.kill()
process.exit(0)
