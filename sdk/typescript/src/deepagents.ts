// The sandbox backend of LangChain Deep Agents (npm: deepagents): its
// SandboxBackendProtocolV2. Files go by the API for files, never through a shell.
//
//     import { createDeepAgent } from 'deepagents'
//     import { SketeSandbox } from 'skete/deepagents'
//     const backend = await SketeSandbox.create({ language: 'python' })
//     const agent = createDeepAgent({ model, backend })

import { Client } from './client.js'
import { ConflictError, SketeError } from './errors.js'
import type { FileInfo as SketeFile } from './files.js'
import type { Applied, UndoOptions } from './history.js'
import type { components } from './openapi.js'
import type { Sandbox } from './sandbox.js'
import { bodyOf, broken, type ClientOptions } from './transport.js'

// These are the shapes of deepagents 1.14: this package does not depend on it.

/** A path in a listing; directories end in a slash. */
export interface FileInfo {
  path: string
  is_dir?: boolean
  size?: number
  modified_at?: string
}
export interface GrepMatch {
  path: string
  line: number
  text: string
}
export interface LsResult {
  error?: string
  files?: FileInfo[]
}
export interface ReadResult {
  error?: string
  content?: string | Uint8Array
  mimeType?: string
  totalLines?: number
  startLine?: number
  endLine?: number
  nextOffset?: number
}
export interface ReadRawResult {
  error?: string
  data?: { content: string | Uint8Array; mimeType: string; created_at: string; modified_at: string }
}
export interface GrepResult {
  error?: string
  matches?: GrepMatch[]
  truncated?: boolean
}
export interface GlobResult {
  error?: string
  files?: FileInfo[]
  truncated?: boolean
}
export interface WriteResult {
  error?: string
  path?: string
  filesUpdate?: null
}
export interface EditResult extends WriteResult {
  occurrences?: number
}
export type DeleteResult = WriteResult
export interface ExecuteResponse {
  output: string
  exitCode: number | null
  truncated: boolean
}
export type FileOperationError = 'file_not_found' | 'permission_denied' | 'is_directory' | 'invalid_path'
export interface FileUploadResponse {
  path: string
  error: FileOperationError | null
}
export interface FileDownloadResponse {
  path: string
  content: Uint8Array | null
  error: FileOperationError | null
}

/** How a backend works. */
export interface SketeSandboxOptions {
  /** A command is ended after this; default 30 minutes, at most 60. */
  timeoutMs?: number
  /** What is kept of each stream of a command's output; default 1 MiB, at most 16. */
  outputBytesMax?: number
  /**
   * The paths that glob gives: absolute, as the tool promises to the model and as
   * CompositeBackend needs them (default), or relative to the search, as BaseSandbox does.
   */
  globPaths?: 'absolute' | 'relative'
}

const emptyFile = 'System reminder: File exists but has empty contents'
const binaryReadMax = 10 << 20 // the package's own bound of what its tool shows
const windowBytesMax = 10 << 20
const countBytesMax = 64 << 20 // larger files are not read to the end for the number of their lines
const editBytesMax = 100 << 20
const editAttempts = 10
const transfersMax = 8
const globMax = 50_000
const grepMax = 10_000

/** A sandbox of skete as a backend of deep agents. It is safe for concurrent use: edits of one file at once are not lost. */
export class SketeSandbox {
  readonly sandbox: Sandbox
  readonly #timeoutMs: number
  readonly #outputBytesMax: number
  readonly #absolute: boolean

  constructor(sandbox: Sandbox, options: SketeSandboxOptions = {}) {
    this.sandbox = sandbox
    this.#timeoutMs = options.timeoutMs ?? 30 * 60_000
    this.#outputBytesMax = options.outputBytesMax ?? 1 << 20
    this.#absolute = options.globPaths !== 'relative'
  }

  /** Makes a sandbox, and a backend that works in it. */
  static async create(spec: components['schemas']['CreateSandbox'] = {}, options: SketeSandboxOptions & ClientOptions = {}): Promise<SketeSandbox> {
    return new SketeSandbox(await new Client(options).sandboxes.create(spec), options)
  }

  get id(): string {
    return this.sandbox.id
  }

  /** Takes the last change back, also one of another author. */
  undo(options: UndoOptions = {}): Promise<Applied> {
    return this.sandbox.history.undo(options)
  }

  /** Removes the sandbox; its history stays. */
  async close(): Promise<void> {
    await this.sandbox.remove()
  }

