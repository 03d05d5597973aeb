// Calls what the SDK exports, as its documentation shows it, and prints a line of
// JSON for each method: whether it works, is refused, or fails.
//
//	node everything.mjs MODULES PACKAGE
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [modules, name] = process.argv.slice(2)
const resolve = createRequire(modules + '/').resolve
const sdk = await import(pathToFileURL(resolve(name)))
const { Sandbox, Volume, Secret, SecretError, SecretNotFoundError, CommandExitError, TimeoutError, NotFoundError, AuthenticationError } = sdk

const print = (line) => console.log(JSON.stringify(line))

async function works(method, call) {
  try {
    await call()
    print({ method, result: 'works' })
  } catch (e) {
    print({ method, result: 'fails', note: `${e?.name}: ${e?.message}`.slice(0, 500) })
  }
}

// refused is of what is not supported: the error has to say so.
async function refused(method, call) {
  try {
    await call()
    print({ method, result: 'fails', note: 'it was not refused' })
  } catch (e) {
    const ok = /not supported|requires envd/.test(e?.message)
    print({ method, result: ok ? 'refused' : 'fails', note: `${e?.name}: ${e?.message}`.slice(0, 500) })
  }
}

const text = (chunks) => chunks.map((c) => new TextDecoder().decode(c)).join('')
const soon = async (done) => {
  for (let i = 0; i < 400 && !done(); i++) await new Promise((r) => setTimeout(r, 25))
  assert.ok(done(), 'it did not come')
}

const sbx = await Sandbox.create({ timeoutMs: 300_000, metadata: { purpose: 'a test & more' }, envs: { FROM: 'create' } })

await works('Sandbox.create', async () => {
  assert.match(sbx.sandboxId, /^[a-z0-9]+$/)
  assert.equal((await sbx.commands.run('echo $FROM')).stdout, 'create\n')
})
await works('Sandbox.connect', async () => {
  const again = await Sandbox.connect(sbx.sandboxId)
  assert.equal(again.sandboxId, sbx.sandboxId)
  assert.equal((await again.commands.run('echo $FROM')).stdout, 'create\n')
})
await works('Sandbox.list', async () => {
  const found = await Sandbox.list({ query: { metadata: { purpose: 'a test & more' }, state: ['running'] } }).nextItems()
  assert.deepEqual(found.map((s) => s.sandboxId), [sbx.sandboxId])
  assert.deepEqual(await Sandbox.list({ query: { metadata: { purpose: 'another' } } }).nextItems(), [])
  const pages = Sandbox.list({ limit: 1 })
  await pages.nextItems()
  assert.equal(typeof pages.hasNext, 'boolean')
})
await works('sandbox.getInfo', async () => {
  const info = await sbx.getInfo()
  assert.equal(info.templateId, 'base')
  assert.equal(info.state, 'running')
  assert.deepEqual(info.metadata, { purpose: 'a test & more' })
  assert.ok(info.endAt > new Date())
})
await works('sandbox.isRunning', async () => assert.equal(await sbx.isRunning(), true))
await works('sandbox.setTimeout', async () => {
  await sbx.setTimeout(600_000)
  assert.ok((await sbx.getInfo()).endAt - Date.now() > 400_000)
})
await works('sandbox.getMetrics', async () => {
  const [m] = await sbx.getMetrics()
  assert.ok(m.memUsed > 0 && m.memTotal > m.memUsed && m.diskTotal > 0)
})
await works('sandbox.getHost', async () => assert.ok(sbx.getHost(3000).startsWith(`3000-${sbx.sandboxId}.`)))

