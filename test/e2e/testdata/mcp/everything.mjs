// Calls every tool as a model's client does, and prints a line of JSON for each: whether
// it works, is refused, or fails.
//
//	node everything.mjs MODULES http|stdio
//
// MCP_URL, MCP_KEY and MCP_READER (a key that only reads) say where the server is, SKETE is
// the program, for stdio. With MCP_STEPS=killed it starts a command and waits for lines.
import assert from 'node:assert/strict'
import { createInterface } from 'node:readline'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [modules, way] = process.argv.slice(2)
const env = process.env
const load = (name) => import(pathToFileURL(createRequire(modules + '/').resolve('@modelcontextprotocol/sdk/' + name)))
const { Client } = await load('client/index.js')
const { StreamableHTTPClientTransport } = await load('client/streamableHttp.js')
const { StdioClientTransport } = await load('client/stdio.js')

async function connect(key) {
  const client = new Client({ name: 'their-editor', version: '7' })
  await client.connect(
    way === 'http'
      ? new StreamableHTTPClientTransport(new URL(env.MCP_URL + '/mcp'), { requestInit: { headers: { Authorization: `Bearer ${key}` } } })
      : new StdioClientTransport({ command: env.SKETE, args: ['mcp'], env: { ...env, SKETE_URL: env.MCP_URL, SKETE_KEY: key } }),
  )
  return client
}

const client = await connect(env.MCP_KEY)
const print = (line) => console.log(JSON.stringify(line))
const text = (res) => res.content.map((c) => c.text ?? '').join('\n')

// call returns the text of a result, and throws one that says that it failed.
async function call(name, args = {}, options) {
  const res = await client.callTool({ name, arguments: args }, undefined, options)
  if (res.isError) throw new Error(text(res))
  return text(res)
}
const parsed = async (name, args) => JSON.parse(await call(name, args))

const sandbox = (await parsed('sandbox_create', { name: `mcp-ts-${way}`, ttl_minutes: 10 })).id

if (env.MCP_STEPS === 'killed') {
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  const { process: name } = await parsed('exec', { sandbox, command: 'echo before; while [ ! -e go ]; do sleep 0.05; done; echo after; exit 7', background: true })
  const broken = call('exec', { sandbox, command: 'sleep 1000', timeout_seconds: 1000 }, { timeout: 15_000 }).catch((e) => e) // over stdio it goes on in the new server
  print({ sandbox })
  await lines.next() // the server was killed, and there is another
  const e = await broken
  assert.ok(e instanceof Error, `the call ended well: ${e}`)
  await call('file_write', { sandbox, path: 'go', content: '' })
  print({ output: await call('process_output', { sandbox, process: name, wait_seconds: 60 }) })
  process.exit(0)
}

async function works(method, f) {
  try {
    await f()
    print({ method, result: 'works' })
  } catch (e) {
    print({ method, result: 'fails', note: `${e?.name}: ${e?.message}`.slice(0, 500) })
  }
}
async function refused(method, f, says) {
  try {
    await f()
    print({ method, result: 'fails', note: 'it was not refused' })
  } catch (e) {
    print({ method, result: says.test(e?.message) ? 'refused' : 'fails', note: `${e?.name}: ${e?.message}`.slice(0, 500) })
  }
}
const soon = async (done) => {
  for (let i = 0; i < 400 && !(await done()); i++) await new Promise((r) => setTimeout(r, 50))
  assert.ok(await done(), 'it did not come')
}

