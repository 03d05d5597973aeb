// What the sandbox backend for deep agents promises, in the words of the package's own
// tests: formats, limits and error codes; with State, Store and Composite backends of the
// package beside it. Prints a line of JSON for each method.
//
//	node backend.mjs
import assert from 'node:assert/strict'
import { InMemoryStore } from '@langchain/langgraph'
import { BaseSandbox, CompositeBackend, isSandboxBackend, StoreBackend } from 'deepagents'
import { SketeSandbox } from 'skete/deepagents'

const print = (line) => console.log(JSON.stringify(line))
async function works(method, call) {
  try {
    await call()
    print({ method, result: 'works' })
  } catch (e) {
    print({ method, result: 'fails', note: `${e?.name}: ${e?.stack ?? e?.message}`.slice(0, 900) })
  }
}
const bytes = (text) => new TextEncoder().encode(text)
const textOf = (data) => new TextDecoder().decode(data)
const numbered = (n) => Array.from({ length: n }, (_, i) => `Row_${i + 1}`).join('\n')
const dir = '/workspace/t'

const backend = await SketeSandbox.create()
const names = (list) => list.map((f) => f.path)

/** The package's own sandbox, in the same machine: what it does by a shell, ours has to do too. */
class Shell extends BaseSandbox {
  id = backend.id
  execute = (command) => backend.execute(command)
  uploadFiles = (files) => backend.uploadFiles(files)
  downloadFiles = (paths) => backend.downloadFiles(paths)
}
const shell = new Shell()

