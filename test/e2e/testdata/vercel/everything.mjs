// Calls what the SDK exports, as its documentation shows it, and prints a line of JSON
// for each method: whether it works, differs, is refused, or fails.
//
//	node everything.mjs MODULES
import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { access, sdk } from './client.mjs'

const { APIError, Command, CommandFinished, Drive, Sandbox, Session, Snapshot } = sdk
const print = (line) => console.log(JSON.stringify(line))

async function tried(method, call, result) {
  try {
    await call()
    print({ method, result })
  } catch (e) {
    print({ method, result: 'fails', note: `${e?.name}: ${e?.message} ${e?.stack}`.slice(0, 900) })
  }
}
const works = (method, call) => tried(method, call, 'works')
const differs = (method, call) => tried(method, call, 'differs')

// refused is of what is not supported: the error has to say so, in the SDK's own class.
const refused = (method, call, why = /not supported here/) =>
  tried(method, () => assert.rejects(call, (e) => e instanceof APIError && e.response.status < 500 && why.test(e.message)), 'refused')

const status = (n) => (e) => e instanceof APIError && e.response.status === n
const collect = () => {
  const to = new Writable({ write: (chunk, _, done) => ((to.text += chunk), done()) })
  to.text = ''
  return to
}

let sbx = await Sandbox.create({ ...access, name: 'first', ports: [3000], timeout: 600_000, env: { FROM: 'create' }, tags: { purpose: 'a test & more' } })

await works('Sandbox.create', async () => {
  assert.equal(sbx.name, 'first')
  assert.equal(sbx.status, 'running')
  assert.equal(sbx.timeout, 600_000)
  assert.equal(sbx.persistent, true)
  assert.deepEqual(sbx.tags, { purpose: 'a test & more' })
  assert.ok(sbx.expiresAt > new Date())
  assert.equal(await (await sbx.runCommand('printenv', ['FROM'])).stdout(), 'create\n')
})
await works('Sandbox.get', async () => {
  const again = await Sandbox.get({ ...access, name: 'first' })
  assert.equal(again.currentSession().sessionId, sbx.currentSession().sessionId)
  await assert.rejects(Sandbox.get({ ...access, name: 'nope' }), status(404))
})
await works('Sandbox.getOrCreate', async () => {
  let made = 0
  const one = await Sandbox.getOrCreate({ ...access, name: 'second', timeout: 60_000, onCreate: async () => { made++ } })
  const same = await Sandbox.getOrCreate({ ...access, name: 'second', onCreate: async () => { made++ } })
  assert.equal(made, 1)
  assert.equal(same.currentSession().sessionId, one.currentSession().sessionId)
})
await works('Sandbox.list', async () => {
  assert.deepEqual((await Sandbox.list({ ...access, tags: { purpose: 'a test & more' } })).sandboxes.map((s) => s.name), ['first'])
  const all = []
  for await (const s of await Sandbox.list({ ...access, limit: 1, sortBy: 'name', sortOrder: 'asc' })) all.push(s.name)
  assert.deepEqual(all, ['first', 'second'])
  assert.deepEqual(await (await Sandbox.list({ ...access, namePrefix: 'sec', sortBy: 'name' })).toArray().then((l) => l.map((s) => s.name)), ['second'])
})
await works('sandbox.delete', async () => {
  await (await Sandbox.get({ ...access, name: 'second' })).delete()
  await assert.rejects(Sandbox.get({ ...access, name: 'second' }), status(404))
})

