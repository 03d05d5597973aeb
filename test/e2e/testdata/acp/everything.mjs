// Is an editor, by the protocol's own client, and prints a line of JSON for each method and
// update: whether it works, is refused, or fails.
//
//	node everything.mjs MODULES DIRECTORY [killed]
//
// SKETE is the program, SKETE_URL and SKETE_KEY the server. With killed it starts a prompt,
// prints its session, and waits for lines.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { createRequire } from 'node:module'
import { Readable, Writable } from 'node:stream'
import { pathToFileURL } from 'node:url'

const [modules, dir, steps] = process.argv.slice(2)
const env = process.env
const acp = await import(pathToFileURL(createRequire(modules + '/').resolve('@agentclientprotocol/sdk')))
const { agent: theirs, client: ours } = acp.methods
const print = (line) => console.log(JSON.stringify(line))

// An editor: what it was told, its buffers, and what its person chooses.
class Editor {
  updates = []
  asked = []
  buffers = new Map()
  written = []
  choose = () => 'allow'

  constructor(args = [], more = {}) {
    this.child = spawn(env.SKETE, ['acp', '--agent', 'careful', ...args], { env: { ...env, ...more }, stdio: ['pipe', 'pipe', 'inherit'] })
    const app = acp
      .client({ name: 'their-editor' })
      .onNotification(ours.session.update, ({ params }) => void this.updates.push(params.update))
      .onRequest(ours.session.requestPermission, async ({ params }) => {
        this.asked.push(params)
        const chosen = await this.choose(params)
        if (!chosen) return { outcome: { outcome: 'cancelled' } }
        const option = params.options.find((o) => o.optionId === chosen)
        assert.ok(option, `there is no ${chosen}`)
        return { outcome: { outcome: 'selected', optionId: chosen } }
      })
      .onRequest(ours.fs.readTextFile, ({ params }) => ({ content: this.buffers.get(params.path) ?? readFileSync(params.path, 'utf8') }))
      .onRequest(ours.fs.writeTextFile, ({ params }) => {
        this.written.push(params.path)
        writeFileSync(params.path, params.content)
        return {}
      })
    this.connection = app.connect(acp.ndJsonStream(Writable.toWeb(this.child.stdin), Readable.toWeb(this.child.stdout)))
    this.agent = this.connection.agent
  }
  initialize() {
    return this.agent.request(theirs.initialize, {
      protocolVersion: 1,
      clientInfo: { name: 'their-editor', version: '7' },
      clientCapabilities: { fs: { readTextFile: true, writeTextFile: true } },
    })
  }
  // prompt says something and returns why it ended and what was told.
  async prompt(sessionId, ...blocks) {
    this.updates = []
    this.asked = []
    const res = await this.agent.request(theirs.session.prompt, { sessionId, prompt: blocks.map((b) => (typeof b === 'string' ? { type: 'text', text: b } : b)) })
    return res.stopReason
  }
  of = (kind) => this.updates.filter((u) => u.sessionUpdate === kind)
  text = (kind = 'agent_message_chunk') => this.of(kind).map((u) => u.content.text).join('')
  async until(what, f) {
    for (let i = 0; i < 1200; i++) {
      const got = f()
      if (got) return got
      await new Promise((r) => setTimeout(r, 50))
    }
    throw new Error(`it did not happen: ${what}; ${JSON.stringify(this.updates.slice(-3))}`)
  }
  // end closes stdin: the program ends by itself.
  end() {
    const gone = new Promise((r) => this.child.on('exit', r))
    this.child.stdin.end()
    return gone
  }
}

const results = []
async function step(name, f) {
  try {
    await f()
    print({ method: name, result: 'works' })
  } catch (e) {
    print({ method: name, result: 'fails', note: String(e?.stack ?? e) + JSON.stringify(e?.data ?? '') })
  }
}
async function refused(f, code, says) {
  const err = await f().then(
    (res) => assert.fail(`it was not refused: ${JSON.stringify(res)}`),
    (e) => e,
  )
  assert.equal(err.code, code, `${err.code} ${err.message}`)
  assert.match(err.message + JSON.stringify(err.data ?? ''), says)
}
const at = (name) => join(dir, name)
const read = (name) => readFileSync(at(name), 'utf8')
const open = (editor, cwd = dir, mcpServers = []) => editor.agent.request(theirs.session.new, { cwd, mcpServers })

if (steps === 'killed') {
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  const editor = new Editor()
  await editor.initialize()
  const { sessionId } = await open(editor)
  const answer = editor.prompt(sessionId, 'slowly')
  await editor.until('the command runs', () => editor.of('tool_call_update').find((u) => u.status === 'in_progress'))
  print({ session: sessionId })
  await lines.next() // the server was killed and started again
  writeFileSync(at('unrelated.txt'), 'x')
  print({ stop: await answer, text: editor.text() })
  // The editor's agent is killed, and the session is loaded by another.
  const gone = editor.prompt(sessionId, 'again').catch(() => 'gone')
  await editor.until('the command runs', () => editor.of('tool_call_update').find((u) => u.status === 'in_progress'))
  editor.child.kill('SIGKILL')
  assert.equal(await gone, 'gone')
  const other = new Editor()
  await other.initialize()
  await other.agent.request(theirs.session.load, { sessionId, cwd: dir, mcpServers: [] })
  print({ loaded: other.text('user_message_chunk') })
  await lines.next() // the command was let go
  await other.until('the end is told', () => other.text().includes('Twice'))
  other.choose = () => 'reject'
  print({ stop: await other.prompt(sessionId, 'thanks'), text: other.text() })
  await other.end()
  process.exit(0)
}

