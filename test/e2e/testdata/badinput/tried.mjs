// What the scripts beside have in common: each prints a line of JSON for what it tried.
import assert from 'node:assert/strict'

export async function tried(method, call) {
  try {
    await call()
    console.log(JSON.stringify({ method, result: 'works' }))
  } catch (e) {
    console.log(JSON.stringify({ method, result: 'fails', note: `${e?.name}: ${e?.stack ?? e?.message}`.slice(0, 900) }))
  }
}

// twoGigabytes is a large file, a piece at a time.
export async function* twoGigabytes() {
  const piece = new Uint8Array(1 << 20)
  for (let i = 0; i < 2048; i++) yield piece
}

// within fails when a call does not end: what is refused may not hang.
export const within = (promise, ms = 60_000) => {
  let timer
  const late = new Promise((_, no) => (timer = setTimeout(() => no(new assert.AssertionError({ message: 'it does not end' })), ms)))
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

export const sizes = [
  { cols: 0, rows: 24 },
  { cols: 65535, rows: 65535 },
]