await works('sandbox.runCommand', async () => {
  const to = collect()
  const r = await sbx.runCommand({ cmd: 'sh', args: ['-c', 'echo out; echo err >&2; pwd; echo $A; exit 3'], cwd: '/tmp', env: { A: 'b' }, stdout: to })
  assert.ok(r instanceof CommandFinished)
  assert.equal(r.exitCode, 3)
  assert.deepEqual([await r.stdout(), await r.stderr()], ['out\n/tmp\nb\n', 'err\n'])
  assert.equal(to.text, 'out\n/tmp\nb\n')
  assert.equal(await (await sbx.runCommand('pwd')).stdout(), sbx.cwd + '\n')
  assert.equal(await (await sbx.runCommand({ cmd: 'pwd', cwd: '/vercel/sandbox' })).stdout(), sbx.cwd + '\n')
  assert.equal((await sbx.runCommand('sh', ['-c', 'kill -9 $$'])).exitCode, 137)
  await assert.rejects(sbx.runCommand('no-such-program'), status(400))
  await assert.rejects(sbx.runCommand({ cmd: 'true', cwd: '/nowhere' }), status(400))
})
await works('sandbox.runCommand, its timeout', async () => {
  assert.equal((await sbx.runCommand('sleep', ['60'], { timeoutMs: 300 })).exitCode, 143)
})
await works('sandbox.runCommand, characters in parts', async () => {
  const r = await sbx.runCommand('sh', ['-c', "printf '\\303'; sleep 0.3; printf '\\274 \\342\\202'; sleep 0.3; printf '\\254'"])
  assert.equal(await r.stdout(), '\u00fc \u20ac')
})
await works('sandbox.runCommand, 50 MB of output', async () => {
  const r = await sbx.runCommand('sh', ['-c', 'head -c 50000000 /dev/zero | tr "\\0" x'])
  assert.equal((await r.stdout()).length, 50_000_000)
})
let detached
await works('sandbox.runCommand, detached', async () => {
  detached = await sbx.runCommand({ cmd: 'sh', args: ['-c', 'echo begun; while [ ! -e go ]; do sleep 0.05; done; echo done; exit 4'], detached: true })
  assert.ok(detached instanceof Command)
  assert.equal(detached.exitCode, null)
})
await works('sandbox.getCommand', async () => {
  const same = await sbx.getCommand(detached.cmdId)
  assert.deepEqual([same.cmdId, same.exitCode, same.cwd], [detached.cmdId, null, sbx.cwd])
  await assert.rejects(sbx.getCommand('nope'), status(404))
})
await works('command.logs', async () => {
  const got = []
  for await (const log of detached.logs()) {
    got.push(log)
    if (log.data === 'begun\n') await sbx.fs.writeFile('go', '')
  }
  assert.deepEqual(got, [{ stream: 'stdout', data: 'begun\n' }, { stream: 'stdout', data: 'done\n' }])
})
await works('command.wait', async () => assert.equal((await detached.wait()).exitCode, 4))
await works('command.output', async () => {
  assert.equal(await detached.stdout(), 'begun\ndone\n')
  assert.equal(await (await sbx.getCommand(detached.cmdId)).output('both'), 'begun\ndone\n')
})
await works('command.kill', async () => {
  const sleep = await sbx.runCommand({ cmd: 'sleep', args: ['60'], detached: true })
  await sleep.kill('SIGKILL')
  assert.equal((await sleep.wait()).exitCode, 137)
  await sleep.kill()
})

await works('sandbox.writeFiles', async () => {
  await sbx.writeFiles([
    { path: 'dir/a.txt', content: 'hi' },
    { path: '/vercel/sandbox/b.bin', content: new Uint8Array([0, 255, 10]) },
    { path: '/tmp/abs.txt', content: Buffer.from('abs') },
    { path: "it's a \u00fc name.txt", content: 'odd' },
    { path: 'run.sh', content: '#!/bin/sh\necho ran\n', mode: 0o755 },
    { path: 'deep/' + 'x'.repeat(120) + '/' + 'y'.repeat(120), content: 'long' },
  ])
  const r = await sbx.runCommand('sh', ['-c', 'cat dir/a.txt /tmp/abs.txt it*; wc -c <b.bin; ./run.sh; cat deep/*/*'])
  assert.equal(await r.output(), 'hiabsodd3\nran\nlong')
})
await works('sandbox.readFile', async () => {
  let text = ''
  for await (const part of await sbx.readFile({ path: 'dir/a.txt' })) text += part
  assert.equal(text, 'hi')
  assert.equal(await sbx.readFile({ path: 'nope' }), null)
  await assert.rejects(sbx.readFile({ path: 'dir' }), status(400))
})
await works('sandbox.readFileToBuffer', async () => {
  assert.deepEqual([...(await sbx.readFileToBuffer({ path: 'b.bin' }))], [0, 255, 10])
  assert.equal(String(await sbx.readFileToBuffer({ path: 'a.txt', cwd: '/vercel/sandbox/dir' })), 'hi')
})
await works('sandbox.readFile and writeFiles, 20 MB', async () => {
  await sbx.writeFiles([{ path: 'large.bin', content: Buffer.alloc(20_000_000, 7) }])
  assert.equal((await sbx.readFileToBuffer({ path: 'large.bin' })).length, 20_000_000)
})
await works('sandbox.downloadFile', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'vercel-'))
  const at = await sbx.downloadFile({ path: 'dir/a.txt' }, { path: 'sub/a', cwd: dir }, { mkdirRecursive: true })
  assert.equal(await readFile(at, 'utf8'), 'hi')
  await rm(dir, { recursive: true })
})
await works('sandbox.mkDir', async () => {
  await sbx.mkDir('made')
  assert.equal((await sbx.runCommand('test', ['-d', 'made'])).exitCode, 0)
  await assert.rejects(sbx.mkDir('made'), status(409))
  await assert.rejects(sbx.mkDir('no/parent'), status(400))
})
await works('sandbox.fs', async () => {
  const { fs } = sbx
  await fs.mkdir('f/g', { recursive: true })
  await fs.writeFile('f/1', 'one')
  await fs.appendFile('f/1', ' more')
  assert.equal(await fs.readFile('f/1', 'utf8'), 'one more')
  await assert.rejects(fs.readFile('f/2'), (e) => e.code === 'ENOENT')
  assert.deepEqual(await fs.readdir('f'), ['1', 'g'])
  const kinds = (await fs.readdir('f', { withFileTypes: true })).map((d) => [d.name, d.isDirectory()])
  assert.deepEqual(kinds.sort(), [['1', false], ['g', true]])
  assert.deepEqual([(await fs.stat('f/1')).size, (await fs.stat('f')).isDirectory()], [8, true])
  await fs.copyFile('f/1', 'f/2')
  await fs.rename('f/2', 'f/3')
  await fs.symlink('3', 'f/link')
  assert.deepEqual([await fs.readlink('f/link'), await fs.realpath('f/link')], ['3', sbx.cwd + '/f/3'])
  assert.equal((await fs.lstat('f/link')).isSymbolicLink(), true)
  await fs.chmod('f/3', 0o600)
  await fs.truncate('f/3', 3)
  assert.equal(await fs.readFile('f/3', 'utf8'), 'one')
  await fs.unlink('f/3')
  assert.equal(await fs.exists('f/3'), false)
  await fs.access('f/1')
  assert.match(await fs.mkdtemp('/tmp/t-'), /^\/tmp\/t-/)
  await fs.rmdir('f/g')
  await fs.rm('f', { recursive: true })
})

