import { Command, type CommandSpec, type RunOptions, type RunResult, runCommand, type StartOptions } from './command.js'
import { Files } from './files.js'
import { History } from './history.js'
import type { components } from './openapi.js'
import { type CallOptions, newKey, part, type Transport } from './transport.js'

type Schemas = components['schemas']

/** A sandbox as the server describes it. */
export type SandboxInfo = Schemas['Sandbox']
/** A saved sandbox. */
export type SnapshotInfo = Schemas['Snapshot']
/** A command as the server describes it. */
export type ProcessInfo = Schemas['Process']

/** One sandbox. Its methods ask the server; it is safe for concurrent use. */
export class Sandbox {
  readonly files: Files
  readonly history: History
  readonly #t: Transport
  readonly #path: string

  /** info is the sandbox when it was asked for last; undefined of a handle. */
  constructor(t: Transport, readonly id: string, readonly info?: SandboxInfo) {
    this.#t = t
    this.#path = `/v1/sandboxes/${part(id)}`
    this.files = new Files(t, this.#path)
    this.history = new History(t, `${this.#path}/history`)
  }

  /** The sandbox as it is now. */
  get(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#t.json({ path: this.#path, ...options })
  }

  /** Changes its name, metadata or times. */
  update(u: Schemas['UpdateSandbox'], options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#t.json({ method: 'PATCH', path: this.#path, json: u, repeatable: true, ...options })
  }

  /** Boots a stopped sandbox again, with its workspace. */
  start(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#verb('start', options)
  }

  /** Ends its machine and keeps its workspace. */
  stop(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#verb('stop', options)
  }

  /** Freezes it. */
  pause(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#verb('pause', options)
  }

  /** Lets a paused one go on. */
  resume(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#verb('resume', options)
  }

  #verb(verb: string, options: CallOptions): Promise<SandboxInfo> {
    return this.#t.json({ method: 'POST', path: `${this.#path}/${verb}`, repeatable: true, ...options })
  }

  /** Ends it, and removes all of it but its history. */
  async remove(options: CallOptions = {}): Promise<void> {
    await this.#t.json({ method: 'DELETE', path: this.#path, repeatable: true, ...options })
  }

  /** Saves it as it is. */
  snapshot(r: Schemas['CreateSnapshot'] = {}, options: CallOptions = {}): Promise<SnapshotInfo> {
    return this.#t.json(this.#keyed('snapshots', r, options))
  }

  /** Makes sandboxes that go on from where this one is, all or none. */
  async fork(r: Schemas['ForkSandbox'] = {}, options: CallOptions = {}): Promise<Sandbox[]> {
    const made = await this.#t.json<Schemas['Forked']>(this.#keyed('fork', r, options))
    return (made.items ?? []).map((info) => new Sandbox(this.#t, info.id, info))
  }

  #keyed(what: string, json: unknown, options: CallOptions) {
    const headers = { 'Idempotency-Key': newKey() }
    return { method: 'POST', path: `${this.#path}/${what}`, json, headers, repeatable: true, ...options }
  }

  /** What it uses of its machine. */
  metrics(options: CallOptions = {}): Promise<Schemas['Metrics']> {
    return this.#t.json({ path: `${this.#path}/metrics`, ...options })
  }

  /**
   * Runs a command to its end: a line for a shell, or a program with its arguments. Its
   * status is in the result, whatever it is. A broken connection and a server that is
   * started again do not run it twice.
   */
  run(command: string | string[] | CommandSpec, options: RunOptions = {}): Promise<RunResult> {
    return runCommand(this.#t, this.#path, command, options)
  }

  /** Starts a command and does not wait for it. */
  exec(command: string | string[] | CommandSpec, options: StartOptions = {}): Promise<Command> {
    return Command.start(this.#t, this.#path, command, options)
  }

  /** The command with a key, which was started before; nothing is asked. */
  command(key: string): Command {
    return new Command(this.#t, this.#path, key)
  }

  /** Goes through its commands, oldest first, ended ones included until they are forgotten. */
  commands(options: CallOptions = {}): AsyncGenerator<ProcessInfo> {
    return this.#t.pages({ path: `${this.#path}/processes`, ...options })
  }

  /** What may leave it. */
  network(options: CallOptions = {}): Promise<Schemas['NetworkPolicy']> {
    return this.#t.json({ path: `${this.#path}/network`, ...options })
  }

  /** Sets what may leave it, from the next request on. */
  setNetwork(policy: Schemas['NetworkPolicy'], options: CallOptions = {}): Promise<Schemas['NetworkPolicy']> {
    return this.#t.json({ method: 'PUT', path: `${this.#path}/network`, json: policy, repeatable: true, ...options })
  }
}
