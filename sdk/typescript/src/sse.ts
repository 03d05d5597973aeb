// Server-sent events, as they come out of an answer's body.

/** One event. */
export interface ServerEvent {
  id: string
  name: string
  data: string
}

/** An event that is longer is not the server's. */
const eventCharsMax = 8 << 20

/**
 * Goes through the events of a body. An event that the end of the stream cut short is
 * not returned; the id of an event without one is the last that was seen.
 */
export async function* serverEvents(body: ReadableStream<Uint8Array>, lastID = ''): AsyncGenerator<ServerEvent> {
  const event = { id: lastID, name: '', data: [] as string[] }
  for await (const line of lines(body)) {
    if (line === '') {
      if (event.data.length) yield { id: event.id, name: event.name, data: event.data.join('\n') }
      event.name = ''
      event.data = []
      continue
    }
    const colon = line.indexOf(':')
    if (colon === 0) continue // a comment, which keeps the connection alive
    const field = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1)
    if (field === 'data') event.data.push(value)
    else if (field === 'event') event.name = value
    else if (field === 'id') event.id = value
  }
}

async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader()
  const decoder = new TextDecoder()
  let parts: string[] = [] // of the line that has no end yet
  let size = 0
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      const text = decoder.decode(value, { stream: true })
      let from = 0
      for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', from)) {
        parts.push(text.slice(from, end))
        const line = parts.join('')
        yield line.endsWith('\r') ? line.slice(0, -1) : line
        parts = []
        size = 0
        from = end + 1
      }
      parts.push(text.slice(from))
      size += text.length - from
      if (size > eventCharsMax) throw new Error('an event of the server is too long')
    }
  } finally {
    await reader.cancel().catch(() => {})
  }
}
