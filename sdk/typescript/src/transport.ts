// Requests: who asks, what is repeated, and streams that come back.

import { errorOf, problemError, SketeError, temporary } from './errors.js'
import { serverEvents, type ServerEvent } from './sse.js'

/** Where the server is and who is calling. */
export interface ClientOptions {
  /**
   * http://host:port, https://host or unix:///path/of/skete.sock. Default $SKETE_URL,
   * then http://127.0.0.1:7733.
   */
  url?: string
  /** An API key; default $SKETE_KEY. A unix socket needs none. */
  key?: string
  /** In place of the global fetch. It must not have a timeout: streams live long. */
  fetch?: typeof fetch
  /** How long what is broken tries to come back; default 60,000. */
  reconnectMs?: number
}

/** What every call takes. */
export interface CallOptions {
  /** Ends the call. A command that it was waiting for is killed. */
  signal?: AbortSignal
}

export type Query = Record<string, string | number | boolean | string[] | undefined>

/** One request. */
export interface Call extends CallOptions {
  method?: string
  path: string
  query?: Query
  headers?: Record<string, string>
  /** The body, as JSON. */
  json?: unknown
  /** The body, as it is; a stream is sent once. */
  body?: Uint8Array | Blob | ReadableStream<Uint8Array>
  /** A repetition has the effect of one call; always so of GET. */
  repeatable?: boolean
}

const attemptsMax = 4
const retryAfterMax = 10_000

/** Makes the calls of one client. */
export class Transport {
  readonly reconnectMs: number
  readonly #base: string
  readonly #key: string
  readonly #fetch: typeof fetch

  constructor(options: ClientOptions) {
    const env: Record<string, string | undefined> = globalThis.process?.env ?? {}
    const url = options.url ?? (env.SKETE_URL || 'http://127.0.0.1:7733')
    this.#key = options.key ?? env.SKETE_KEY ?? ''
    this.reconnectMs = options.reconnectMs ?? 60_000
    if (url.startsWith('unix://')) {
      this.#base = 'http://skete'
      this.#fetch = options.fetch ?? socketFetch(url.slice('unix://'.length))
    } else {
      this.#base = baseOf(url)
      this.#fetch = options.fetch ?? ((input, init) => fetch(input, init))
    }
  }

  /** Makes a call and parses its answer. */
  async json<T>(call: Call): Promise<T> {
    const res = await this.send(call)
    const text = await readAll(res.text(), call.signal)
    if (!text) return undefined as T
    try {
      return JSON.parse(text) as T
    } catch (cause) {
      throw errorOf('internal', "the server's answer is not what was agreed", { cause, hint: `is ${this.#base} a skete server?` })
    }
  }

  /** Makes a call; its answer is a success, and its body has to be read or cancelled. */
  async send(call: Call): Promise<Response> {
    const repeatable = (call.repeatable ?? (call.method ?? 'GET') === 'GET') && !(call.body instanceof ReadableStream)
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#once(call)
      } catch (e) {
        if (!repeatable || attempt === attemptsMax || !temporary(e)) throw e
        await sleep(Math.max((e as SketeError).retryAfterMs, backoff(attempt)), call.signal)
      }
    }
  }

  async #once(call: Call): Promise<Response> {
    const headers: Record<string, string> = { ...call.headers }
    if (this.#key) headers.Authorization = `Bearer ${this.#key}`
    const init: RequestInit & { duplex?: 'half' } = { method: call.method ?? 'GET', headers, redirect: 'manual', signal: call.signal ?? null }
    if (call.json !== undefined) {
      headers['Content-Type'] = 'application/json'
      init.body = JSON.stringify(call.json)
    } else if (call.body !== undefined) {
      headers['Content-Type'] ??= 'application/octet-stream'
      init.body = call.body as BodyInit
      if (call.body instanceof ReadableStream) init.duplex = 'half'
    }
    let res: Response
    try {
      res = await this.#fetch(this.#base + call.path + queryOf(call.query), init)
    } catch (e) {
      throw broken(e, call.signal)
    }
    if (res.ok) return res
    const wait = Number(res.headers.get('Retry-After')) || 0
    let problem = {}
    try {
      problem = JSON.parse(await res.text()) ?? {}
    } catch {
      // a proxy's page, or a connection that broke: the status says enough
    }
    throw problemError({ title: res.statusText, ...problem }, res.status, Math.min(wait * 1000, retryAfterMax))
  }

  /**
   * Goes through a stream of server-sent events, and comes back behind the last one seen
   * when the connection breaks. It ends with the event that last says is the last one,
   * and, if it is finite, with the stream.
   */
  async *events(call: Call, how: { last?: (ev: ServerEvent) => boolean; finite?: boolean; lastID?: string } = {}): AsyncGenerator<ServerEvent> {
    let id = how.lastID ?? ''
    const patience = new Patience(this.reconnectMs)
    for (;;) {
      try {
        const headers: Record<string, string> = { ...call.headers, Accept: 'text/event-stream' }
        if (id) headers['Last-Event-ID'] = id
        const res = await this.#once({ ...call, headers })
        patience.alive()
        for await (const ev of guarded(serverEvents(bodyOf(res), id), call.signal)) {
          if (ev.name === 'problem') throw problemError(JSON.parse(ev.data), 500)
          id = ev.id
          yield ev
          if (how.last?.(ev)) return
        }
        if (how.finite) return
        throw errorOf('unavailable', 'the stream of the server broke off')
      } catch (e) {
        await patience.pause(e, call.signal)
      }
    }
  }

  /** Goes through a list that comes in pages. */
  async *pages<T>(call: Call): AsyncGenerator<T> {
    let token: string | undefined
    do {
      const page = await this.json<{ items: T[]; next_page_token?: string }>({ ...call, query: { ...call.query, page_token: token } })
      yield* page.items
      token = page.next_page_token || undefined
    } while (token)
  }
}