await works('a sandbox backend', async () => {
  assert.ok(isSandboxBackend(backend))
  assert.match(backend.id, /^sbx_/)
})
await works('execute', async () => {
  assert.deepEqual(await backend.execute('echo "hello"'), { output: 'hello\n', exitCode: 0, truncated: false })
  assert.equal((await backend.execute('exit 42')).exitCode, 42)
  assert.equal((await backend.execute('echo a; echo b >&2; echo c')).output, 'a\nc\nb\n')
  assert.equal((await backend.execute('export V="x y" && echo $V')).output, 'x y\n')
  assert.equal((await backend.execute('nonexistent_command_12345')).exitCode, 127)
  const small = new SketeSandbox(backend.sandbox, { timeoutMs: 300, outputBytesMax: 100 })
  assert.deepEqual(await small.execute('head -c 1000 /dev/zero | tr "\\0" x'), { output: 'x'.repeat(100), exitCode: 0, truncated: true })
  const late = await small.execute('echo first; sleep 60')
  assert.match(late.output, /^first\n\[ended: timeout\]$/)
  assert.notEqual(late.exitCode, 0)
})
await works('write', async () => {
  const path = `${dir}/deep/er/a.txt`
  assert.deepEqual(await backend.write(path, 'first'), { path, filesUpdate: null })
  for (const content of ['second', '', '\n\n\n', '$VAR `cmd` $(sub) \\ \t\'"', 'Hello 👋 世界 Привет مرحبا', numbered(1000)]) {
    assert.equal((await backend.write(path, content)).error, undefined)
    assert.equal(textOf((await backend.downloadFiles([path]))[0].content), content)
  }
  await backend.write(`${dir}//slashes///b.txt`, 'x')
  assert.equal((await backend.execute(`cat ${dir}/slashes/b.txt`)).output, 'x')
  await backend.write(`${dir}/with space/"c'.txt`, 'x')
  await backend.write(`${dir}/p.png`, Buffer.from([1, 0, 255]).toString('base64'))
  assert.deepEqual([...(await backend.downloadFiles([`${dir}/p.png`]))[0].content], [1, 0, 255])
  assert.match((await backend.write('/etc/x', 'x')).error, /permission_denied/)
  assert.match((await backend.write(dir, 'x')).error, /is_directory/)
  assert.match((await backend.write('/etc/passwd/x', 'x')).error, /invalid_path/)
})
await works('read', async () => {
  const path = `${dir}/read.txt`
  await backend.write(path, numbered(20))
  assert.deepEqual(await backend.read(path), { content: numbered(20), mimeType: 'text/plain', startLine: 1, endLine: 20, totalLines: 20 })
  const window = await backend.read(path, 10, 5)
  assert.deepEqual(window, { content: 'Row_11\nRow_12\nRow_13\nRow_14\nRow_15', mimeType: 'text/plain', startLine: 11, endLine: 15, totalLines: 20, nextOffset: 15 })
  assert.equal((await backend.read(path, 15, 5)).nextOffset, undefined)
  assert.equal((await backend.read(path, 0, 0)).content, '')
  assert.equal((await backend.read(path, -3, 1.9)).content, 'Row_1')
  assert.match((await backend.read(path, 20, 5)).error, /exceeds file length \(20 lines\)/)
  for (const end of ['', '\n']) {
    await backend.write(path, `a\nb${end}`)
    const { totalLines, endLine } = await backend.read(path)
    assert.deepEqual([totalLines, endLine], [2, 2])
  }
  await backend.write(path, '')
  assert.equal((await backend.read(path)).content, 'System reminder: File exists but has empty contents')
  await backend.write(path, `short\n${'x'.repeat(300_000)}\nend`)
  assert.equal((await backend.read(path, 1, 1)).content.length, 300_000)
  assert.match((await backend.read(`${dir}/none.txt`)).error, /not found/)
  assert.match((await backend.read('/workspace')).error, /is_directory/)
  const png = await backend.read(`${dir}/p.png`)
  assert.deepEqual([[...png.content], png.mimeType], [[1, 0, 255], 'image/png'])
  await backend.execute(`head -c 11000000 /dev/zero > ${dir}/big.png`)
  assert.match((await backend.read(`${dir}/big.png`)).error, /too large/)
  assert.deepEqual((await backend.readRaw(`${dir}/p.png`)).data.mimeType, 'image/png')
  assert.equal((await backend.readRaw(path)).data.content.length, 300_010)
})
await works('read, 200 MB', async () => {
  await backend.execute(`yes 'a line of some bytes' | head -c 200000000 > ${dir}/huge.log`)
  globalThis.gc?.()
  const before = process.memoryUsage().rss
  const r = await backend.read(`${dir}/huge.log`, 100, 2)
  assert.deepEqual([r.content, r.nextOffset, r.startLine], ['a line of some bytes\na line of some bytes', 102, 101])
  assert.ok(process.memoryUsage().rss - before < 60e6)
  await backend.delete(`${dir}/huge.log`)
})
await works('edit', async () => {
  const path = `${dir}/edit.txt`
  const edited = async (content, from, to, all) => {
    await backend.write(path, content)
    const r = await backend.edit(path, from, to, all)
    return [r.error ?? r.occurrences, textOf((await backend.downloadFiles([path]))[0].content)]
  }
  assert.deepEqual(await edited('Hello world\nGoodbye', 'Goodbye', 'Farewell'), [1, 'Hello world\nFarewell'])
  assert.deepEqual(await edited('a b a', 'a', 'c', true), [2, 'c b c'])
  assert.deepEqual(await edited('Price: $100', '$100', '$& $1'), [1, 'Price: $& $1'])
  assert.deepEqual(await edited('x [a-z]* y', '[a-z]*', '[0-9]+'), [1, 'x [0-9]+ y'])
  assert.deepEqual(await edited('1\n2\n3', '1\n2', '12'), [1, '12\n3'])
  assert.deepEqual(await edited('keep drop', ' drop', ''), [1, 'keep'])
  assert.deepEqual(await edited('Same', 'Same', 'Same'), [1, 'Same'])
  assert.deepEqual(await edited('👋 世界', '👋', '🌍'), [1, '🌍 世界'])
  assert.deepEqual(await edited('a\r\nb\r\n', 'b', 'c'), [1, 'a\r\nc\r\n'])
  assert.deepEqual(await edited('', '', 'new'), [1, 'new'])
  assert.match((await edited('apple apple', 'apple', 'pear'))[0], /Multiple occurrences/)
  assert.match((await edited('Hello', 'none', 'x'))[0], /String not found/)
  assert.match((await edited('Hello', '', 'x'))[0], /must not be empty/)
  assert.match((await backend.edit(`${dir}/none`, 'a', 'b')).error, /not found/)
  await backend.uploadFiles([[path, new Uint8Array([0xff, 0x61, 0x00, 0xfe])]])
  await backend.edit(path, 'a', 'b')
  assert.deepEqual([...(await backend.downloadFiles([path]))[0].content], [0xff, 0x62, 0x00, 0xfe])
})
await works('edit, many at once', async () => {
  const path = `${dir}/parallel.txt`
  await backend.write(path, Array.from({ length: 8 }, (_, i) => `<${i}>`).join('\n'))
  const results = await Promise.all(Array.from({ length: 8 }, (_, i) => backend.edit(path, `<${i}>`, `done ${i}`)))
  assert.deepEqual(results.map((r) => r.error ?? r.occurrences), Array(8).fill(1))
  assert.equal((await backend.read(path)).content, Array.from({ length: 8 }, (_, i) => `done ${i}`).join('\n'))
})
await works('ls', async () => {
  const base = `${dir}/ls`
  for (const name of ['b.txt', '.hidden', 'file(1).txt', 'with space', '测试']) await backend.write(`${base}/${name}`, 'xy')
  await backend.execute(`cd ${base} && mkdir sub && ln -s sub to-sub && ln -s b.txt to-file`)
  const { files, error } = await backend.ls(`${base}/`)
  assert.equal(error, undefined)
  const theirs = (await shell.ls(base)).files
  const plain = (list) => list.map((f) => [f.path, f.is_dir]).sort()
  assert.deepEqual(plain(files), plain(theirs))
  assert.deepEqual(files.find((f) => f.path.endsWith('b.txt')).size, 2)
  assert.ok(files.every((f) => !Number.isNaN(Date.parse(f.modified_at))))
  await backend.execute(`mkdir ${base}/none`)
  for (const path of [`${base}/none`, `${base}/nowhere`, `${base}/b.txt`]) assert.deepEqual(await backend.ls(path), { files: [] })
})
await works('glob', async () => {
  const base = `${dir}/glob`
  for (const name of ['file1.txt', 'file2.txt', 'fileA.txt', 'c.py', '.dot', 'a/b/deep.txt']) await backend.write(`${base}/${name}`, 'x')
  const relative = new SketeSandbox(backend.sandbox, { globPaths: 'relative' })
  for (const pattern of ['*.txt', '**/*.txt', '*', '.*', 'file[1-2].txt', 'file?.txt', '**/deep.txt', 'a/*/deep.txt', '*.none']) {
    const want = names((await shell.glob(pattern, base)).files).sort()
    assert.deepEqual(names((await relative.glob(pattern, base)).files).map((p) => p.replace(/\/$/, '')).sort(), want, pattern)
    assert.deepEqual(names((await backend.glob(pattern, base)).files).sort(), want.map((p) => `${base}/${p}`), pattern)
  }
  assert.deepEqual(names((await backend.glob('/a/**/*.txt', base)).files), [`${base}/a/b/deep.txt`])
  assert.deepEqual((await backend.glob('*', `${base}/nowhere`)).files, [])
  assert.ok((await backend.glob('..', base)).error)
})
await works('grep', async () => {
  const base = `${dir}/grep`
  await backend.write(`${base}/a.txt`, 'Hello world\nhello\nPrice: $100 [a-z]*\n世界')
  await backend.write(`${base}/sub/b.py`, 'x\nHello there')
  await backend.write(`${base}/c.png`, Buffer.from('Hello').toString('base64'))
  const found = async (...args) => (await backend.grep(...args)).matches.map((m) => `${m.path.slice(base.length + 1)}:${m.line}:${m.text}`)
  for (const [pattern, glob] of [['Hello'], ['hello'], ['$100'], ['[a-z]*'], ['世界'], ['Hello', '*.py'], ['none'], ['.']]) {
    const theirs = (await shell.grep(pattern, base, glob)).matches.map((m) => `${m.path.slice(base.length + 1)}:${m.line}:${m.text}`)
    assert.deepEqual((await found(pattern, base, glob)).sort(), theirs.sort(), pattern)
  }
  assert.deepEqual(await found('Hello', `${base}/a.txt`), ['a.txt:1:Hello world'])
  assert.deepEqual(await backend.grep('l', base, null, 1), { matches: [{ path: `${base}/a.txt`, line: 1, text: 'Hello world' }], truncated: true })
  assert.deepEqual(await backend.grep('x', `${base}/nowhere`), { matches: [] })
})
await works('delete', async () => {
  await backend.write(`${dir}/del/a/b`, 'x')
  assert.deepEqual(await backend.delete(`${dir}/del`), { path: `${dir}/del`, filesUpdate: null })
  assert.match((await backend.delete(`${dir}/del`)).error, /not found/)
  assert.match((await backend.delete('/etc/passwd')).error, /permission denied/)
})
await works('uploadFiles and downloadFiles', async () => {
  const many = Array.from({ length: 30 }, (_, i) => [`${dir}/up/${i}`, bytes(`content ${i}`)])
  assert.deepEqual(await backend.uploadFiles(many), many.map(([path]) => ({ path, error: null })))
  const got = await backend.downloadFiles(many.map(([path]) => path))
  assert.deepEqual(got.map((f) => [f.path, textOf(f.content), f.error]), many.map(([path, c]) => [path, textOf(c), null]))
  const large = new Uint8Array(10 << 20).map((_, i) => i * 13)
  await backend.uploadFiles([[`${dir}/large`, large]])
  assert.ok(Buffer.from(large).equals((await backend.downloadFiles([`${dir}/large`]))[0].content))
  const bad = [`${dir}/none`, dir, 'relative', '/proc/1/mem', '/etc/passwd/x']
  assert.deepEqual((await backend.downloadFiles(bad)).map((f) => f.error).filter((e, i) => i !== 3), ['file_not_found', 'is_directory', 'invalid_path', 'invalid_path'])
  await backend.execute(`echo x > ${dir}/secret; chmod 0 ${dir}/secret; mkdir ${dir}/ro; chmod 555 ${dir}/ro`)
  assert.equal((await backend.downloadFiles([`${dir}/secret`]))[0].error, 'permission_denied')
  const refused = await backend.uploadFiles([['/etc/x', bytes('x')], [dir, bytes('x')], ['relative', bytes('x')], [`${dir}/ro/x`, bytes('x')], [`${dir}/fine`, bytes('x')]])
  assert.deepEqual(refused.map((f) => f.error), ['permission_denied', 'is_directory', 'invalid_path', 'permission_denied', null])
})
await works('CompositeBackend, StoreBackend', async () => {
  const store = new InMemoryStore()
  const memories = new StoreBackend({ store, namespace: ['memories'] })
  const both = new CompositeBackend(backend, { '/workspace/memories/': memories })
  const note = '/workspace/memories/note.md'
  assert.ok(isSandboxBackend(both))
  assert.equal((await both.execute('echo x')).output, 'x\n')
  await both.write(note, 'remember Hello')
  await both.write(`${dir}/comp/a.md`, 'Hello here')
  assert.match((await both.read(note)).content, /remember/)
  assert.match((await backend.read(note)).error, /not found/)
  assert.deepEqual(names((await both.ls('/workspace/memories')).files), [note])
  assert.deepEqual(names((await both.glob('**/*.md', '/workspace')).files), [note, `${dir}/comp/a.md`])
  assert.deepEqual((await both.grep('Hello', '/workspace', '*.md')).matches.map((m) => m.path).sort(), [note, `${dir}/comp/a.md`])
  assert.deepEqual((await both.downloadFiles([`${dir}/comp/a.md`, note])).map((f) => f.error), [null, null])
  const routed = new CompositeBackend(memories, { '/machine/': backend })
  assert.deepEqual(names((await routed.glob('*.md', `/machine${dir}/comp`)).files), [`/machine${dir}/comp/a.md`])
  assert.equal((await routed.read(`/machine${dir}/comp/a.md`)).content, 'Hello here')
})
await works('undo and close', async () => {
  await backend.write('/workspace/undone.txt', 'x')
  await backend.undo()
  assert.match((await backend.read('/workspace/undone.txt')).error, /not found/)
  await backend.close()
  await assert.rejects(backend.execute('true'), (e) => ['NotFoundError', 'ConflictError'].includes(e.name))
  await assert.rejects(backend.downloadFiles(['/workspace/x']))
})
