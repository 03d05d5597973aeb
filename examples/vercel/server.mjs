// A web server that gives each visitor an agent in a sandbox: it brings the agent's files
// there, runs them, shows in the browser what the agent says while it works, and destroys
// the sandbox. It is written with Vercel's SDK, and uses skete where SKETE_URL says so.
//
//	npm install @vercel/sandbox
//	SKETE_URL=http://127.0.0.1:7733 SKETE_KEY=$(skete key create --name host-app) node server.mjs
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { Sandbox } from '@vercel/sandbox'

const { SKETE_URL, SKETE_KEY, PORT = '8080' } = process.env

// The SDK asks Vercel's own service, unless its fetch asks another.
const access = SKETE_URL && {
  token: SKETE_KEY,
  teamId: 'any',
  projectId: 'any',
  fetch: (url, init) => fetch(url.replace('https://vercel.com/api/', SKETE_URL + '/vercel/'), init),
}

const agent = await readFile(new URL('agent.js', import.meta.url))

const page = `<!doctype html>
<title>An agent</title>
<form><input name="task" value="Write a report" size="40"> <button>Run</button></form>
<pre></pre>
<script>
document.forms[0].onsubmit = async (event) => {
  event.preventDefault()
  const out = document.querySelector('pre')
  out.textContent = ''
  const answer = await fetch('/run?' + new URLSearchParams(new FormData(event.target)))
  const text = answer.body.pipeThrough(new TextDecoderStream()).getReader()
  for (let part; !(part = await text.read()).done; ) out.textContent += part.value
}
</script>`

async function run(task, response) {
  const gone = new AbortController()
  response.on('close', () => gone.abort())
  const sandbox = await Sandbox.create({ ...access, persistent: false, timeout: 300_000 })
  try {
    await sandbox.writeFiles([{ path: 'agent.js', content: agent }])
    const command = await sandbox.runCommand({ cmd: 'node', args: ['agent.js', task], detached: true })
    response.writeHead(200, { 'content-type': 'text/plain; charset=utf-8' })
    for await (const log of command.logs({ signal: gone.signal })) response.write(log.data)
    const { exitCode } = await command.wait()
    response.end(`exit code ${exitCode}\n`)
  } finally {
    await sandbox.stop() // which destroys it: it is not persistent
  }
}

const server = createServer((request, response) => {
  const url = new URL(request.url, 'http://host')
  if (url.pathname !== '/run') {
    response.writeHead(url.pathname === '/' ? 200 : 404, { 'content-type': 'text/html; charset=utf-8' }).end(page)
    return
  }
  run(url.searchParams.get('task') ?? '', response).catch((error) => {
    if (error.name !== 'AbortError' && !response.destroyed) console.error(error)
    response.headersSent ? response.destroy() : response.writeHead(502).end(`${error.message}\n`)
  })
})
server.listen(Number(PORT), '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`))