await differs('sandbox.domain', async () => {
  assert.match(sbx.domain(3000), /^https:\/\/3000-[a-z2-7]+\.use-sandbox-routes\.vercel\.run$/) // the SDK makes it
  const { url } = sbx.routes.find((r) => r.port === 3000)
  assert.match(url, /^https?:\/\/3000-/)
  assert.throws(() => sbx.domain(4000), /No route/)
})
await works('sandbox.extendTimeout', async () => {
  const before = sbx.currentSession().timeout
  await sbx.extendTimeout(120_000)
  const more = sbx.currentSession().timeout - before
  assert.ok(Math.abs(more - 120_000) < 2000, `${more}`)
})
await works('sandbox.update', async () => {
  await sbx.update({ timeout: 1_000_000, tags: { purpose: 'another' }, ports: [3000, 8080] })
  assert.deepEqual([sbx.timeout, sbx.tags, sbx.routes.map((r) => r.port)], [1_000_000, { purpose: 'another' }, [3000, 8080]])
  assert.ok(Math.abs(sbx.currentSession().timeout - 1_000_000) < 3000)
})
await works('sandbox.updateNetworkPolicy', async () => {
  await sbx.updateNetworkPolicy({ allow: ['api.example.com'] })
  assert.deepEqual(sbx.currentSession().networkPolicy, { allow: ['api.example.com'] })
  await sbx.updateNetworkPolicy('deny-all')
  assert.deepEqual(sbx.currentSession().networkPolicy, 'deny-all')
  await sbx.update({ networkPolicy: { allow: { 'api.example.com': [] }, subnets: { deny: ['198.51.100.7/32'] } } })
  assert.deepEqual(sbx.networkPolicy, { allow: ['api.example.com'], subnets: { deny: ['198.51.100.7/32'] } })
})
await works('session.update', () => sbx.currentSession().update({ networkPolicy: 'allow-all' }))
await differs('sandbox.listSessions', async () => {
  const all = await (await sbx.listSessions()).toArray()
  assert.deepEqual(all.map((s) => s.id), [sbx.currentSession().sessionId]) // it has one
  assert.ok(sbx.currentSession() instanceof Session)
})

