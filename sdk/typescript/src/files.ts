import { errorOf, NotFoundError } from './errors.js'
import type { components } from './openapi.js'
import { bodyOf, type Call, type CallOptions, readAll, type Transport } from './transport.js'

type Schemas = components['schemas']

/** What is known of a path. */
export type FileInfo = Schemas['File']

/** Which part of a file is read. */
export interface ReadOptions extends CallOptions {
  offset?: number
  length?: number
}

/** How a file is written; without any it is replaced as a whole: readers see the old content or the new one. */
export interface WriteOptions extends CallOptions {
  /** Permission bits; default 0644, or what the file has. */
  mode?: number
  /** Make the directories above it. */
  parents?: boolean
  /** Only over exactly this content; a ConflictError else. */
  ifSha256?: string
  /** Only where nothing is. */
  ifAbsent?: boolean
  /** In place, from this byte on. Not atomic. */
  offset?: number
  /** At the end. Not atomic. */
  append?: boolean
}

/** What can be written: streams are sent as they come. */
export type Content = string | Uint8Array | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>

/** What is searched for. */
export interface GrepOptions extends CallOptions {
  /** A file or a directory; default the working directory. */
  base?: string
  /** The pattern is the text itself; else it is RE2. */
  literal?: boolean
  ignoreCase?: boolean
  /** A glob on the path beneath base. */
  include?: string
  /** Matches; default 1,000, at most 100,000. */
  limit?: number
  /** Lines before and after. */
  context?: number
}

/** The files of a sandbox. Paths are absolute, or relative to its working directory. */
export class Files {
  readonly #t: Transport
  readonly #sandbox: string
  readonly #user: string | undefined

  constructor(t: Transport, sandbox: string, user?: string) {
    this.#t = t
    this.#sandbox = sandbox
    this.#user = user
  }