await works('commands.run', async () => {
  const out = []
  const r = await sbx.commands.run('echo out; echo err >&2; pwd; echo $A', { envs: { A: 'b' }, cwd: '/tmp', onStdout: (d) => out.push(d) })
  assert.deepEqual([r.exitCode, r.stdout, r.stderr], [0, 'out\n/tmp\nb\n', 'err\n'])
  assert.equal(out.join(''), r.stdout)
  await assert.rejects(sbx.commands.run('exit 3'), (e) => e instanceof CommandExitError && e.exitCode === 3)
  await assert.rejects(sbx.commands.run('sleep 60', { timeoutMs: 500 }), TimeoutError)
  await assert.rejects(sbx.commands.run('true', { cwd: '/nowhere' }))
})
await works('commands.run, in the background', async () => {
  const handle = await sbx.commands.run('read x; echo "got $x"; exit 4', { background: true, stdin: true })
  await sbx.commands.sendStdin(handle.pid, 'hello\n')
  await assert.rejects(handle.wait(), (e) => e.exitCode === 4 && e.stdout === 'got hello\n')
})
await works('commands.list', async () => {
  const handle = await sbx.commands.run('sleep 60', { background: true })
  const found = (await sbx.commands.list()).find((p) => p.pid === handle.pid)
  assert.deepEqual([found.cmd, found.args], ['/bin/bash', ['-l', '-c', 'sleep 60']])
  assert.equal(await sbx.commands.kill(handle.pid), true)
  assert.ok(!(await sbx.commands.list()).some((p) => p.pid === handle.pid))
  assert.equal(await sbx.commands.kill(handle.pid), false)
})
await works('commands.kill', async () => {
  const handle = await sbx.commands.run('sleep 60', { background: true })
  assert.equal(await handle.kill(), true)
  await assert.rejects(handle.wait(), CommandExitError)
})
await works('commands.connect', async () => {
  const handle = await sbx.commands.run('read x; echo "late $x"; exit 5', { background: true, stdin: true })
  await handle.disconnect()
  const again = await sbx.commands.connect(handle.pid)
  await sbx.commands.sendStdin(handle.pid, 'word\n')
  await assert.rejects(again.wait(), (e) => e.exitCode === 5 && e.stdout === 'late word\n')
  await assert.rejects(sbx.commands.connect(999_999), NotFoundError)
})
await works('commands.closeStdin', async () => {
  const handle = await sbx.commands.run('cat', { background: true, stdin: true })
  await handle.sendStdin('abc')
  await handle.closeStdin()
  assert.equal((await handle.wait()).stdout, 'abc')
})
await works('commands.run, 50 MB of output', async () => {
  const r = await sbx.commands.run('head -c 50000000 /dev/zero | tr "\\0" x', { timeoutMs: 120_000 })
  assert.equal(r.stdout.length, 50_000_000)
})