await works('sandbox_create', async () => assert.match(sandbox, /^sbx_/))
await works('sandbox_list', async () => assert.ok((await parsed('sandbox_list')).items.some((s) => s.id === sandbox)))
await works('sandbox_get', async () => assert.match((await parsed('sandbox_get', { sandbox })).isolation, /^(user-kernel|microvm)/))
await works('exec', async () => assert.equal(await call('exec', { sandbox, command: 'pwd; cat', stdin: 'in\n' }), '/workspace\nin\n[exit code 0]'))
await works('exec, its time is up', async () => assert.match(await call('exec', { sandbox, command: 'sleep 100', timeout_seconds: 1 }), /timeout/))
await works('exec, progress', async () => {
  const heard = []
  await call('exec', { sandbox, command: 'sleep 1.5' }, { onprogress: (p) => heard.push(p.progress) })
  assert.deepEqual(heard, [1])
})
await works('exec, cancelled', async () => {
  const abort = new AbortController()
  const broken = call('exec', { sandbox, command: 'sleep 1001' }, { signal: abort.signal }).catch((e) => e)
  const running = async () => (await call('process_list', { sandbox, running: true })).includes('sleep 1001')
  await soon(running)
  abort.abort()
  assert.ok((await broken) instanceof Error)
  await soon(async () => !(await running()))
})
await works('exec, long output', async () => {
  const out = await call('exec', { sandbox, command: 'seq 1 100000', output_bytes_max: 1000 })
  const [, name, from] = /process_output with process (\S+) and stdout_from (\d+)/.exec(out)
  assert.match(await call('process_output', { sandbox, process: name, stdout_from: Number(from) }), /\n1000\n/)
})
let background
await works('exec, in the background', async () => {
  background = (await parsed('exec', { sandbox, command: 'echo one; cat; sleep 1000', stdin: 'two\n', background: true })).process
})
await works('process_output', async () => soon(async () => (await call('process_output', { sandbox, process: background })).startsWith('one\ntwo\n[running]')))
await works('process_list', async () => assert.ok((await parsed('process_list', { sandbox })).items.some((p) => p.process === background)))
await works('process_kill', async () => {
  await call('process_kill', { sandbox, process: background })
  assert.match(await call('process_output', { sandbox, process: background, wait_seconds: 30 }), /exit code 137/)
})
await works('file_write', async () => call('file_write', { sandbox, path: 'notes/ä.txt', content: 'one\ntwo\n' }))
await works('file_read', async () => assert.equal(await call('file_read', { sandbox, path: 'notes/ä.txt' }), 'one\ntwo\n'))
await works('file_edit', async () => {
  await call('file_edit', { sandbox, path: '/workspace/notes/ä.txt', old: 'two', new: '2' })
  assert.equal(await call('exec', { sandbox, command: 'cat notes/*' }), 'one\n2\n[exit code 0]')
})
await works('file_list', async () => assert.ok((await parsed('file_list', { sandbox, depth: 2 })).items.some((f) => f.path === '/workspace/notes/ä.txt')))
await works('file_stat', async () => assert.equal((await parsed('file_stat', { sandbox, path: 'notes/ä.txt' })).size, 6))
await works('file_search', async () => assert.equal(await call('file_search', { sandbox, pattern: '^o.e$' }), '/workspace/notes/ä.txt:1:one\n'))
await works('resources, a file', async () => {
  const { resourceTemplates } = await client.listResourceTemplates()
  assert.equal(resourceTemplates.length, 2)
  const { contents } = await client.readResource({ uri: `skete://sandbox/${sandbox}/workspace/notes/${encodeURIComponent('ä')}.txt` })
  assert.equal(contents[0].text, 'one\n2\n')
})
await works('file_remove', async () => call('file_remove', { sandbox, path: 'notes', recursive: true }))
await works('history_list', async () => {
  const { items } = await parsed('history_list', { sandbox })
  assert.match(items[0].who, /their-app by their-editor 7/)
})
await works('history_diff', async () => assert.match(await call('history_diff', { sandbox, revision: (await parsed('history_list', { sandbox })).current }), /remove notes\/ä.txt\n@@ -1,2 \+\d,0 @@\n-one\n-2\n/))
await works('history_undo', async () => {
  assert.deepEqual((await parsed('history_undo', { sandbox, preview: true })).files, ['add notes', 'add notes/ä.txt'])
  await call('history_undo', { sandbox })
  assert.equal(await call('file_read', { sandbox, path: 'notes/ä.txt' }), 'one\n2\n')
})
await works('service_start', async () => assert.equal((await parsed('service_start', { sandbox, name: 'web', command: 'echo up; exec python3 -m http.server 8080', ready_http: 8080 })).state, 'ready'))
await works('service_list', async () => assert.equal((await parsed('service_list', { sandbox }))[0].name, 'web'))
await works('service_logs', async () => assert.match(await call('service_logs', { sandbox, name: 'web' }), /^up\n/))
await works('preview_link', async () => assert.match((await parsed('preview_link', { sandbox, port: 8080 })).url, /^http/))
await works('service_stop', async () => assert.equal((await parsed('service_stop', { sandbox, name: 'web' })).state, 'stopped'))
let run
await works('run_start', async () => {
  run = (await parsed('run_start', { task: 'Act.', agent: 'careful', sandbox })).id
})
await works('run_follow', async () => assert.match(await call('run_follow', { run, wait_seconds: 60 }), /approval.asked/))
await works('run_list', async () => assert.equal((await parsed('run_list')).items[0].id, run))
await works('run_get', async () => {
  const { approvals } = await parsed('run_get', { run })
  assert.equal(approvals[0].args.command, 'echo original')
})
await works('run_decide', async () => {
  const { approvals } = await parsed('run_get', { run })
  await call('run_decide', { run, call: approvals[0].call, decision: 'approve' })
  assert.match(await call('run_follow', { run, wait_seconds: 60 }), /\[succeeded/)
})
await works('run_send', async () => {
  run = (await parsed('run_send', { run, text: 'Again.' })).run
})
await works('run_cancel', async () => {
  await call('run_follow', { run, wait_seconds: 60 })
  await call('run_cancel', { run })
  assert.match(await call('run_follow', { run, wait_seconds: 60 }), /\[(cancelled|succeeded)/)
})
await works('resources, a transcript', async () => {
  const { contents } = await client.readResource({ uri: `skete://run/${run}/transcript` })
  assert.ok(JSON.parse(contents[0].text).steps.length)
})
await works('sandbox_snapshot', async () => assert.match((await parsed('sandbox_snapshot', { sandbox, disk_only: true })).id, /^snp_/))
await works('sandbox_fork', async () => {
  const [{ id }] = await parsed('sandbox_fork', { sandbox, disk_only: true })
  assert.equal(await call('file_read', { sandbox: id, path: 'notes/ä.txt' }), 'one\n2\n')
  await call('sandbox_remove', { sandbox: id })
})
await works('sandbox_stop', async () => assert.equal((await parsed('sandbox_stop', { sandbox })).state, 'stopped'))
await works('sandbox_start', async () => assert.equal((await parsed('sandbox_start', { sandbox })).state, 'running'))
await works('sandbox_remove', async () => call('sandbox_remove', { sandbox }))
await refused('a sandbox that is not there', () => call('exec', { sandbox, command: 'true' }), /sbx_/)
await refused('arguments that do not fit', () => call('exec', { sandbox, command: 7 }), /schema/)
await refused('a tool that is not there', () => call('no_such_tool'), /no_such_tool/)
const reader = await connect(env.MCP_READER)
await works('a key that only reads', async () => {
  const { tools } = await reader.listTools()
  assert.ok(tools.length > 10 && tools.every((t) => t.annotations.readOnlyHint), 'it may write')
})
await refused('a key that only reads, exec', async () => {
  const res = await reader.callTool({ name: 'exec', arguments: { command: 'true' } })
  if (res.isError) throw new Error(text(res))
}, /needs the scope write/)
await refused('a wrong key', () => connect('e2b_' + '0'.repeat(40)), way === 'http' ? /key|401|Unauthorized/i : /closed/i)
await reader.close()
await client.close()
process.exit(0)
