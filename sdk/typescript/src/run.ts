import { errorOf, problemError } from './errors.js'
import type { components } from './openapi.js'
import { type Call, type CallOptions, bodyOf, newKey, part, sleep, type Transport } from './transport.js'

type Schemas = components['schemas']

/** A run as the server describes it. */
export type RunInfo = Schemas['Run']
/** One entry of a run's log. */
export type RunEvent = Schemas['RunEvent']
/** A tool call that waits for a person. */
export type Approval = Schemas['Approval']

/** What of a run's stream is wanted. */
export interface RunEventOptions extends CallOptions {
  /** The first event; default all. */
  from?: number
  /** false: those that there are now. */
  follow?: boolean
}

/** One piece of a run's stream with live news: one of them is set. */
export interface RunNews {
  event?: RunEvent
  live?: Schemas['Live']
  /** How many live news were dropped; the events have all of it. */
  lost?: number
  end?: Schemas['StreamEnd']
}

const final = ['succeeded', 'failed', 'cancelled', 'timed_out']

/** The runs of agents on a server. */
export class Runs {
  readonly #t: Transport
  constructor(t: Transport) {
    this.#t = t
  }

  /** Starts a run; it goes on without us. A broken connection never starts a second one. */
  async start(r: Schemas['StartRun'], o: CallOptions = {}): Promise<Run> {
    const info = await this.#t.json<RunInfo>({ method: 'POST', path: '/v1/runs', json: r, ...keyed(), ...o })
    return new Run(this.#t, info.id, info)
  }

  /** The run with an id; it is asked for. */
  async get(id: string, o: CallOptions = {}): Promise<Run> {
    const info = await this.#t.json<RunInfo>({ path: `/v1/runs/${part(id)}`, ...o })
    return new Run(this.#t, info.id, info)
  }

  /** A handle on a run; nothing is asked. */
  handle(id: string): Run {
    return new Run(this.#t, id)
  }

  /** Goes through the runs, newest first, without those of sub-agents. */
  list(f: CallOptions & { state?: string; thread?: string; agent?: string; labels?: Record<string, string>; subagents?: boolean } = {}): AsyncGenerator<RunInfo> {
    const label = Object.entries(f.labels ?? {}).map(([k, v]) => `${k}=${v}`)
    const query = { state: f.state, thread: f.thread, agent: f.agent, label, subagents: f.subagents }
    return this.#t.pages({ path: '/v1/runs', query, ...(f.signal ? { signal: f.signal } : {}) })
  }

  /** All calls that wait for a person. */
  async approvals(o: CallOptions = {}): Promise<Approval[]> {
    return (await this.#t.json<Schemas['ApprovalList']>({ path: '/v1/approvals', ...o })).items ?? []
  }
}

/** One run. Its methods ask the server; it is safe for concurrent use. */
export class Run {
  readonly #t: Transport
  readonly #path: string

  /** info is the run when it was asked for last; undefined of a handle. */
  constructor(t: Transport, readonly id: string, readonly info?: RunInfo) {
    this.#t = t
    this.#path = `/v1/runs/${part(id)}`
  }

  /** The run as it is now. */
  get(o: CallOptions = {}): Promise<RunInfo> {
    return this.#t.json({ path: this.#path, ...o })
  }

  /**
   * Goes through the run's events as they come, until it is over: none is left out or comes
   * twice, however often the connection breaks. Kinds that a program does not know are to be
   * skipped.
   */
  async *events(o: RunEventOptions = {}): AsyncGenerator<RunEvent> {
    for await (const n of this.#stream(o, false)) if (n.event) yield n.event
  }

  /** The events with live news between them: parts of answers, output of calls under way. */
  live(o: RunEventOptions = {}): AsyncGenerator<RunNews> {
    return this.#stream(o, true)
  }

  async *#stream(o: RunEventOptions, live: boolean): AsyncGenerator<RunNews> {
    const query = { from: o.from || undefined, live, ...(o.follow === false ? { follow: 'false' } : {}) }
    const call: Call = { path: `${this.#path}/events`, query, ...(o.signal ? { signal: o.signal } : {}) }
    for await (const ev of this.#t.events(call, { finite: o.follow === false, last: (ev) => ev.name === 'end' })) {
      const data = JSON.parse(ev.data)
      if (ev.name === 'event') yield { event: data }
      else if (ev.name === 'live') yield { live: data }
      else if (ev.name === 'gap') yield { lost: data.lost }
      else if (ev.name === 'end') yield { end: data }
    }
  }

  /** Waits until the run is over. */
  async wait(o: CallOptions = {}): Promise<RunInfo> {
    let run = await this.get(o)
    if (!final.includes(run.state)) for await (const _ of this.events({ from: run.last_seq, ...o }));
    for (let attempt = 0; attempt < 10; attempt++) {
      run = await this.get(o)
      if (final.includes(run.state)) return run
      await sleep(50 * 2 ** attempt, o.signal) // its record may lag behind its log
    }
    throw errorOf('unavailable', `run ${this.id} has ended, and its record does not say how`)
  }

  /** Sends a message: the run takes it before its next step; one that is over is followed by a new one, which the answer names. */
  send(text: string, o: CallOptions & { images?: Schemas['Image'][] } = {}): Promise<Schemas['Sent']> {
    const { images, ...rest } = o
    return this.#t.json({ method: 'POST', path: `${this.#path}/send`, json: { text, ...(images ? { images } : {}) }, ...keyed(), ...rest })
  }

  /** The calls of the run, and of its sub-agents, that wait for a person. */
  async approvals(o: CallOptions = {}): Promise<Approval[]> {
    return (await this.#t.json<Schemas['ApprovalList']>({ path: `${this.#path}/approvals`, ...o })).items ?? []
  }

  /** Answers approvals, each for itself. A ConflictError: another client was quicker. */
  async decide(decisions: Schemas['Decide'][], o: CallOptions = {}): Promise<Schemas['Decided'][]> {
    // Not repeated: a repetition would be told that it was decided already, by us.
    const call = { method: 'POST', path: `${this.#path}/decisions`, json: { decisions }, ...o }
    const items = (await this.#t.json<Schemas['DecidedList']>(call)).items ?? []
    const refused = items.find((d) => !d.ok && d.problem)?.problem
    if (refused) throw problemError(refused, refused.status)
    return items
  }

  /** Lets a call be done. */
  approve(a: Approval, o: CallOptions & { always?: boolean } = {}): Promise<Schemas['Decided'][]> {
    const { always, ...rest } = o
    return this.decide([{ ...about(a), decision: 'approve', ...(always ? { always } : {}) }], rest)
  }

  /** Refuses a call, and says why. */
  reject(a: Approval, text = '', o: CallOptions = {}): Promise<Schemas['Decided'][]> {
    return this.decide([{ ...about(a), decision: 'reject', text }], o)
  }

  /** Gives an answer in place of a call's result, as to a question. */
  respond(a: Approval, text: string, o: CallOptions = {}): Promise<Schemas['Decided'][]> {
    return this.decide([{ ...about(a), decision: 'respond', text }], o)
  }

  /** Ends the run, and what it started. */
  cancel(reason = '', o: CallOptions = {}): Promise<RunInfo> {
    return this.#t.json({ method: 'POST', path: `${this.#path}/cancel`, json: { reason }, repeatable: true, ...o })
  }

  /** Goes on with a run that a budget or a failure ended. */
  resume(how: Schemas['ResumeRun'] = {}, o: CallOptions = {}): Promise<RunInfo> {
    // Not repeated: what is added would be added twice.
    return this.#t.json({ method: 'POST', path: `${this.#path}/resume`, json: how, ...o })
  }

  /** Takes the conversation back to an event, and with files those of the sandbox too. */
  rewind(to: number, o: CallOptions & { files?: boolean } = {}): Promise<Schemas['Rewound']> {
    const { files = false, ...rest } = o
    return this.#t.json({ method: 'POST', path: `${this.#path}/rewind`, json: { to, files }, repeatable: true, ...rest })
  }

  /** Starts a thread that begins as a copy of this one's events. */
  async fork(how: Schemas['ForkRun'], o: CallOptions = {}): Promise<Run> {
    const info = await this.#t.json<RunInfo>({ method: 'POST', path: `${this.#path}/fork`, json: how, ...keyed(), ...o })
    return new Run(this.#t, info.id, info)
  }

  /** The story of its last steps. */
  transcript(o: CallOptions & { last?: number; before?: number } = {}): Promise<Schemas['Transcript']> {
    const { last, before, ...rest } = o
    return this.#t.json({ path: `${this.#path}/transcript`, query: { last, before }, ...rest })
  }

  /** The agent's plan. */
  async todos(o: CallOptions = {}): Promise<Schemas['Todo'][]> {
    return (await this.#t.json<Schemas['TodoList']>({ path: `${this.#path}/todos`, ...o })).items ?? []
  }

  /** The whole output of a tool call. */
  async output(call: string, o: CallOptions & { offset?: number } = {}): Promise<ReadableStream<Uint8Array>> {
    const { offset, ...rest } = o
    return bodyOf(await this.#t.send({ path: `${this.#path}/calls/${part(call)}/output`, query: { offset }, ...rest }))
  }
}

function about(a: Approval): Pick<Schemas['Decide'], 'call' | 'thread' | 'args_hash'> {
  return { call: a.call, thread: a.thread, args_hash: a.args_hash }
}

function keyed(): Pick<Call, 'headers' | 'repeatable'> {
  return { headers: { 'Idempotency-Key': newKey() }, repeatable: true }
}