  async ls(path: string): Promise<LsResult> {
    try {
      const found: SketeFile[] = []
      for await (const f of this.sandbox.files.list(path)) found.push(f)
      return { files: (await each(found, (f) => this.#seen(f))).map((f) => infoOf(f, f.path)) }
    } catch (e) {
      if (['file_not_found', 'invalid_path'].includes(codeOf(e) ?? '')) return { files: [] } // as find does, of what is no directory too
      return { error: textOf(e) }
    }
  }

  async read(filePath: string, offset = 0, limit = 500): Promise<ReadResult> {
    const mimeType = mimeTypeOf(filePath)
    try {
      if (!isText(mimeType)) return await this.#readBinary(filePath, mimeType)
      const from = Number.isFinite(offset) ? Math.max(0, Math.floor(offset)) : 0
      const count = Number.isFinite(limit) ? Math.max(0, Math.floor(limit)) : 0
      const { text, lines, total, size } = await this.#window(filePath, from, count)
      if (size === 0) return { content: emptyFile, mimeType }
      if (count === 0) return { content: '', mimeType }
      if (lines === 0) return { error: `Line offset ${from} exceeds file length (${total} lines)` }
      const end = from + lines
      const more = total === undefined || end < total
      return {
        content: text, mimeType, startLine: from + 1, endLine: end,
        ...(total === undefined ? {} : { totalLines: total }), ...(more ? { nextOffset: end } : {}),
      }
    } catch (e) {
      return { error: why(filePath, e) }
    }
  }

  async #readBinary(path: string, mimeType: string): Promise<ReadResult> {
    const { size } = await this.sandbox.files.stat(path, { follow: true })
    if (size > binaryReadMax) return { error: `File '${path}' is too large to read: ${size} bytes, at most ${binaryReadMax} of a file that is no text` }
    return { content: await this.sandbox.files.read(path), mimeType }
  }

  /** Reads lines of a file without holding the rest of it. total is undefined where the end was not reached. */
  async #window(path: string, from: number, count: number) {
    const res = await this.sandbox.files.open(path)
    const reader = bodyOf(res).getReader()
    const kept: Uint8Array[] = []
    let line = 0 // the one that the next byte belongs to
    let size = 0
    let keptBytes = 0
    let last = 0x0a
    let full = false
    const decoded = () => new TextDecoder().decode(Buffer.concat(kept))
    try {
      for (;;) {
        const { done, value } = await reader.read().catch((e) => Promise.reject(broken(e)))
        if (done) break
        size += value.length
        last = value[value.length - 1] ?? last
        for (let at = 0; at < value.length; ) {
          const newline = value.indexOf(0x0a, at)
          const end = newline < 0 ? value.length : newline + 1
          if (!full && line >= from && line < from + count) {
            kept.push(value.subarray(at, end))
            keptBytes += end - at
            if (keptBytes > windowBytesMax) full = true
          }
          if (newline >= 0) line++
          at = end
        }
        if (full || (size > countBytesMax && line >= from + count)) {
          const lines = full ? Math.max(1, wholeLines(kept)) : count
          return { text: full ? cut(decoded()) : decoded().replace(/\n$/, ''), lines, total: undefined, size }
        }
      }
    } finally {
      await reader.cancel().catch(() => {})
    }
    const total = line + (last === 0x0a ? 0 : 1)
    const lines = Math.max(0, Math.min(count, total - from))
    const text = decoded()
    return { text: from + lines < total ? text.replace(/\n$/, '') : text, lines, total, size }
  }

  async readRaw(filePath: string): Promise<ReadRawResult> {
    try {
      const mimeType = mimeTypeOf(filePath)
      const [stat, bytes] = await Promise.all([this.sandbox.files.stat(filePath, { follow: true }), this.sandbox.files.read(filePath)])
      const content = isText(mimeType) ? new TextDecoder().decode(bytes) : bytes
      return { data: { content, mimeType, created_at: stat.modified_at, modified_at: stat.modified_at } }
    } catch (e) {
      return { error: why(filePath, e) }
    }
  }

  async grep(pattern: string, path: string | null = '/', glob: string | null = null, maxCount: number | null = null): Promise<GrepResult> {
    const limit = Math.min(maxCount ?? grepMax, 100_000)
    const include = glob ? (glob.includes('/') ? glob.replace(/^\/+/, '') : `**/${glob}`) : ''
    try {
      const found = await this.sandbox.files.grep(pattern, { base: path || '/', literal: true, include, limit })
      const matches = (found.items ?? []).filter((m) => isText(mimeTypeOf(m.path))).map((m) => ({ path: m.path, line: m.line, text: m.text }))
      return found.truncated ? { matches, truncated: true } : { matches }
    } catch (e) {
      if (codeOf(e) === 'file_not_found') return { matches: [] }
      return { error: textOf(e) }
    }
  }

  async glob(pattern: string, path = '/'): Promise<GlobResult> {
    try {
      const found = await this.sandbox.files.glob(pattern.replace(/^\/+/, ''), { base: path, limit: globMax })
      const base = path.endsWith('/') ? path : `${path}/`
      const files = (found.items ?? []).map((f) => {
        const name = this.#absolute || !f.path.startsWith(base) ? f.path : f.path.slice(base.length)
        return { ...infoOf(f, name), path: name }
      })
      return { files, truncated: found.truncated }
    } catch (e) {
      if (codeOf(e) === 'file_not_found') return { files: [], truncated: false }
      return { error: textOf(e) }
    }
  }

  async write(filePath: string, content: string): Promise<WriteResult> {
    const bytes = isText(mimeTypeOf(filePath)) ? Buffer.from(content) : Buffer.from(content, 'base64')
    try {
      await this.sandbox.files.write(filePath, bytes, { parents: true })
      return { path: filePath, filesUpdate: null }
    } catch (e) {
      return { error: `Failed to write to ${filePath}: ${codeOf(e) ?? textOf(e)}` }
    }
  }

  /**
   * Replaces text of a file. Other bytes stay what they are, and what another edit wrote
   * meanwhile too: the file is written only over what was read.
   */
  async edit(filePath: string, oldString: string, newString: string, replaceAll = false): Promise<EditResult> {
    try {
      for (let attempt = 1; ; attempt++) {
        const { text, sha256 } = await this.#latin1(filePath)
        const done = replaced(filePath, text, latin1(oldString), latin1(newString), replaceAll)
        if ('error' in done) return done
        if (done.text !== text) {
          try {
            await this.sandbox.files.write(filePath, Buffer.from(done.text, 'latin1'), { ifSha256: sha256 })
          } catch (e) {
            if (attempt < editAttempts && (e instanceof ConflictError || (isClass(e, 'unavailable') && (await this.#latin1(filePath)).text !== done.text))) continue
            if (!isClass(e, 'unavailable')) throw e
          }
        }
        return { path: filePath, filesUpdate: null, occurrences: done.occurrences }
      }
    } catch (e) {
      return { error: codeOf(e) === 'file_not_found' ? `Error: File '${filePath}' not found` : `Error: ${why(filePath, e)}` }
    }
  }

  /** The content with a character for each byte, and its hash. */
  async #latin1(path: string): Promise<{ text: string; sha256: string }> {
    const res = await this.sandbox.files.open(path, { hash: true })
    if (Number(res.headers.get('Content-Length')) > editBytesMax) {
      await res.body?.cancel()
      throw new TypeError(`the file is larger than ${editBytesMax} bytes: edit it with a command`)
    }
    const bytes = await res.arrayBuffer().catch((e) => Promise.reject(broken(e)))
    return { text: Buffer.from(bytes).toString('latin1'), sha256: (res.headers.get('ETag') ?? '').replace(/^"|"$/g, '') }
  }

  async delete(filePath: string): Promise<DeleteResult> {
    try {
      await this.sandbox.files.remove(filePath, { recursive: true })
      return { path: filePath, filesUpdate: null }
    } catch (e) {
      if (codeOf(e) === 'file_not_found') return { error: `Error: '${filePath}' not found` }
      return { error: `Error deleting file '${filePath}': ${textOf(e)}` }
    }
  }

  async uploadFiles(files: Array<[string, Uint8Array]>): Promise<FileUploadResponse[]> {
    return each(files, async ([path, content]) => {
      if (!path.startsWith('/')) return { path, error: 'invalid_path' }
      try {
        await this.sandbox.files.write(path, content, { parents: true })
        return { path, error: null }
      } catch (e) {
        const error = codeOf(e)
        if (!error) throw e
        return { path, error }
      }
    })
  }

  async downloadFiles(paths: string[]): Promise<FileDownloadResponse[]> {
    return each(paths, async (path) => {
      if (!path.startsWith('/')) return { path, content: null, error: 'invalid_path' }
      try {
        return { path, content: await this.sandbox.files.read(path), error: null }
      } catch (e) {
        const error = codeOf(e)
        if (!error) throw e
        return { path, content: null, error }
      }
    })
  }

  /** Runs a command line. What it wrote to its error stream stands behind its output. */
  async execute(command: string): Promise<ExecuteResponse> {
    const r = await this.sandbox.run(command, { timeoutMs: this.#timeoutMs, outputBytesMax: this.#outputBytesMax })
    const parts = [r.stdout, r.stderr, r.reason && `[${r.notStarted ? 'not started' : 'ended'}: ${r.reason}]`].filter(Boolean)
    return { output: parts.map((p, i) => (i < parts.length - 1 && !p.endsWith('\n') ? `${p}\n` : p)).join(''), exitCode: r.exitCode, truncated: r.truncated }
  }

  /** What a symbolic link leads to, by its own path. */
  async #seen(f: SketeFile): Promise<SketeFile> {
    if (f.type !== 'symlink') return f
    try {
      return { ...(await this.sandbox.files.stat(f.path, { follow: true })), path: f.path }
    } catch {
      return f // it leads nowhere
    }
  }
}

/** The package's codes, by those of the server. */
const codes: Record<string, FileOperationError> = {
  file_not_found: 'file_not_found', permission_denied: 'permission_denied', is_directory: 'is_directory',
  not_a_directory: 'invalid_path', not_a_file: 'invalid_path', invalid_path: 'invalid_path', file_exists: 'invalid_path', directory_not_empty: 'invalid_path',
}

/** The package's code of an error; undefined where it has none. */
function codeOf(e: unknown): FileOperationError | undefined {
  return e instanceof SketeError ? codes[e.code ?? ''] : undefined
}

function why(path: string, e: unknown): string {
  const code = codeOf(e)
  if (code === 'file_not_found') return `File '${path}' not found`
  return code ? `${code}: ${textOf(e)}` : textOf(e)
}

function isClass(e: unknown, ...classes: SketeError['class'][]): e is SketeError {
  return e instanceof SketeError && classes.includes(e.class)
}

function textOf(e: unknown): string {
  return e instanceof Error ? e.message : String(e)
}

function infoOf(f: SketeFile, path: string): FileInfo {
  const dir = f.type === 'directory'
  return { path: dir ? `${path}/` : path, is_dir: dir, size: f.size, modified_at: f.modified_at }
}

/** A character for each byte of the text. */
function latin1(text: string): string {
  return Buffer.from(text).toString('latin1')
}

/** Replaces text by the rules of the package, with its words. */
function replaced(path: string, text: string, from: string, to: string, all: boolean): { text: string; occurrences: number } | { error: string } {
  if (from === '') {
    if (text !== '') return { error: 'oldString must not be empty unless the file is empty' }
    return { text: to, occurrences: to === '' ? 0 : 1 }
  }
  const parts = text.split(from)
  const occurrences = parts.length - 1
  if (occurrences === 0) return { error: `String not found in file '${path}'` }
  if (from === to) return { text, occurrences: 1 }
  if (occurrences > 1 && !all) return { error: `Multiple occurrences found in '${path}'. Use replaceAll=true to replace all.` }
  return { text: parts.join(to), occurrences }
}

/** Counts the whole lines. */
function wholeLines(chunks: Uint8Array[]): number {
  return chunks.filter((c) => c[c.length - 1] === 0x0a).length
}

/** Takes away a line that is not whole, unless it is the only one. */
function cut(text: string): string {
  const end = text.lastIndexOf('\n')
  return end < 0 ? text : text.slice(0, end)
}

/** Calls f of each item, a few at once, and keeps the order. */
async function each<T, R>(items: T[], f: (item: T) => Promise<R>): Promise<R[]> {
  const results = new Array<R>(items.length)
  let next = 0
  const work = async () => {
    while (next < items.length) {
      const i = next++
      results[i] = await f(items[i]!)
    }
  }
  await Promise.all(Array.from({ length: Math.min(transfersMax, items.length) }, work))
  return results
}

/** What the package takes for no text, by the ends of names; all else is text. */
const binaryTypes: Record<string, string> = {
  png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp', heic: 'image/heic', heif: 'image/heif',
  mp3: 'audio/mpeg', wav: 'audio/wav', aiff: 'audio/aiff', aac: 'audio/aac', ogg: 'audio/ogg', flac: 'audio/flac',
  mp4: 'video/mp4', webm: 'video/webm', mpeg: 'video/mpeg', mov: 'video/quicktime', avi: 'video/x-msvideo', flv: 'video/x-flv',
  mpg: 'video/mpeg', wmv: 'video/x-ms-wmv', '3gpp': 'video/3gpp',
  pdf: 'application/pdf', ppt: 'application/vnd.ms-powerpoint',
  pptx: 'application/vnd.openxmlformats-officedocument.presentationml.presentation',
}
const textTypes: Record<string, string> = {
  svg: 'image/svg+xml', md: 'text/markdown', markdown: 'text/markdown', html: 'text/html', htm: 'text/html', css: 'text/css', csv: 'text/csv',
  xml: 'text/xml', json: 'application/json', js: 'application/javascript', mjs: 'application/javascript', cjs: 'application/javascript',
}

function mimeTypeOf(path: string): string {
  const name = path.slice(path.lastIndexOf('/') + 1)
  const dot = name.lastIndexOf('.')
  const end = dot <= 0 ? '' : name.slice(dot + 1).toLowerCase()
  return binaryTypes[end] ?? textTypes[end] ?? 'text/plain'
}

function isText(mimeType: string): boolean {
  return mimeType.startsWith('text/') || ['application/json', 'application/javascript', 'image/svg+xml'].includes(mimeType)
}
