// Calls what the package skete exports, and prints a line of JSON for each method: whether
// it works or fails.
//
//	node client.mjs
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import * as sdk from 'skete'

const { Client, SketeError } = sdk
const print = (line) => console.log(JSON.stringify(line))

async function works(method, call) {
  try {
    await call()
    print({ method, result: 'works' })
  } catch (e) {
    print({ method, result: 'fails', note: `${e?.name}: ${e?.stack ?? e?.message}`.slice(0, 900) })
  }
}
const all = async (items) => {
  const list = []
  for await (const it of items) list.push(it)
  return list
}
const text = async (command, options) => {
  const out = { stdout: '', stderr: '' }
  for await (const c of command.output(options)) out[c.stream] += new TextDecoder().decode(c.data)
  return out
}
const fails = (promise, name, more = {}) =>
  assert.rejects(promise, (e) => {
    assert.equal(e.name, name, `${e.stack}`)
    assert.ok(e instanceof SketeError && e instanceof sdk[name])
    for (const [k, v] of Object.entries(more)) v instanceof RegExp ? assert.match(String(e[k]), v) : assert.equal(e[k], v)
    return true
  })
const soon = async (what) => {
  for (let i = 0; i < 600; i++) {
    const v = await what()
    if (v) return v
    await new Promise((r) => setTimeout(r, 25))
  }
  assert.fail('it did not come')
}

const skete = new Client()
const sandbox = await skete.sandboxes.create({ metadata: { purpose: 'a test & more' }, env: { FROM: 'create' } })

await works('new Client', async () => {
  assert.ok((await skete.info()).providers.some((p) => p.name === 'gvisor' && p.ok))
  assert.ok((await skete.templates()).some((t) => t.name === 'host'))
  assert.throws(() => new Client({ url: 'ftp://nowhere' }), sdk.InvalidError)
  assert.throws(() => new Client({ url: 'http://user:word@nowhere' }), sdk.InvalidError)
})
await works('new Client, over a unix socket', async () => {
  const local = new Client({ url: `unix://${process.env.SKETE_SOCKET}`, key: '' })
  assert.ok((await local.info()).version)
  const here = local.sandboxes.handle(sandbox.id)
  await here.files.write('by-socket', (async function* () { yield new TextEncoder().encode('a stream') })())
  assert.equal(await here.files.readText('by-socket'), 'a stream')
  await fails(here.files.read('none'), 'NotFoundError')
  await here.files.remove('by-socket')
})
await works('errors', async () => {
  await fails(new Client({ key: `e2b_${'0'.repeat(40)}` }).info(), 'DeniedError', { class: 'denied', status: 401, hint: /skete key create/ })
  await fails(new Client({ key: 'none' }).info(), 'DeniedError', { status: 401 })
  await fails(skete.sandboxes.get('sbx_aaaaaaaaaaaaaaaaaaaa'), 'NotFoundError', { class: 'not_found', status: 404, hint: /skete vm list/ })
  await fails(skete.sandboxes.create({ template: 'nowhere' }), 'NotFoundError', { hint: /skete template/ })
  await fails(skete.sandboxes.create({ cpus: -1 }), 'InvalidError', { status: 400 })
  await fails(skete.sandboxes.create({ unknown: 1 }), 'InvalidError', { message: /unknown/ })
  const away = new Client({ url: 'http://127.0.0.1:9', reconnectMs: 200 })
  await fails(away.info(), 'UnavailableError', { class: 'unavailable', status: 0, hint: /skete serve/ })
})
await works('errors, of another tenant', async () => {
  const other = new Client({ key: process.env.OTHER_KEY })
  const theirs = other.sandboxes.handle(sandbox.id)
  const calls = [
    () => theirs.get(), () => theirs.run('true'), () => theirs.files.read('x'), () => theirs.history.page(), () => theirs.history.undo(),
    () => theirs.exec('true'), () => theirs.remove(), () => theirs.fork(),
  ]
  for (const call of calls) await fails(call(), 'NotFoundError')
  assert.deepEqual(await all(other.sandboxes.list()), [])
})
await works('signal', async () => {
  const gone = AbortSignal.abort(new Error('no time'))
  const signal = { signal: gone }
  const calls = [
    () => skete.info(signal), () => sandbox.run('true', signal), () => sandbox.files.read('x', signal), () => all(sandbox.files.list('.', signal)),
    () => sandbox.history.undo(signal), () => all(skete.events(signal)),
  ]
  for (const call of calls) await assert.rejects(call(), { message: 'no time' })
  const leave = new AbortController()
  const run = sandbox.run('echo $$ > pid; exec sleep 300', { signal: leave.signal })
  await soon(() => sandbox.files.exists('pid'))
  leave.abort(new Error('enough'))
  await assert.rejects(run, { message: 'enough' })
  await soon(async () => (await all(sandbox.commands())).every((p) => p.state !== 'running'))
  await sandbox.files.remove('pid')
})