/** Decides how long what is broken is tried again. */
export class Patience {
  #attempt = 0
  #since = 0
  constructor(readonly ms: number) {}

  /** Notes that it works. */
  alive(): void {
    this.#attempt = 0
  }

  /** Waits before the next attempt, or throws the error: it will not go away. */
  async pause(e: unknown, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted || !temporary(e)) throw e
    if (this.#attempt === 0) this.#since = Date.now()
    if (Date.now() - this.#since > this.ms) throw e
    this.#attempt++
    await sleep(Math.max((e as SketeError).retryAfterMs, backoff(this.#attempt)), signal)
  }
}

/** The error of a connection: what the caller's signal gave, or unavailable. */
export function broken(e: unknown, signal?: AbortSignal): unknown {
  if (signal?.aborted) return signal.reason
  if (e instanceof SketeError) return e
  return errorOf('unavailable', 'the skete server does not answer', {
    cause: e,
    hint: 'is it running? `skete serve` starts it, `skete doctor` looks for what is wrong',
  })
}

/** Reads the rest of an answer. */
export async function readAll<T>(body: Promise<T>, signal?: AbortSignal): Promise<T> {
  try {
    return await body
  } catch (e) {
    throw broken(e, signal)
  }
}

/** The body of an answer, also of one that has none. */
export function bodyOf(res: Response): ReadableStream<Uint8Array> {
  return res.body ?? new Blob([]).stream()
}

/** Passes items on, and gives what breaks them a class. */
async function* guarded<T>(items: AsyncGenerator<T>, signal?: AbortSignal): AsyncGenerator<T> {
  try {
    for (;;) {
      let next: IteratorResult<T>
      try {
        next = await items.next()
      } catch (e) {
        throw broken(e, signal)
      }
      if (next.done) return
      yield next.value
    }
  } finally {
    await items.return(undefined)
  }
}

/** A part of a path. */
export const part = encodeURIComponent

/** A key with which a repeated call is the same call. */
export const newKey = (): string => crypto.randomUUID()

const crypto: Pick<Crypto, 'randomUUID'> = globalThis.crypto ?? (await import('node:crypto')).webcrypto

function baseOf(url: string): string {
  let u: URL | undefined
  try {
    u = new URL(url)
  } catch {
    // said below
  }
  if (!u || !/^https?:$/.test(u.protocol) || u.username || u.password || u.search || u.hash)
    throw errorOf('invalid', `${JSON.stringify(url.slice(0, 80))} is not the URL of a server`, {
      hint: 'use http://host:port, https://host or unix:///path/of/skete.sock',
    })
  return url.replace(/\/+$/, '')
}

function queryOf(query: Query = {}): string {
  const q = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === false || value === '') continue
    for (const v of Array.isArray(value) ? value : [value]) q.append(name, String(v))
  }
  const text = q.toString()
  return text && `?${text}`
}

/** Grows by doubling; the jitter keeps many clients of one restarted server apart. */
function backoff(attempt: number): number {
  const ms = Math.min(50 * 2 ** Math.min(attempt - 1, 10), 2000)
  return ms / 2 + (Math.random() * ms) / 2
}

/** Waits, unless the signal comes first, whose reason is thrown. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason)
    const stop = () => {
      clearTimeout(timer)
      reject(signal!.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop)
      resolve()
    }, ms)
    signal?.addEventListener('abort', stop, { once: true })
  })
}

/** A fetch over a unix socket: the built-in one knows none. */
function socketFetch(socketPath: string): typeof fetch {
  return async (input, init) => {
    const [{ request }, { Readable }] = await Promise.all([import('node:http'), import('node:stream')])
    const { body, signal } = init ?? {}
    return new Promise((resolve, reject) => {
      const req = request(String(input), {
        socketPath,
        method: init?.method ?? 'GET',
        headers: init?.headers as Record<string, string>,
        ...(signal ? { signal } : {}),
      })
      req.on('error', reject)
      req.on('response', (res) => {
        const none = res.statusCode === 204 || res.statusCode === 304
        if (none) res.resume()
        const headers = new Headers()
        for (let i = 0; i < res.rawHeaders.length; i += 2) headers.append(res.rawHeaders[i]!, res.rawHeaders[i + 1]!)
        resolve(new Response(none ? null : (Readable.toWeb(res) as ReadableStream<Uint8Array>), { status: res.statusCode!, statusText: res.statusMessage!, headers }))
      })
      if (body instanceof ReadableStream || body instanceof Blob) {
        const stream = body instanceof Blob ? body.stream() : body
        Readable.fromWeb(stream as import('node:stream/web').ReadableStream).on('error', reject).pipe(req)
      } else req.end(body ?? undefined)
    })
  }
}
