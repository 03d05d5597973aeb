import { errorOf } from './errors.js'
import type { components } from './openapi.js'
import { type CallOptions, newKey, part, Patience, type Transport } from './transport.js'

type Schemas = components['schemas']
type ProcessInfo = Schemas['Process']

/** A command as the API has it: one of argv, command and code. */
export type CommandSpec = Pick<Schemas['StartProcess'], 'argv' | 'command' | 'code' | 'language'>

/** How a command is run. */
export interface ExecOptions extends CallOptions {
  cwd?: string
  env?: Record<string, string>
  /** root needs a sandbox that grants it. */
  user?: string
  /** Then it is ended. */
  timeoutMs?: number
  /** The same key never runs twice; 1 to 128 of A-Za-z0-9._:- */
  key?: string
}

/** How a command is run to its end. */
export interface RunOptions extends ExecOptions {
  /** All of its input. */
  stdin?: string | Uint8Array
  /** Of each stream in the result: default 1 MiB, at most 16 MiB. What is beyond is kept in the sandbox. */
  outputBytesMax?: number
}

/** How a command is started. */
export interface StartOptions extends ExecOptions {
  /** Keep its input open, for write. */
  stdin?: boolean
  /** Runs in a terminal of this size. */
  terminal?: Schemas['TerminalSize']
  /**
   * It may go on without a reader: where its output is not read fast enough, the middle of
   * it is dropped. Else it waits for its reader, as for a pipe's.
   */
  background?: boolean
}

/** What came of a command. */
export interface RunResult {
  key: string
  /** As a shell reports it: 0 to 255, 128+n for signal n. */
  exitCode: number
  signal: number
  /** timeout, out of memory, killed; or why it was not started. */
  reason: string
  /** The program is not there (127) or cannot be run (126). */
  notStarted: boolean
  stdout: string
  stderr: string
  stdoutBytes: Uint8Array
  stderrBytes: Uint8Array
  /** The command wrote more than is here. */
  truncated: boolean
}

/** A piece of output, or bytes from offset up to gapEnd that the sandbox has dropped. */
export interface OutputChunk {
  stream: 'stdout' | 'stderr'
  /** Of the first byte. */
  offset: number
  data: Uint8Array
  gapEnd?: number
}

/** Where output is read from. */
export interface OutputOptions extends CallOptions {
  /** Byte offsets; -1 = the present end. */
  stdoutFrom?: number
  stderrFrom?: number
  /** false: what there is now. */
  follow?: boolean
}

/** How a command ended. */
export type Exit = Schemas['Exit']

const SIGKILL = 9
const waitSliceMs = 30_000
const stdinBytesMax = 256 << 10
/** A call that took longer than this was not refused by a server that is away. */
const livedMs = 2_000

/** Runs a command to its end, as Sandbox.run. */
export async function runCommand(t: Transport, sandbox: string, command: string | string[] | CommandSpec, o: RunOptions): Promise<RunResult> {
  const key = o.key ?? newKey()
  const json: Schemas['RunCommand'] = { ...specOf(command, o), key, ...defined({ timeout_ms: o.timeoutMs, output_bytes_max: o.outputBytesMax }) }
  if (typeof o.stdin === 'string') json.stdin = o.stdin
  else if (o.stdin) json.stdin_base64 = toBase64(o.stdin)
  const patience = new Patience(t.reconnectMs)
  for (;;) {
    const began = Date.now()
    try {
      return resultOf(await t.json<Schemas['CommandResult']>({ method: 'POST', path: `${sandbox}/exec:run`, json, ...signalOf(o) }))
    } catch (e) {
      if (o.signal?.aborted && !o.key) await kill(t, sandbox, key)
      if (Date.now() - began > livedMs) patience.alive()
      await patience.pause(e, o.signal)
    }
  }
}

/** Kills a command whose caller went away, if it can still be reached. */
async function kill(t: Transport, sandbox: string, key: string): Promise<void> {
  const call = { method: 'POST', path: `${sandbox}/processes/${part(key)}/signal`, json: { signal: SIGKILL } }
  await t.json({ ...call, signal: AbortSignal.timeout(5_000) }).catch(() => {})
}