  /** The same with another user's rights; root needs a sandbox that grants it. */
  as(user: string): Files {
    return new Files(this.#t, this.#sandbox, user)
  }

  /** The whole content, or a part of it. */
  async read(path: string, o: ReadOptions = {}): Promise<Uint8Array> {
    const res = await this.open(path, o)
    return new Uint8Array(await readAll(res.arrayBuffer(), o.signal))
  }

  /** The content as text. */
  async readText(path: string, o: ReadOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, o))
  }

  /** The content as it comes; cancel it when you have enough. */
  async stream(path: string, o: ReadOptions = {}): Promise<ReadableStream<Uint8Array>> {
    return bodyOf(await this.open(path, o))
  }

  /** The answer that has the content as its body; with hash its ETag is the SHA-256, in quotes. */
  open(path: string, o: ReadOptions & { hash?: boolean } = {}): Promise<Response> {
    const headers: Record<string, string> = {}
    const from = o.offset ?? 0
    if (o.length !== undefined) headers.Range = `bytes=${from}-${from + Math.max(o.length, 1) - 1}`
    else if (from > 0) headers.Range = `bytes=${from}-`
    return this.#t.send({ ...this.#get('', { path, hash: o.hash }, o), headers })
  }

  /** Writes a file. */
  write(path: string, content: Content, o: WriteOptions = {}): Promise<FileInfo> {
    const headers: Record<string, string> = {}
    if (o.ifAbsent) headers['If-None-Match'] = '*'
    if (o.ifSha256 !== undefined) headers['If-Match'] = JSON.stringify(o.ifSha256)
    return this.#t.json({
      method: 'PUT', path: `${this.#sandbox}/files`, headers, body: bytesOf(content),
      query: { path, user: this.#user, mode: o.mode, make_parents: o.parents, append: o.append, offset: o.offset },
      repeatable: !o.append && !o.ifAbsent && o.ifSha256 === undefined, // the others have another effect the second time
      ...signalOf(o),
    })
  }

  /** What is known of a path. A symbolic link itself is described unless follow; hash reads the content for its SHA-256. */
  stat(path: string, o: CallOptions & { follow?: boolean; hash?: boolean } = {}): Promise<FileInfo> {
    return this.#t.json(this.#get('/stat', { path, follow: o.follow, hash: o.hash }, o))
  }

  /** Whether there is something at a path. */
  async exists(path: string, o: CallOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, o)
      return true
    } catch (e) {
      if (e instanceof NotFoundError) return false
      throw e
    }
  }

  /** Goes through a directory, and those beneath it down to depth. */
  list(path: string, o: CallOptions & { depth?: number } = {}): AsyncGenerator<FileInfo> {
    return this.#t.pages(this.#get('/list', { path, depth: o.depth }, o))
  }

  /** Removes a file or an empty directory; with recursive whatever it is. The number is of what was removed. */
  async remove(path: string, o: CallOptions & { recursive?: boolean; missingOK?: boolean } = {}): Promise<number> {
    const query = { path, user: this.#user, recursive: o.recursive, missing_ok: o.missingOK }
    const call = { method: 'DELETE', path: `${this.#sandbox}/files`, query, repeatable: o.missingOK ?? false, ...signalOf(o) }
    return (await this.#t.json<Schemas['Removed']>(call)).removed
  }

  /** Makes a directory; with parents those above it too, and one that is there is no error. */
  mkdir(path: string, o: CallOptions & { parents?: boolean; mode?: number } = {}): Promise<FileInfo> {
    return this.#post('mkdir', { path, parents: o.parents, mode: o.mode }, o)
  }

  move(source: string, destination: string, o: CallOptions & { overwrite?: boolean } = {}): Promise<FileInfo> {
    return this.#post('move', { source, destination, overwrite: o.overwrite }, o)
  }

  copy(source: string, destination: string, o: CallOptions & { overwrite?: boolean } = {}): Promise<FileInfo> {
    return this.#post('copy', { source, destination, overwrite: o.overwrite }, o)
  }

  chmod(path: string, mode: number, o: CallOptions & { recursive?: boolean } = {}): Promise<FileInfo> {
    return this.#post('chmod', { path, mode, recursive: o.recursive }, o)
  }

  /** Makes a symbolic link at path. */
  symlink(target: string, path: string, o: CallOptions = {}): Promise<FileInfo> {
    return this.#post('symlink', { target, path }, o)
  }

  /** The paths beneath base that match a pattern of **, *, ?, [..], {a,b}. */
  glob(pattern: string, o: CallOptions & { base?: string; limit?: number } = {}): Promise<Schemas['GlobResult']> {
    return this.#t.json(this.#get('/glob', { base: o.base, pattern, limit: o.limit }, o))
  }

  /** The lines that match a pattern. */
  grep(pattern: string, o: GrepOptions = {}): Promise<Schemas['GrepResult']> {
    const { base, literal, include, limit, context } = o
    return this.#t.json(this.#get('/grep', { base, pattern, literal, ignore_case: o.ignoreCase, include, limit, context }, o))
  }

  /** What changes at a path, from now on; an event of type overflow says that some are lost. */
  async *watch(path: string, o: CallOptions & { recursive?: boolean } = {}): AsyncGenerator<Schemas['FileEvent']> {
    for await (const ev of this.#t.events(this.#get('/watch', { path, recursive: o.recursive }, o))) yield JSON.parse(ev.data)
  }

  /** A directory as a tar stream. Its content is the sandbox's: unpack it with a tool that trusts nothing of it. */
  async download(path: string, o: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    return bodyOf(await this.#t.send({ path: `${this.#sandbox}/tree`, query: { path, user: this.#user }, ...signalOf(o) }))
  }

  /** Unpacks a tar beneath a directory. */
  upload(path: string, tar: Content, o: CallOptions = {}): Promise<Schemas['TreeWritten']> {
    const headers = { 'Content-Type': 'application/x-tar' }
    return this.#t.json({ method: 'PUT', path: `${this.#sandbox}/tree`, query: { path, user: this.#user }, headers, body: bytesOf(tar), ...signalOf(o) })
  }

  #get(rest: string, query: NonNullable<Call['query']>, o: CallOptions): Call {
    return { path: `${this.#sandbox}/files${rest}`, query: { ...query, user: this.#user }, ...signalOf(o) }
  }

  #post(verb: string, body: object, o: CallOptions): Promise<FileInfo> {
    return this.#t.json({ method: 'POST', path: `${this.#sandbox}/files/${verb}`, json: { ...body, user: this.#user }, ...signalOf(o) })
  }
}

function signalOf(o: CallOptions): CallOptions {
  return o.signal ? { signal: o.signal } : {}
}

function bytesOf(content: Content): Uint8Array | Blob | ReadableStream<Uint8Array> {
  if (typeof content === 'string') return new TextEncoder().encode(content)
  if (content instanceof Uint8Array || content instanceof Blob || content instanceof ReadableStream) return content
  if (!content || !(Symbol.asyncIterator in content)) throw errorOf('invalid', 'the content is no text, no bytes and no stream')
  const items = content[Symbol.asyncIterator]()
  return new ReadableStream<Uint8Array>({
    async pull(c) {
      const { done, value } = await items.next()
      if (done) c.close()
      else c.enqueue(value)
    },
    async cancel() {
      await items.return?.()
    },
  })
}