await works('sandboxes.create', async () => {
  assert.match(sandbox.id, /^sbx_/)
  assert.equal(sandbox.info.state, 'running')
  assert.equal((await sandbox.run('echo $FROM')).stdout, 'create\n')
})
await works('sandboxes.get', async () => assert.equal((await skete.sandboxes.get(sandbox.id)).id, sandbox.id))
await works('sandboxes.list', async () => {
  assert.deepEqual((await all(skete.sandboxes.list({ metadata: { purpose: 'a test & more' }, state: 'running' }))).map((s) => s.id), [sandbox.id])
  assert.deepEqual(await all(skete.sandboxes.list({ metadata: { purpose: 'another' } })), [])
})
await works('sandbox.update', async () => {
  await sandbox.update({ name: 'renamed', metadata: { a: 'b' } })
  const { name, metadata } = await (await skete.sandboxes.get('renamed')).get()
  assert.deepEqual([name, metadata], ['renamed', { a: 'b' }])
})
await works('sandbox.stop and start', async () => {
  await sandbox.files.write('kept', 'x')
  assert.equal((await sandbox.stop()).state, 'stopped')
  await fails(sandbox.run('true'), 'ConflictError')
  assert.equal((await sandbox.start()).state, 'running')
  assert.equal(await sandbox.files.readText('kept'), 'x')
})
await works('sandbox.metrics', async () => assert.ok((await sandbox.metrics()).mem_total_bytes > 0))
await works('sandbox.network', async () => {
  const none = await skete.sandboxes.create({ network: 'none' })
  await none.network()
  await none.remove()
})