await works('files.write', async () => {
  const info = await sbx.files.write('dir/a.txt', 'hi')
  assert.deepEqual([info.path, info.name, info.type], ['/workspace/dir/a.txt', 'a.txt', 'file'])
  await sbx.files.write('blob.bin', new Blob([new Uint8Array([0, 255, 10])]))
  await sbx.files.write('/tmp/abs.txt', 'abs')
  await sbx.files.write("it's a \u00fc name.txt", 'odd')
  assert.equal((await sbx.commands.run('cat "it\'s a \u00fc name.txt" /tmp/abs.txt; wc -c <blob.bin')).stdout, 'oddabs3\n')
})
await works('files.writeFiles', async () => {
  const all = await sbx.files.writeFiles([{ path: 'm/1.txt', data: '1' }, { path: 'm/2.txt', data: '2' }])
  assert.deepEqual(all.map((f) => f.path), ['/workspace/m/1.txt', '/workspace/m/2.txt'])
})
await works('files.read', async () => {
  assert.equal(await sbx.files.read('dir/a.txt'), 'hi')
  assert.deepEqual([...(await sbx.files.read('blob.bin', { format: 'bytes' }))], [0, 255, 10])
  assert.equal(await (await sbx.files.read('dir/a.txt', { format: 'blob' })).text(), 'hi')
  const chunks = []
  for await (const c of await sbx.files.read('dir/a.txt', { format: 'stream' })) chunks.push(c)
  assert.equal(text(chunks), 'hi')
  await sbx.files.write('empty', '')
  assert.equal(await sbx.files.read('empty'), '')
  await assert.rejects(sbx.files.read('nope'), NotFoundError)
})
await works('files.read and write, 20 MB', async () => {
  await sbx.files.write('large.bin', new Blob([new Uint8Array(20_000_000).fill(7)]))
  assert.equal((await sbx.files.read('large.bin', { format: 'bytes' })).length, 20_000_000)
  await sbx.files.remove('large.bin')
})
await works('files.list', async () => {
  const names = (await sbx.files.list('m')).map((e) => [e.name, e.type, e.path])
  assert.deepEqual(names.sort(), [['1.txt', 'file', '/workspace/m/1.txt'], ['2.txt', 'file', '/workspace/m/2.txt']])
  assert.ok((await sbx.files.list('.', { depth: 2 })).some((e) => e.path === '/workspace/m/1.txt'))
  await assert.rejects(sbx.files.list('nope'), NotFoundError)
})
await works('files.exists', async () => {
  assert.equal(await sbx.files.exists('dir/a.txt'), true)
  assert.equal(await sbx.files.exists('dir/b.txt'), false)
})
await works('files.getInfo', async () => {
  const info = await sbx.files.getInfo('dir/a.txt')
  assert.deepEqual([info.size, info.permissions, info.owner, info.type], [2, '-rw-r--r--', 'user', 'file'])
  await sbx.commands.run('ln -s a.txt dir/link')
  const link = await sbx.files.getInfo('dir/link')
  assert.deepEqual([link.type, link.symlinkTarget], ['file', '/workspace/dir/a.txt'])
})
await works('files.makeDir', async () => {
  assert.equal(await sbx.files.makeDir('x/y/z'), true)
  assert.equal(await sbx.files.makeDir('x/y/z'), false)
})
await works('files.rename', async () => {
  const info = await sbx.files.rename('m/1.txt', 'n/one.txt')
  assert.equal(info.path, '/workspace/n/one.txt')
  assert.equal(await sbx.files.exists('m/1.txt'), false)
  await assert.rejects(sbx.files.rename('nope', 'other'), NotFoundError)
})
await works('files.remove', async () => {
  await sbx.files.remove('n')
  assert.equal(await sbx.files.exists('n'), false)
})
await works('files.watchDir', async () => {
  const events = []
  const watch = await sbx.files.watchDir('dir', (e) => events.push(e.type + ' ' + e.name), { recursive: true })
  await sbx.commands.run('mkdir dir/sub && echo 1 >dir/w && mv dir/w dir/v && rm dir/v')
  await soon(() => events.includes('remove v'))
  for (const e of ['create w', 'write w', 'rename w', 'create v']) assert.ok(events.includes(e), `${e} is not in ${events}`)
  await watch.stop()
  await assert.rejects(sbx.files.watchDir('nope', () => {}), NotFoundError)
})
await works('sandbox.downloadUrl', async () => {
  const got = await fetch(await sbx.downloadUrl('dir/a.txt', { useSignatureExpiration: 60 }))
  assert.equal(await got.text(), 'hi')
  const other = (await sbx.downloadUrl('dir/a.txt')).replace('a.txt', 'b.txt')
  assert.equal((await fetch(other)).status, 401)
})
await works('sandbox.uploadUrl', async () => {
  const body = new FormData()
  body.append('file', new Blob(['uploaded']), 'up.txt')
  const put = await fetch(await sbx.uploadUrl('up.txt'), { method: 'POST', body })
  assert.equal(put.status, 200)
  assert.equal(await sbx.files.read('up.txt'), 'uploaded')
})

await works('pty', async () => {
  const got = []
  const pty = await sbx.pty.create({ cols: 80, rows: 24, onData: (d) => got.push(d), envs: { IN: 'pty' } })
  await sbx.pty.resize(pty.pid, { cols: 101, rows: 33 })
  await sbx.pty.sendInput(pty.pid, new TextEncoder().encode('echo "$(stty size) $IN"\n'))
  await soon(() => text(got).includes('33 101 pty'))
  assert.equal(await sbx.pty.kill(pty.pid), true)
})
await works('git', async () => {
  await sbx.git.init('repo')
  await sbx.git.configureUser('A', 'a@example.com', { scope: 'local', path: 'repo' })
  await sbx.files.write('repo/f', '1')
  await sbx.git.add('repo')
  await sbx.git.commit('repo', 'first')
  assert.equal((await sbx.commands.run('git -C repo log --format=%s')).stdout, 'first\n')
})