let snapshot
await works('sandbox.snapshot', async () => {
  await sbx.fs.writeFile('kept.txt', 'of the snapshot')
  snapshot = await sbx.snapshot()
  assert.equal(snapshot.status, 'created')
  assert.equal(sbx.status, 'stopped')
})
await works('Sandbox.create, of a snapshot', async () => {
  const from = await Sandbox.create({ ...access, source: { type: 'snapshot', snapshotId: snapshot.snapshotId }, timeout: 60_000, persistent: false })
  assert.equal(String(await from.readFileToBuffer({ path: 'kept.txt' })), 'of the snapshot')
  assert.equal(from.sourceSnapshotId, snapshot.snapshotId)
  assert.equal((await from.stop()).status, 'stopped')
  await assert.rejects(from.runCommand('true'), status(404)) // it was not persistent
})
await works('Snapshot.get', async () => assert.equal((await Snapshot.get({ ...access, snapshotId: snapshot.snapshotId })).sourceSessionId, sbx.currentSession().sessionId))
await works('Snapshot.list', async () => {
  assert.deepEqual(await (await Snapshot.list({ ...access, name: 'first' })).toArray().then((l) => l.map((s) => s.id)), [snapshot.snapshotId])
  assert.deepEqual((await sbx.listSnapshots()).snapshots.map((s) => s.id), [snapshot.snapshotId])
})
await works('a stopped sandbox goes on', async () => {
  let resumed = 0
  const again = await Sandbox.get({ ...access, name: 'first', onResume: async () => { resumed++ } })
  assert.equal(again.status, 'stopped')
  await assert.rejects(again.currentSession().runCommand('true'), status(410))
  assert.equal(await (await again.runCommand('cat', ['kept.txt'])).stdout(), 'of the snapshot')
  assert.equal(resumed, 1)
  sbx = again
})
await differs('Sandbox.fork', async () => {
  const fork = await Sandbox.fork({ ...access, sourceSandbox: 'first', name: 'third', persistent: false })
  assert.equal(fork.persistent, false)
  assert.equal(String(await fork.readFileToBuffer({ path: 'kept.txt' })), 'of the snapshot')
  assert.equal(await (await fork.runCommand('printenv', ['FROM'])).stdout(), 'create\n')
  assert.deepEqual(fork.tags, { purpose: 'another' })
  await fork.delete()
})
await works('snapshot.delete', async () => {
  await snapshot.delete()
  assert.equal(snapshot.status, 'deleted')
  await assert.rejects(snapshot.delete(), status(404))
})
await works('Sandbox.create, its network policy', async () => {
  const one = await Sandbox.create({ ...access, persistent: false, networkPolicy: 'deny-all' })
  assert.equal(one.networkPolicy, 'deny-all')
  await one[Symbol.asyncDispose]()
})

await refused('sandbox.runCommand, sudo', () => sbx.runCommand({ cmd: 'id', sudo: true }), /root/)
await refused('sandbox.createUser', () => sbx.createUser('other'), /root/)
await refused('sandbox.createGroup', () => sbx.createGroup('other'), /root/)
await refused('sandbox.openInteractive', () => sbx.openInteractive())
await refused('Snapshot.tree', () => Snapshot.tree({ ...access, snapshotId: snapshot.snapshotId }))
await refused('Drive.getOrCreate', () => Drive.getOrCreate({ ...access, name: 'data' }))
await refused('Drive.list', () => Drive.list(access))
await refused('Sandbox.create, a runtime without a template', () => Sandbox.create({ ...access, runtime: 'node22' }), /no template of that name/)
await refused('Sandbox.create, a git source', () => Sandbox.create({ ...access, source: { type: 'git', url: 'https://git.example/r' } }))
await refused('Sandbox.create, a region', () => Sandbox.create({ ...access, region: 'fra1' }))
await refused('Sandbox.create, mounts', () => Sandbox.create({ ...access, mounts: { '/data': { drive: 'data', mode: 'snapshot' } } }))
await refused('Sandbox.create, a subnet', () => Sandbox.create({ ...access, networkPolicy: { subnets: { allow: ['10.0.0.0/8'] } } }))
await refused('Sandbox.create, rules of requests', () =>
  Sandbox.create({ ...access, networkPolicy: { allow: { 'api.example.com': [{ transform: [{ headers: { A: 'b' } }] }] } } }))
await refused('snapshot, its expiration', () => sbx.snapshot({ expiration: 86_400_000 }))

await works('sandbox.stop', async () => {
  const s = await sbx.stop()
  assert.equal(s.status, 'stopped')
  assert.ok(s.stoppedAt >= s.startedAt)
  await assert.rejects(sbx.extendTimeout.call({ ...sbx, withResume: (f) => f(), session: sbx.session }, 60_000), status(410))
  await sbx.delete()
  await assert.rejects(sbx.runCommand('true'), status(404))
})
await works('errors', async () => {
  await assert.rejects(Sandbox.create({ ...access, token: 'e2b_' + '0'.repeat(40) }), status(401))
  await assert.rejects(Sandbox.get({ ...access, name: 'sbx_aaaaaaaaaaaaaaaaaaaa' }), status(404))
  await assert.rejects(Snapshot.get({ ...access, snapshotId: 'snap_x' }), status(400))
})
process.exit(0)