await works('sandbox.run', async () => {
  const r = await sandbox.run('echo out; echo err >&2; pwd; echo $A', { env: { A: 'b' }, cwd: '/tmp' })
  assert.deepEqual([r.exitCode, r.stdout, r.stderr, r.truncated], [0, 'out\n/tmp\nb\n', 'err\n', false])
  assert.equal((await sandbox.run('exit 3')).exitCode, 3)
  assert.equal((await sandbox.run(['printf', '%s', "it's $HOME"])).stdout, "it's $HOME")
  assert.equal((await sandbox.run({ language: 'python', code: 'print(6*7)' })).stdout, '42\n')
  assert.equal((await sandbox.run('cat', { stdin: 'hello' })).stdout, 'hello')
  const raw = await sandbox.run('cat', { stdin: new Uint8Array([0, 255, 10]) })
  assert.deepEqual([...raw.stdoutBytes], [0, 255, 10])
  const none = await sandbox.run(['nowhere'])
  assert.deepEqual([none.exitCode, none.notStarted], [127, true])
  const late = await sandbox.run('sleep 60', { timeoutMs: 300 })
  assert.equal(late.reason, 'timeout')
  const long = await sandbox.run('head -c 5000 /dev/zero', { outputBytesMax: 100 })
  assert.deepEqual([long.stdoutBytes.length, long.truncated], [100, true])
})
await works('sandbox.run, with a key', async () => {
  const once = () => sandbox.run('echo x >> times; wc -l < times', { key: 'only-once' })
  const [a, b] = await Promise.all([once(), once()])
  assert.deepEqual([a.stdout.trim(), b.stdout.trim(), (await once()).stdout.trim()], ['1', '1', '1'])
  await sandbox.files.remove('times')
})
await works('sandbox.run, many at once', async () => {
  const numbers = Array.from({ length: 24 }, (_, i) => i)
  const outs = await Promise.all(numbers.map((n) => sandbox.run(`echo ${n}`)))
  assert.deepEqual(outs.map((r) => Number(r.stdout)), numbers)
})
await works('sandbox.exec and output', async () => {
  const c = await sandbox.exec('for i in $(seq 20000); do echo line $i; done; echo err >&2; exit 5')
  const out = await text(c)
  assert.equal(out.stdout, Array.from({ length: 20_000 }, (_, i) => `line ${i + 1}\n`).join(''))
  assert.equal(out.stderr, 'err\n')
  assert.deepEqual([c.info.state, c.info.exit.code, (await c.wait()).code], ['exited', 5, 5])
  assert.equal((await text(sandbox.command(c.key), { stdoutFrom: 20 })).stdout, out.stdout.slice(20))
  assert.equal((await text(c, { stdoutFrom: -1, stderrFrom: -1 })).stdout, '')
  await c.forget()
  await fails(c.get(), 'NotFoundError')
})
await works('sandbox.exec, 30 MB of output', async () => {
  const c = await sandbox.exec('head -c 30000000 /dev/urandom | tee random | cat')
  const sum = createHash('sha256')
  let size = 0
  for await (const chunk of c.output()) {
    assert.equal(chunk.offset, size)
    sum.update(chunk.data)
    size += chunk.data.length
  }
  assert.equal(size, 30_000_000)
  assert.equal(sum.digest('hex'), (await sandbox.files.stat('random', { hash: true })).sha256)
  await sandbox.files.remove('random')
})
await works('command.write and closeStdin', async () => {
  const c = await sandbox.exec('sha256sum', { stdin: true })
  const data = new Uint8Array(3_000_000).map((_, i) => i * 7)
  await Promise.all([c.write(data.subarray(0, 1_000_000)), c.write(data.subarray(1_000_000)), c.closeStdin()])
  assert.ok((await text(c)).stdout.startsWith(createHash('sha256').update(data).digest('hex')))
})
await works('command.kill and signal', async () => {
  const c = await sandbox.exec('trap "echo caught; exit 9" USR1; echo ready; while :; do sleep 0.05; done')
  await soon(async () => (await text(c, { follow: false })).stdout === 'ready\n')
  await c.signal(10)
  assert.equal((await c.wait()).code, 9)
  const d = await sandbox.exec('sleep 300', { background: true })
  await d.kill()
  const exit = await d.wait()
  assert.deepEqual([exit.code, exit.signal], [137, 9])
})
await works('command, in a terminal', async () => {
  const c = await sandbox.exec('stty size; read x; stty size', { stdin: true, terminal: { cols: 80, rows: 24 } })
  await soon(async () => (await text(c, { follow: false })).stdout.includes('24 80'))
  await c.resize({ cols: 100, rows: 30 })
  await c.write('\n')
  assert.match((await text(c)).stdout, /30 100/)
})
await works('sandbox.commands', async () => assert.ok((await all(sandbox.commands())).every((p) => p.state === 'exited')))