mkdirSync(at('.git/hooks'), { recursive: true })
mkdirSync(at('sub'))
writeFileSync(at('.gitignore'), '*.log\n')
writeFileSync(at('readme.md'), 'hello\nworld\n')
writeFileSync(at('secret.log'), 'not for the agent\n')
writeFileSync(at('sub/old.txt'), 'old\n')
symlinkSync('/etc/passwd', at('passwd'))

const editor = new Editor()
let id
await step('initialize', async () => {
  const res = await editor.initialize()
  assert.equal(res.protocolVersion, 1)
  assert.ok(res.agentCapabilities.loadSession && res.agentCapabilities.sessionCapabilities.list)
  assert.equal(res.authMethods[0].id, 'key')
})
await step('authenticate', async () => {
  await editor.agent.request(theirs.authenticate, { methodId: 'key' })
  await refused(() => editor.agent.request(theirs.authenticate, { methodId: 'password' }), -32602, /password/)
  const stranger = new Editor([], { SKETE_KEY: 'e2b_' + '0'.repeat(40) })
  await stranger.initialize()
  await refused(() => open(stranger), -32000, /key/)
  await stranger.end()
})
await step('session/new', async () => {
  id = (await open(editor, dir, [{ name: 'theirs', command: '/bin/true', args: [], env: [] }])).sessionId
  await editor.until('commands are told', () => editor.of('available_commands_update').length)
  await refused(() => open(editor, 'relative'), -32602, /absolute/)
  await refused(() => open(editor, at('nothing')), -32602, /not there/)
})
await step('session/prompt', async () => {
  assert.equal(await editor.prompt(id, 'make it'), 'end_turn')
  assert.match(editor.text(), /MCP servers of the editor are not used[^]*I make a plan\.[^]*It has 12 bytes/)
  assert.equal(editor.text().match(/I make a plan/g).length, 1)
})
await step('agent_thought_chunk', async () => assert.equal(editor.text('agent_thought_chunk'), 'I think first.'))
await step('plan', async () => {
  assert.deepEqual(editor.of('plan').map((p) => p.entries.map((e) => e.status)), [['in_progress'], ['completed']])
})
await step('tool_call and tool_call_update', async () => {
  const calls = editor.of('tool_call')
  assert.deepEqual(calls.map((c) => c.kind), ['read', 'edit', 'edit', 'execute', 'edit'])
  assert.deepEqual(calls[1].content, [{ type: 'diff', path: at('readme.md'), oldText: 'hello', newText: 'hello there' }])
  assert.deepEqual(calls[2].locations, [{ path: at('made.txt') }])
  const last = (c) => editor.of('tool_call_update').filter((u) => u.toolCallId === c.toolCallId).at(-1)
  assert.deepEqual(calls.map((c) => last(c).status), Array(5).fill('completed'))
  assert.match(last(calls[3]).content[0].content.text, /made 12/)
  assert.equal(last(calls[3]).rawOutput.exit_code, 0)
})
await step('usage_update', async () => assert.ok(editor.of('usage_update').at(-1).size > 0))
await step('session/request_permission', async () => {
  assert.deepEqual(editor.asked[0].options.map((o) => o.kind), ['allow_once', 'allow_always', 'reject_once'])
  assert.equal(editor.asked[0].toolCall.kind, 'execute')
})
await step('diffs back, fs/write_text_file', async () => {
  const write = editor.asked[1]
  assert.equal(editor.asked.length, 2)
  assert.deepEqual(write.toolCall.content.filter((c) => c.type === 'diff').map((c) => [c.path, c.oldText ?? null, c.newText]), [
    [at('made.txt'), null, 'made 12 now\n'],
    [at('readme.md'), 'hello\nworld\n', 'hello there\nworld\n'],
  ])
  assert.equal(read('readme.md'), 'hello there\nworld\n')
  assert.deepEqual(editor.written.sort(), [at('made.txt'), at('readme.md')])
  assert.deepEqual([...readFileSync(at('bin.dat'))], [0, 255])
  assert.ok(!existsSync(at('sub/old.txt')), 'what was removed in the sandbox is there')
  for (const bad of ['.git/hooks/pre-commit', 'link', 'new.log']) assert.ok(!existsSync(at(bad)), bad)
})
await step('fs/read_text_file', async () => {
  editor.buffers.set(at('readme.md'), 'not saved\n')
  assert.equal(await editor.prompt(id, 'look'), 'end_turn')
  assert.match(editor.text(), /It reads: not saved/)
  assert.match(editor.text(), /passwd: none/)
  editor.buffers.clear()
})
await step('a file that both changed', async () => {
  editor.choose = (p) => {
    if (p.toolCall.kind === 'execute') writeFileSync(at('made.txt'), 'mine\n') // while the agent works
    return 'allow'
  }
  assert.equal(await editor.prompt(id, 'change it'), 'end_turn')
  assert.equal(read('made.txt'), 'mine\n')
  assert.match(editor.text(), /Changed by you and by the agent, so not written: made\.txt/)
  editor.choose = (p) => {
    if (p.toolCall.kind !== 'execute') writeFileSync(at('asked.txt'), 'mine\n') // while it asks
    return 'allow'
  }
  assert.equal(await editor.prompt(id, 'add one'), 'end_turn')
  assert.equal(read('asked.txt'), 'mine\n')
  editor.choose = () => 'allow'
})
await step('rejected', async () => {
  editor.choose = () => 'reject'
  assert.equal(await editor.prompt(id, 'change it'), 'end_turn')
  assert.equal(editor.of('tool_call_update').at(-1).status, 'failed')
  editor.choose = () => 'allow'
})
await step('session/cancel', async () => {
  const answer = editor.prompt(id, 'wait')
  await editor.until('the command runs', () => editor.of('tool_call_update').find((u) => u.status === 'in_progress'))
  await refused(() => editor.agent.request(theirs.session.prompt, { sessionId: id, prompt: [{ type: 'text', text: 'and?' }] }), -32600, /under way/)
  await editor.agent.notify(theirs.session.cancel, { sessionId: id })
  assert.equal(await answer, 'cancelled')
  editor.choose = () => undefined // dismissed
  assert.equal(await editor.prompt(id, 'wait'), 'cancelled')
  editor.choose = () => 'allow'
})
await step('a question', async () => {
  editor.choose = () => 'answer:1'
  assert.equal(await editor.prompt(id, 'ask me'), 'end_turn')
  assert.match(editor.text(), /You said: blue/)
  editor.choose = () => 'other'
  assert.equal(await editor.prompt(id, 'ask me'), 'end_turn')
  assert.equal(await editor.prompt(id, 'green, of course'), 'end_turn')
  assert.match(editor.text(), /You said: green, of course/)
})
await step('session/set_mode', async () => {
  await editor.agent.request(theirs.session.setMode, { sessionId: id, modeId: 'all' })
  editor.choose = (p) => assert.fail(`it asks ${p.toolCall.title}`)
  assert.equal(await editor.prompt(id, 'look'), 'end_turn')
  assert.match(editor.text(), /It reads/)
  await refused(() => editor.agent.request(theirs.session.setMode, { sessionId: id, modeId: 'wild' }), -32602, /wild/)
  editor.choose = () => 'allow'
})
await step('current_mode_update, after a plan', async () => {
  await editor.agent.request(theirs.session.setMode, { sessionId: id, modeId: 'plan' })
  assert.equal(await editor.prompt(id, 'plan it'), 'end_turn')
  assert.equal(editor.asked[0].toolCall.kind, 'switch_mode')
  assert.match(editor.asked[0].toolCall.content[0].content.text, /I look and then write\.[^]*- Look\n- Write/)
  assert.deepEqual(editor.of('current_mode_update').map((u) => u.currentModeId), ['ask'])
})
await step('images and resources', async () => {
  const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
  const text = { type: 'resource', resource: { uri: 'file://' + at('readme.md'), text: 'as the editor has it', mimeType: 'text/markdown' } }
  assert.equal(await editor.prompt(id, 'look', { type: 'image', data: png, mimeType: 'image/png' }, text), 'end_turn')
  await refused(() => editor.prompt(id, { type: 'audio', data: 'AAAA', mimeType: 'audio/wav' }), -32602, /sound/)
})
await step('stop reasons', async () => {
  assert.equal(await editor.prompt(id, 'refuse'), 'refusal')
})
await step('session/list', async () => {
  const { sessions } = await editor.agent.request(theirs.session.list, { cwd: dir })
  assert.deepEqual(sessions.map((s) => [s.sessionId, s.cwd, s.title]), [[id, dir, 'make it']])
})
await step('session/close', async () => {
  await editor.agent.request(theirs.session.close, { sessionId: id })
  await refused(() => editor.prompt(id, 'look'), -32002, /no session/)
})
await step('session/load', async () => {
  editor.updates = []
  await editor.agent.request(theirs.session.load, { sessionId: id, cwd: dir, mcpServers: [] })
  assert.match(editor.text('user_message_chunk'), /^make itlook/)
  assert.match(editor.text(), /I make a plan\.[^]*It has 12 bytes[^]*not saved/)
  await refused(() => editor.agent.request(theirs.session.load, { sessionId: 'sbx_nothing', cwd: dir, mcpServers: [] }), -32002, /no session/)
})
await step('session/resume', async () => {
  await editor.agent.request(theirs.session.resume, { sessionId: id, cwd: dir, mcpServers: [] })
  assert.equal(await editor.prompt(id, 'look', { type: 'resource_link', name: 'readme.md', uri: 'file://' + at('readme.md') }), 'end_turn')
  assert.match(editor.text(), /It reads/)
})
await editor.end()
