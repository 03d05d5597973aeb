import type { components } from './openapi.js'
import { Runs } from './run.js'
import { Sandbox, type SandboxInfo, type SnapshotInfo } from './sandbox.js'
import { type CallOptions, type ClientOptions, newKey, part, Transport } from './transport.js'

type Schemas = components['schemas']

/** What of sandboxes to list. */
export interface SandboxFilter extends CallOptions {
  state?: SandboxInfo['state']
  metadata?: Record<string, string>
}

/**
 * Talks to one server.
 *
 *     const skete = new Client()                  // $SKETE_URL and $SKETE_KEY
 *     const sandbox = await skete.sandboxes.create({ language: 'python' })
 *     const { stdout } = await sandbox.run('python3 -c "print(6*7)"')
 *
 * It is safe for concurrent use, and holds nothing that has to be closed.
 */
export class Client {
  readonly sandboxes: Sandboxes
  readonly runs: Runs
  readonly snapshots: Snapshots
  readonly #t: Transport

  constructor(options: ClientOptions = {}) {
    this.#t = new Transport(options)
    this.sandboxes = new Sandboxes(this.#t)
    this.runs = new Runs(this.#t)
    this.snapshots = new Snapshots(this.#t)
  }

  /** What the server is, and what of it is used. */
  info(options: CallOptions = {}): Promise<Schemas['Info']> {
    return this.#t.json({ path: '/v1/info', ...options })
  }

  /** What happens to sandboxes, workspaces and runs, as it happens; from: the first number that is wanted. */
  async *events(options: CallOptions & { kind?: string; from?: number } = {}): AsyncGenerator<Schemas['Event']> {
    const { kind, from, ...rest } = options
    for await (const ev of this.#t.events({ path: '/v1/events', query: { kind, from }, ...rest })) yield JSON.parse(ev.data)
  }

  /** The templates that sandboxes start from. */
  async templates(options: CallOptions = {}): Promise<Schemas['Template'][]> {
    return (await this.#t.json<Schemas['TemplateList']>({ path: '/v1/templates', ...options })).items ?? []
  }
}

/** The sandboxes of a server. */
export class Sandboxes {
  readonly #t: Transport
  constructor(t: Transport) {
    this.#t = t
  }

  /** Makes a sandbox and returns when it answers. A broken connection never makes a second one. */
  async create(spec: Schemas['CreateSandbox'] = {}, options: CallOptions = {}): Promise<Sandbox> {
    const info = await this.#t.json<SandboxInfo>({
      method: 'POST', path: '/v1/sandboxes', json: spec, headers: { 'Idempotency-Key': newKey() }, repeatable: true, ...options,
    })
    return new Sandbox(this.#t, info.id, info)
  }

  /** The sandbox with an id or a name; it is asked for. */
  async get(id: string, options: CallOptions = {}): Promise<Sandbox> {
    const info = await this.#t.json<SandboxInfo>({ path: `/v1/sandboxes/${part(id)}`, ...options })
    return new Sandbox(this.#t, info.id, info)
  }

  /** A handle on a sandbox; nothing is asked. */
  handle(id: string): Sandbox {
    return new Sandbox(this.#t, id)
  }

  /** Goes through the sandboxes, newest first. */
  async *list(filter: SandboxFilter = {}): AsyncGenerator<SandboxInfo> {
    const metadata = Object.entries(filter.metadata ?? {}).map(([k, v]) => `${k}=${v}`)
    yield* this.#t.pages<SandboxInfo>({ path: '/v1/sandboxes', query: { state: filter.state, metadata }, ...signalOf(filter) })
  }
}

/** The snapshots of a server. */
export class Snapshots {
  readonly #t: Transport
  constructor(t: Transport) {
    this.#t = t
  }

  async list(options: CallOptions = {}): Promise<SnapshotInfo[]> {
    return (await this.#t.json<Schemas['SnapshotList']>({ path: '/v1/snapshots', ...options })).items ?? []
  }

  get(id: string, options: CallOptions = {}): Promise<SnapshotInfo> {
    return this.#t.json({ path: `/v1/snapshots/${part(id)}`, ...options })
  }

  /** Sandboxes that were made of it go on. */
  async remove(id: string, options: CallOptions = {}): Promise<void> {
    await this.#t.json({ method: 'DELETE', path: `/v1/snapshots/${part(id)}`, repeatable: true, ...options })
  }
}

/** The part of options that calls take. */
function signalOf(o: CallOptions): CallOptions {
  return o.signal ? { signal: o.signal } : {}
}