const files = sandbox.files
await works('files.write and read', async () => {
  const written = await files.write('dir/a.txt', 'héllo', { parents: true, mode: 0o600 })
  assert.deepEqual([written.size, written.mode], [6, 0o600])
  assert.equal(await files.readText('dir/a.txt'), 'héllo')
  assert.equal(await files.readText('dir/a.txt', { offset: 3, length: 2 }), 'll')
  await files.write('dir/a.txt', '!', { append: true })
  await files.write('dir/a.txt', 'H', { offset: 0 })
  assert.equal(await files.readText('/workspace/dir/a.txt'), 'Héllo!')
  await files.write('dir/b', new Blob(['blob']))
  assert.equal(await files.readText('dir/b'), 'blob')
  await files.write('dir/empty', '')
  assert.equal((await files.read('dir/empty')).length, 0)
  await fails(files.write('dir/b', 'x', { ifAbsent: true }), 'ExistsError').catch(() => fails(files.write('dir/b', 'x', { ifAbsent: true }), 'ConflictError'))
  await fails(files.write('dir/b', 'x', { ifSha256: '0'.repeat(64) }), 'ConflictError')
  await files.write('dir/b', 'y', { ifSha256: (await files.stat('dir/b', { hash: true })).sha256 })
  await fails(files.read('dir'), 'InvalidError', { message: /directory/ })
  await fails(files.write('/etc/x', 'x'), 'DeniedError', { status: 403 })
})
await works('files.write and stream, 100 MB', async () => {
  const piece = new Uint8Array(1 << 20).map((_, i) => i * 31)
  const sum = createHash('sha256')
  let most = 0
  const look = () => (most = Math.max(most, process.memoryUsage().rss))
  globalThis.gc?.()
  const before = process.memoryUsage().rss
  await files.write('large', (async function* () {
    for (let i = 0; i < 100; i++) {
      sum.update(piece)
      look()
      yield piece
    }
  })())
  const want = sum.digest('hex')
  const got = createHash('sha256')
  for await (const chunk of await files.stream('large')) {
    got.update(chunk)
    look()
  }
  assert.equal(got.digest('hex'), want)
  assert.ok(most - before < 60e6, `it took ${(most - before) / 1e6} MB`)
  await files.remove('large')
})
await works('files.stat and exists', async () => {
  const s = await files.stat('dir')
  assert.deepEqual([s.type, s.name, await files.exists('dir'), await files.exists('nowhere')], ['directory', 'dir', true, false])
})
await works('files.list', async () => {
  assert.deepEqual((await all(files.list('dir'))).map((f) => f.name), ['a.txt', 'b', 'empty'])
  await sandbox.run('mkdir many && cd many && touch $(seq 1 2500)')
  assert.equal((await all(files.list('many'))).length, 2500)
  await files.remove('many', { recursive: true })
})
await works('files.mkdir, move, copy and remove', async () => {
  await files.mkdir('m/n', { parents: true })
  await files.copy('dir/a.txt', 'm/n/a')
  await files.move('m/n/a', 'm/n/b')
  await fails(files.move('m/n/b', 'dir/b'), 'ExistsError')
  await files.move('m/n/b', 'dir/b', { overwrite: true })
  await fails(files.remove('m'), 'ExistsError')
  assert.equal(await files.remove('m', { recursive: true }), 2)
  await fails(files.remove('m'), 'NotFoundError')
  assert.equal(await files.remove('m', { missingOK: true }), 0)
})
await works('files.chmod and symlink', async () => {
  assert.equal((await files.chmod('dir/b', 0o755)).mode, 0o755)
  await files.symlink('b', 'dir/link')
  assert.deepEqual([(await files.stat('dir/link')).type, (await files.stat('dir/link', { follow: true })).type], ['symlink', 'file'])
})
await works('files.glob and grep', async () => {
  assert.deepEqual((await files.glob('**/*.txt')).items.map((f) => f.path), ['/workspace/dir/a.txt'])
  assert.deepEqual((await files.grep('l+o', { base: 'dir' })).items.map((m) => m.line), [1, 1])
  assert.deepEqual((await files.grep('l+o', { base: 'dir', literal: true })).items, [])
})
await works('files.watch', async () => {
  const leave = new AbortController()
  const seen = []
  const watching = (async () => {
    for await (const ev of files.watch('dir', { signal: leave.signal })) seen.push(ev)
  })().catch((e) => e)
  await soon(async () => {
    await files.write('dir/watched', 'x')
    return seen.some((ev) => ev.path.endsWith('watched'))
  })
  leave.abort()
  assert.equal((await watching).name, 'AbortError')
})
await works('files.upload and download', async () => {
  const tar = await files.download('dir')
  await files.mkdir('copy')
  await files.upload('copy', tar)
  assert.equal(await files.readText('copy/a.txt'), await files.readText('dir/a.txt'))
  await files.remove('copy', { recursive: true })
})

