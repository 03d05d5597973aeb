import { errorOf } from './errors.js'
import type { components } from './openapi.js'
import { bodyOf, type CallOptions, type Transport } from './transport.js'

type Schemas = components['schemas']

/** One recorded state of a workspace. */
export type Revision = Schemas['Revision']
/** What a way back would do. */
export type ChangePlan = Schemas['ChangePlan']
/** What a way back has done. */
export type Applied = Schemas['Applied']

/** What is undone; default the last change. */
export type UndoOptions = CallOptions & Pick<Schemas['PlanChange'], 'scope' | 'thread' | 'run' | 'step' | 'call'>

/** The revisions of a workspace, and the ways back. Paths are relative to the workspace. */
export class History {
  readonly #t: Transport
  readonly #path: string

  constructor(t: Transport, path: string) {
    this.#t = t
    this.#path = path
  }

  /** Goes through the revisions, newest first. */
  list(o: CallOptions & { thread?: string; run?: string } = {}): AsyncGenerator<Revision> {
    return this.#t.pages({ path: this.#path, query: { thread: o.thread, run: o.run }, ...signalOf(o) })
  }

  /** The newest revisions, and where undo and redo would go. */
  page(o: CallOptions & { pageSize?: number; pageToken?: string } = {}): Promise<Schemas['RevisionPage']> {
    return this.#t.json({ path: this.#path, query: { page_size: o.pageSize, page_token: o.pageToken }, ...signalOf(o) })
  }

  /** A revision, and what it changed. */
  get(n: number, o: CallOptions = {}): Promise<Schemas['RevisionChanges']> {
    return this.#t.json({ path: `${this.#path}/${n}`, ...signalOf(o) })
  }

  /** Makes a revision of what is there now; where nothing changed it is the last one. */
  snapshot(label?: string, o: CallOptions = {}): Promise<Revision> {
    return this.#t.json({ method: 'POST', path: this.#path, json: { label }, repeatable: true, ...signalOf(o) })
  }

  /** What differs: from 0 is the empty tree, to 0 the files as they are now. */
  diff(from: number, to = 0, o: CallOptions & { path?: string; hunks?: boolean; context?: number } = {}): Promise<Schemas['Diff']> {
    const query = { from, to, path: o.path, hunks: o.hunks, context: o.context }
    return this.#t.json({ path: `${this.#path}/diff`, query, ...signalOf(o) })
  }

  /** The revisions that changed a path, newest first. */
  of(path: string, o: CallOptions = {}): Promise<Schemas['PathRevisions']> {
    return this.#t.json({ path: `${this.#path}/path`, query: { path }, ...signalOf(o) })
  }

  /** A file as it was in a revision. */
  async stream(n: number, path: string, o: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    return bodyOf(await this.#t.send({ path: `${this.#path}/${n}/file`, query: { path }, ...signalOf(o) }))
  }

  /** Says what a way back would do; nothing is done. */
  plan(p: Schemas['PlanChange'], o: CallOptions = {}): Promise<ChangePlan> {
    return this.#t.json({ method: 'POST', path: `${this.#path}/plan`, json: p, repeatable: true, ...signalOf(o) })
  }

  /** Does what was planned. A ConflictError: the files changed since; plan again. */
  apply(plan: string, o: CallOptions = {}): Promise<Applied> {
    return this.#t.json({ method: 'POST', path: `${this.#path}/apply`, json: { plan }, repeatable: true, ...signalOf(o) })
  }

  /** Takes the last change back, or all of a step, a run, a turn or a call. */
  undo(o: UndoOptions = {}): Promise<Applied> {
    const { signal, ...scope } = o
    return this.#do({ do: 'undo', ...scope }, signal)
  }

  /** Takes an undo back. */
  redo(o: CallOptions = {}): Promise<Applied> {
    return this.#do({ do: 'redo' }, o.signal)
  }

  /** Makes the files, or those at path, what they were in a revision. */
  restore(n: number, o: CallOptions & { path?: string } = {}): Promise<Applied> {
    return this.#do({ do: 'restore', n, ...(o.path === undefined ? {} : { path: o.path }) }, o.signal)
  }

  /** Takes back what one revision changed, and leaves what came later. */
  revert(n: number, o: CallOptions & { choices?: Schemas['RevertChoice'][] } = {}): Promise<Applied> {
    return this.#do({ do: 'revert', n, ...(o.choices ? { choices: o.choices } : {}) }, o.signal)
  }

  async #do(p: Schemas['PlanChange'], signal?: AbortSignal): Promise<Applied> {
    const o = signalOf({ ...(signal ? { signal } : {}) })
    const plan = await this.plan(p, o)
    const [conflict] = plan.conflicts ?? []
    if (conflict)
      throw errorOf('conflict', `${JSON.stringify(conflict.path)} was changed again since: ${conflict.why}`, {
        hint: 'choose for each such path what is to become of it',
      })
    return this.apply(plan.id, o)
  }
}

function signalOf(o: CallOptions): CallOptions {
  return o.signal ? { signal: o.signal } : {}
}