await works('sandbox.createSnapshot', async () => {
  await sbx.files.write('kept.txt', 'of the snapshot')
  const snapshot = await sbx.createSnapshot()
  await sbx.files.write('kept.txt', 'changed')
  const found = await sbx.listSnapshots().nextItems()
  assert.deepEqual(found.map((s) => s.snapshotId), [snapshot.snapshotId])
  const from = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 60_000 })
  assert.equal(await from.files.read('kept.txt'), 'of the snapshot')
  await from.kill()
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
})
await works('sandbox.fork', async () => {
  const forks = await sbx.fork({ count: 2, timeoutMs: 60_000 })
  assert.equal(forks.length, 2)
  for (const f of forks) {
    const one = f.sandbox ?? f
    assert.equal(await one.files.read('kept.txt'), 'changed')
    await one.kill()
  }
})
await works('sandbox.updateNetwork', async () => {
  await sbx.updateNetwork({ allowOut: ['api.example.com'], denyOut: ['0.0.0.0/0'] })
})
await works('Sandbox.create, its network', async () => {
  const one = await Sandbox.create({ timeoutMs: 60_000, network: { allowOut: ['api.example.com'], denyOut: ['0.0.0.0/0'] } })
  const info = await one.getInfo()
  assert.deepEqual(info.network?.allowOut, ['api.example.com'])
  await one.kill()
})
await refused('Sandbox.create, ranges of addresses', () => Sandbox.create({ network: { denyOut: ['198.51.100.0/24'] } }))
await refused('files.write, metadata', () => sbx.files.write('meta.txt', 'x', { metadata: { a: 'b' } }))
await refused('Volume.create', () => Volume.create('data'))
if (Secret) {
  const bySecret = (value) => ({ network: { allowOut: ['api.example.com'], rules: { 'api.example.com': [{ transform: { headers: { Authorization: value } } }] } } })
  await works('Secret.create', async () => {
    const made = await Secret.create('their-key', 'value')
    assert.deepEqual([made.name, made.version], ['their-key', 1])
    await assert.rejects(Secret.create('their-key', 'another'), SecretError)
  })
  await works('Secret.update', async () => assert.equal((await Secret.update('their-key', 'another')).version, 2))
  await works('Secret.getInfo', async () => {
    assert.equal((await Secret.getInfo('their-key')).version, 2)
    await assert.rejects(Secret.getInfo('nope'), SecretNotFoundError)
  })
  await works('Secret.exists', async () => assert.deepEqual([await Secret.exists('their-key'), await Secret.exists('nope')], [true, false]))
  await works('Secret.list', async () => assert.deepEqual((await Secret.list().nextItems()).map((s) => s.name), ['their-key']))
  await works('Sandbox.create, network.rules', async () => {
    const one = await Sandbox.create({ timeoutMs: 60_000, ...bySecret(`Bearer ${Secret.fill('their-key')}`) })
    assert.ok((await one.getInfo()).network.rules['api.example.com'])
    await one.updateNetwork({ allowOut: ['api.example.com'] })
    await one.kill()
  })
  await refused('Sandbox.create, network.rules of plain values', () => Sandbox.create(bySecret('plain')))
  await works('Secret.destroy', async () => assert.deepEqual([await Secret.destroy('their-key'), await Secret.destroy('their-key')], [true, false]))
}
await refused('Sandbox.create, mcp', () => Sandbox.create({ mcp: { duckduckgo: {} } }))

await works('sandbox.pause', async () => {
  assert.ok(await sbx.pause())
  assert.equal(await sbx.isRunning(), false)
  assert.equal((await sbx.getInfo()).state, 'paused')
  await assert.rejects(sbx.commands.run('true'))
  const again = await Sandbox.connect(sbx.sandboxId, { timeoutMs: 60_000 })
  assert.equal((await again.commands.run('cat kept.txt')).stdout, 'changed')
})
await works('sandbox.kill', async () => {
  assert.equal(await sbx.kill(), true)
  assert.equal(await sbx.kill(), false)
  assert.equal(await sbx.isRunning(), false)
  await assert.rejects(sbx.commands.run('true'))
  await assert.rejects(Sandbox.connect(sbx.sandboxId), NotFoundError)
})
await works('errors', async () => {
  await assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), AuthenticationError)
  await assert.rejects(Sandbox.create('no-such-template'), /no template/)
  await assert.rejects(Sandbox.connect('aaaaaaaaaaaaaaaaaaaa'), NotFoundError)
})