const history = sandbox.history
await works('history.undo and redo', async () => {
  await files.write('u.txt', 'one')
  await sandbox.run('echo two > u.txt')
  assert.deepEqual((await history.undo()).files.map((f) => f.path), ['u.txt'])
  assert.equal(await files.readText('u.txt'), 'one')
  await history.redo()
  assert.equal(await files.readText('u.txt'), 'two\n')
})
await works('history.list, page and get', async () => {
  const list = await all(history.list())
  assert.ok(list.some((r) => r.who.includes('their-app') && r.title.includes('u.txt')))
  const { items, current, undo } = await history.page({ pageSize: 1 })
  assert.ok(items.length === 1 && current > 0 && undo > 0)
  assert.ok((await history.get(list.at(-1).n)).n === list.at(-1).n)
})
await works('history.diff', async () => {
  const n = (await history.snapshot('now')).n
  await files.write('u.txt', 'two\nthree\n')
  const diff = await history.diff(n, 0, { hunks: true })
  assert.deepEqual(diff.files.map((f) => [f.path, f.action]), [['u.txt', 'change']])
  assert.ok(diff.files[0].hunks[0].lines.some((l) => l.kind === 'add' && l.text === 'three'))
})
await works('history.restore, revert, of and stream', async () => {
  const first = (await history.of('u.txt')).items.at(-1).n
  let was = ''
  for await (const c of await history.stream(first, 'u.txt')) was += new TextDecoder().decode(c)
  assert.equal(was, 'one')
  await history.restore(first, { path: 'u.txt' })
  assert.equal(await files.readText('u.txt'), 'one')
  await files.write('v.txt', 'v')
  const n = (await history.of('v.txt')).items[0].n
  await files.write('w.txt', 'w')
  await history.revert(n)
  assert.deepEqual([await files.exists('v.txt'), await files.exists('w.txt')], [false, true])
})
await works('sandbox.fork', async () => {
  const [fork] = await sandbox.fork({ disk_only: true })
  await fork.files.write('u.txt', 'of the fork')
  assert.equal(await files.readText('u.txt'), 'one')
  await fork.remove()
})
await works('sandbox.snapshot', async () => {
  const snapshot = await sandbox.snapshot({ disk_only: true })
  const again = await skete.sandboxes.create({ from: snapshot.id })
  assert.equal(await again.files.readText('u.txt'), 'one')
  await again.remove()
  assert.ok((await skete.snapshots.list()).some((s) => s.id === snapshot.id))
  await skete.snapshots.remove(snapshot.id)
  await fails(skete.snapshots.get(snapshot.id), 'NotFoundError')
})

await works('runs.start, events and wait', async () => {
  const run = await skete.runs.start({ task: 'a-task-of-ours', sandbox: sandbox.id })
  const events = await all(run.events())
  assert.deepEqual(events.map((e) => e.seq), events.map((_, i) => events[0].seq + i))
  const ended = await run.wait()
  assert.deepEqual([ended.state, ended.text], ['succeeded', 'It is done.'])
  const later = await all(run.events({ from: events[2].seq }))
  assert.deepEqual(later.map((e) => e.seq), events.slice(2).map((e) => e.seq))
  assert.equal((await all(run.events({ follow: false }))).length, events.length)
  assert.ok((await all(run.live())).at(-1).end)
  assert.ok((await run.transcript()).steps.length > 0)
  assert.ok((await all(skete.runs.list())).some((r) => r.id === run.id))
  assert.equal(await files.readText('by-run'), 'run\n')
  await sandbox.history.undo({ scope: 'run', run: run.id })
  assert.equal(await files.exists('by-run'), false)
})
const careful = { description: 'Asks before it acts.', approvals: [{ action: 'ask', tools: ['execute'], reason: 'acts' }] }
await works('run.approvals and respond', async () => {
  const run = await skete.runs.start({ task: 'a-question-of-ours', sandbox: sandbox.id, definition: careful })
  const [a] = await soon(async () => {
    const list = await run.approvals()
    return list.length && list
  })
  assert.ok((await skete.runs.approvals()).some((b) => b.call === a.call))
  await run.respond(a, 'blue')
  assert.equal((await run.wait()).text, 'You said blue.')
  await fails(run.respond(a, 'red'), 'ConflictError')
})
await works('run.cancel', async () => {
  const run = await skete.runs.start({ task: 'a-question-of-ours', sandbox: sandbox.id, definition: careful })
  await soon(async () => (await run.approvals()).length)
  await run.cancel('no need')
  assert.equal((await run.wait()).state, 'cancelled')
  await fails(skete.runs.get(run.id.slice(0, -1) + (run.id.endsWith('a') ? 'b' : 'a')), 'NotFoundError')
  await fails(skete.runs.get('nowhere'), 'InvalidError')
})
await works('events', async () => {
  const leave = new AbortController()
  for await (const ev of skete.events({ from: 1, kind: 'sandbox', signal: leave.signal })) {
    assert.ok(ev.seq > 0)
    break
  }
  leave.abort()
})
await works('sandbox.remove', async () => {
  await sandbox.remove()
  await fails(sandbox.run('true'), 'NotFoundError').catch(() => fails(sandbox.run('true'), 'ConflictError'))
})
