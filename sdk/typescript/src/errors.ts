// What went wrong, by who has to act on it.

import type { components } from './openapi.js'

/** What the server says of a refusal (RFC 9457). */
export type Problem = components['schemas']['Problem']

/** Who has to act: see the subclasses of SketeError. */
export type ErrorClass =
  | 'invalid'
  | 'not_found'
  | 'exists'
  | 'denied'
  | 'conflict'
  | 'unsupported'
  | 'limit'
  | 'unavailable'
  | 'corrupt'
  | 'internal'

/** The error of every call; its subclasses are its classes. */
export class SketeError extends Error {
  override readonly name: string = 'SketeError'
  /** Who has to act. */
  readonly class: ErrorClass
  /** Of the answer; 0 when there was none. */
  readonly status: number
  /** What can be done about it, in words. */
  readonly hint: string | undefined
  /** Which refusal it is, where the class does not say it, as file_not_found; Problem lists them. */
  readonly code: string | undefined
  /** The whole of what the server said. */
  readonly problem: Problem | undefined
  /** How long the server asks to wait. */
  readonly retryAfterMs: number

  constructor(cls: ErrorClass, message: string, more: ErrorDetails = {}) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause })
    this.class = cls
    this.status = more.problem?.status ?? 0
    this.hint = more.hint ?? more.problem?.hint
    this.code = more.problem?.code
    this.problem = more.problem
    this.retryAfterMs = more.retryAfterMs ?? 0
  }
}

/** What an error may know beside its class and its text. */
export interface ErrorDetails {
  hint?: string
  problem?: Problem
  cause?: unknown
  retryAfterMs?: number
}

/** The request is wrong: change it. */
export class InvalidError extends SketeError {
  override readonly name = 'InvalidError'
}
/** There is no such thing, or it belongs to another tenant. */
export class NotFoundError extends SketeError {
  override readonly name = 'NotFoundError'
}
/** It is there already. */
export class ExistsError extends SketeError {
  override readonly name = 'ExistsError'
}
/** The key is none, or may not do this. */
export class DeniedError extends SketeError {
  override readonly name = 'DeniedError'
}
/** It changed meanwhile: read again. */
export class ConflictError extends SketeError {
  override readonly name = 'ConflictError'
}
/** This server or provider cannot do it. */
export class UnsupportedError extends SketeError {
  override readonly name = 'UnsupportedError'
}
/** A bound is reached. */
export class LimitError extends SketeError {
  override readonly name = 'LimitError'
}
/** The server does not answer, or not now. What may be repeated was, a few times. */
export class UnavailableError extends SketeError {
  override readonly name = 'UnavailableError'
}
/** What is kept is damaged. */
export class CorruptError extends SketeError {
  override readonly name = 'CorruptError'
}
/** A mistake of the server or of this package. */
export class InternalError extends SketeError {
  override readonly name = 'InternalError'
}

const classes = {
  invalid: InvalidError,
  not_found: NotFoundError,
  exists: ExistsError,
  denied: DeniedError,
  conflict: ConflictError,
  unsupported: UnsupportedError,
  limit: LimitError,
  unavailable: UnavailableError,
  corrupt: CorruptError,
  internal: InternalError,
} satisfies Record<ErrorClass, typeof SketeError>

/** Makes the error of a class. */
export function errorOf(cls: ErrorClass, message: string, more?: ErrorDetails): SketeError {
  return new classes[cls](cls, message, more)
}

/** Makes the error that a problem of the server means. */
export function problemError(p: Partial<Problem>, status: number, retryAfterMs = 0): SketeError {
  const cls = p.class !== undefined && p.class in classes ? (p.class as ErrorClass) : classOf(p.status || status)
  const problem = { ...p, title: p.title ?? '', status: p.status || status, class: cls } as Problem
  return errorOf(cls, textOf(problem), { problem, retryAfterMs })
}

/** Whether the same call may work later. */
export function temporary(e: unknown): boolean {
  return e instanceof SketeError && e.class === 'unavailable'
}

function textOf(p: Problem): string {
  const fields = (p.errors ?? [])
    .filter((f) => f.message !== p.detail)
    .map((f) => {
      const field = (f.location ?? '').replace(/^(body|query|path|for)\.?/, '')
      return field ? `${field}: ${f.message}` : f.message
    })
    .join('; ')
  const detail = p.detail || p.title || 'the server refused without a reason'
  if (!fields) return detail
  return detail === 'validation failed' ? fields : `${detail}; ${fields}`
}

/** Guesses the class of an answer that is not skete's own, as of a proxy before it. */
function classOf(status: number): ErrorClass {
  switch (status) {
    case 401:
    case 403:
      return 'denied'
    case 404:
      return 'not_found'
    case 409:
    case 412:
      return 'conflict'
    case 429:
      return 'limit'
    case 501:
      return 'unsupported'
    case 408:
    case 502:
    case 503:
    case 504:
      return 'unavailable'
  }
  return status >= 400 && status < 500 ? 'invalid' : 'internal'
}