/** A command that goes on without its caller. */
export class Command {
  readonly #t: Transport
  readonly #path: string
  #stdin: number | undefined
  #writes: Promise<unknown> = Promise.resolve()

  /** info is what was known of it last; undefined of a handle. */
  constructor(t: Transport, sandbox: string, readonly key: string, public info?: ProcessInfo) {
    this.#t = t
    this.#path = `${sandbox}/processes/${part(key)}`
    this.#stdin = info?.stdin_acked
  }

  /** Starts a command, as Sandbox.exec. */
  static async start(t: Transport, sandbox: string, command: string | string[] | CommandSpec, o: StartOptions): Promise<Command> {
    const key = o.key ?? newKey()
    const json: Schemas['StartProcess'] = {
      ...specOf(command, o), key, wait: !o.background,
      ...defined({ timeout_ms: o.timeoutMs, stdin: o.stdin, terminal: o.terminal, background: o.background }),
    }
    const info = await t.json<ProcessInfo>({ method: 'POST', path: `${sandbox}/processes`, json, repeatable: true, ...signalOf(o) })
    return new Command(t, sandbox, key, info)
  }

  /** The command as it is now. */
  async get(options: CallOptions = {}): Promise<ProcessInfo> {
    return (this.info = await this.#t.json<ProcessInfo>({ path: this.#path, ...options }))
  }

  /**
   * Goes through the output, up to the end of the command: no byte is left out or comes
   * twice, however often the connection breaks. Afterwards info has its status. The signal
   * ends the reading, not the command.
   */
  async *output(o: OutputOptions = {}): AsyncGenerator<OutputChunk> {
    const next = { stdout: o.stdoutFrom ?? 0, stderr: o.stderrFrom ?? 0 }
    const query = { stdout_from: next.stdout, stderr_from: next.stderr, follow: String(o.follow ?? true) }
    const finite = o.follow === false
    const events = this.#t.events({ path: `${this.#path}/output`, query, ...signalOf(o) }, { finite, last: (ev) => ev.name === 'exited' })
    for await (const ev of events) {
      const out = JSON.parse(ev.data) as Schemas['OutputEvent']
      if (out.process) {
        this.info = out.process
        if (next.stdout < 0) next.stdout = out.process.stdout.size
        if (next.stderr < 0) next.stderr = out.process.stderr.size
        continue
      }
      const stream = out.stream === 'stderr' ? 'stderr' : 'stdout'
      if (ev.name === 'gap') {
        const from = Math.max(out.from ?? 0, next[stream])
        const to = out.to ?? 0
        if (to <= from) continue
        next[stream] = to
        yield { stream, offset: from, data: new Uint8Array(), gapEnd: to }
      } else if (ev.name === 'stdout' || ev.name === 'stderr') {
        let data = fromBase64(out.data ?? '')
        let offset = out.offset ?? 0
        if (offset > next[stream]) yield { stream, offset: next[stream], data: new Uint8Array(), gapEnd: offset }
        const seen = Math.max(0, next[stream] - offset)
        data = data.subarray(seen)
        offset += seen
        if (!data.length) continue
        next[stream] = offset + data.length
        yield { stream, offset, data }
      }
    }
  }

  /** Waits for the end. A status is never invented: a command that is lost is a ConflictError. */
  async wait(options: CallOptions = {}): Promise<Exit> {
    const patience = new Patience(this.#t.reconnectMs)
    for (;;) {
      try {
        const info = await this.#t.json<ProcessInfo>({ path: `${this.#path}/wait`, query: { wait_ms: waitSliceMs }, repeatable: false, ...options })
        patience.alive()
        this.info = info
        if (info.exit) return info.exit
        if (info.state === 'lost')
          throw errorOf('conflict', `the command ${this.key} is lost: its sandbox was started anew, and it was not run again`, {
            hint: 'how it ended cannot be known; look at its effects, and take a new key to run it again',
          })
      } catch (e) {
        await patience.pause(e, options.signal)
      }
    }
  }

  /** Writes to its input. Writes that are under way at once keep their order. */
  write(data: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    return this.#input(typeof data === 'string' ? new TextEncoder().encode(data) : data, false, options)
  }

  /** Ends its input. */
  closeStdin(options: CallOptions = {}): Promise<void> {
    return this.#input(new Uint8Array(), true, options)
  }

  #input(data: Uint8Array, eof: boolean, options: CallOptions): Promise<void> {
    const done = this.#writes.then(() => this.#send(data, eof, options))
    this.#writes = done.catch(() => {})
    return done
  }

  /** Sends bytes at their offset, so that a repeated call never writes one twice. */
  async #send(data: Uint8Array, eof: boolean, options: CallOptions): Promise<void> {
    this.#stdin ??= (await this.get(options)).stdin_acked
    const base = this.#stdin
    const patience = new Patience(this.#t.reconnectMs)
    for (;;) {
      const at: number = this.#stdin - base
      const body = data.slice(at, at + stdinBytesMax)
      const query = { offset: this.#stdin, eof: eof && at + body.length === data.length }
      try {
        const ack = await this.#t.json<Schemas['StdinAck']>({ method: 'POST', path: `${this.#path}/stdin`, query, body, ...options })
        patience.alive()
        this.#stdin = Math.max(this.#stdin, ack.acked)
        if (ack.closed || this.#stdin - base >= data.length) return
      } catch (e) {
        await patience.pause(e, options.signal)
      }
    }
  }

  /** Signals its process group. */
  async signal(signal: number, options: CallOptions = {}): Promise<void> {
    await this.#t.json({ method: 'POST', path: `${this.#path}/signal`, json: { signal }, ...options })
  }

  /** Ends it at once. */
  kill(options: CallOptions = {}): Promise<void> {
    return this.signal(SIGKILL, options)
  }

  /** Sets the size of its terminal. */
  async resize(size: Schemas['TerminalSize'], options: CallOptions = {}): Promise<void> {
    await this.#t.json({ method: 'POST', path: `${this.#path}/resize`, json: size, repeatable: true, ...options })
  }

  /** Drops it, its output and its key, once it has ended. */
  async forget(options: CallOptions = {}): Promise<void> {
    await this.#t.json({ method: 'DELETE', path: this.#path, repeatable: true, ...options })
  }
}

function specOf(command: string | string[] | CommandSpec, o: ExecOptions) {
  const spec = typeof command === 'string' ? { command } : Array.isArray(command) ? { argv: command } : command
  return { ...spec, ...defined({ cwd: o.cwd, env: o.env, user: o.user }) }
}

/** Leaves out what is undefined. */
function defined<T extends object>(o: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(o).filter(([, v]) => v !== undefined)) as { [K in keyof T]?: Exclude<T[K], undefined> }
}

function signalOf(o: CallOptions): CallOptions {
  return o.signal ? { signal: o.signal } : {}
}

function resultOf(r: Schemas['CommandResult']): RunResult {
  const stdoutBytes = bytesOf(r.stdout, r.stdout_encoding)
  const stderrBytes = bytesOf(r.stderr, r.stderr_encoding)
  return {
    key: r.key, exitCode: r.exit_code, signal: r.signal ?? 0, reason: r.reason ?? '', notStarted: r.not_started ?? false,
    stdout: textOf(r.stdout, r.stdout_encoding, stdoutBytes), stderr: textOf(r.stderr, r.stderr_encoding, stderrBytes), stdoutBytes, stderrBytes,
    truncated: Boolean(r.stdout_truncated || r.stderr_truncated),
  }
}

function bytesOf(text: string, encoding: string): Uint8Array {
  return encoding === 'base64' ? fromBase64(text) : new TextEncoder().encode(text)
}

function textOf(text: string, encoding: string, bytes: Uint8Array): string {
  return encoding === 'base64' ? new TextDecoder().decode(bytes) : text
}

function fromBase64(text: string): Uint8Array {
  if (typeof Buffer !== 'undefined') return Buffer.from(text, 'base64')
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0))
}

function toBase64(bytes: Uint8Array): string {
  if (typeof Buffer !== 'undefined') return Buffer.from(bytes).toString('base64')
  return btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(''))
}
