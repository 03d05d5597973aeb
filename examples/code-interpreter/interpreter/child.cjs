// Runs code of the kernels of JavaScript and TypeScript: a read-eval-print loop of Node
// without its prompt.
//
//	node child.cjs CODE EVENTS [types]
//
// A line of the descriptor CODE is code as a JSON string; to EVENTS go JSON texts with a
// NUL behind each: what is to be shown, and at the end the error or null.
'use strict'
const fs = require('node:fs')
const { PassThrough } = require('node:stream')
const { createInterface } = require('node:readline')
const { inspect } = require('node:util')
const { stripTypeScriptTypes } = require('node:module')
const repl = require('node:repl')
const acorn = require('acorn')

const [codeFD, eventsFD] = process.argv.slice(2, 4).map(Number)
const typed = process.argv[4] === 'types'
process.argv.splice(1)
process.argv.push('')

const tell = (event) => {
  for (let data = Buffer.from(JSON.stringify(event) + '\0'), at = 0; at < data.length; ) {
    at += fs.writeSync(eventsFD, data, at)
  }
}
const failed = (e) => console.error(inspect(e))
process.on('uncaughtException', failed)
process.on('unhandledRejection', failed)

const loop = repl.start({
  prompt: '', input: new PassThrough(), output: process.stderr, terminal: false, useGlobal: true, breakEvalOnSigint: true,
})
let running = null // what rejects the evaluation that is under way
const interrupted = () => running && loop.emit('SIGINT') // while it awaits; else it is broken at once
process.on('SIGINT', interrupted)
loop._domain.removeAllListeners('error') // which print it
loop._domain.on('error', (e) => (running ?? failed)(e))

// notebook makes code of a cell what the loop evaluates: imports are dynamic ones, and what
// is declared may be declared again when the cell runs again.
function notebook(code) {
  let tree
  try {
    tree = acorn.parse(code, { ecmaVersion: 'latest', sourceType: 'module', allowAwaitOutsideFunction: true, allowReturnOutsideFunction: true })
  } catch {
    return code // the loop says what is wrong
  }
  for (const node of tree.body.reverse()) {
    if (node.type === 'ImportDeclaration') code = code.slice(0, node.start) + imported(node) + code.slice(node.end)
    else if (node.type === 'VariableDeclaration') code = code.slice(0, node.start) + 'var' + code.slice(node.start + node.kind.length)
  }
  return code
}

function imported(node) {
  const from = `await import(${node.source.raw})`
  const name = (n) => n.name ?? n.raw
  const parts = []
  for (const s of node.specifiers) {
    if (s.type === 'ImportNamespaceSpecifier') return `var ${s.local.name} = ${from};` + imported({ ...node, specifiers: node.specifiers.filter((x) => x !== s) })
    parts.push(`${s.type === 'ImportDefaultSpecifier' ? 'default' : name(s.imported)}: ${s.local.name}`)
  }
  return parts.length ? `var { ${parts.join(', ')} } = ${from};` : `void ${from};`
}

// shown is how a value is displayed: as its own method says, as what $$ was given, or as text.
const asDisplayed = Symbol.for('Jupyter.display')
async function shown(value) {
  if (typeof value?.[asDisplayed] === 'function') return await value[asDisplayed]()
  return { 'text/plain': inspect(value) }
}
const formats = { text: 'text/plain', html: 'text/html', markdown: 'text/markdown', svg: 'image/svg+xml', png: 'image/png', jpeg: 'image/jpeg', latex: 'text/latex', json: 'application/json' }
const $$ = { mime: (bundle) => ({ [asDisplayed]: () => bundle }), async display(value) { tell({ display: await shown(value) }) } }
for (const [name, mime] of Object.entries(formats)) {
  $$[name] = (data) => $$.mime({ [mime]: Buffer.isBuffer(data) ? data.toString('base64') : data })
}
globalThis.$$ = $$

function evaluated(code) {
  return new Promise((resolve, reject) => {
    running = reject
    loop.eval(code + '\n', loop.context, 'cell', (e, value) => (e ? reject(e.err ?? e) : resolve(value)))
    process.off('SIGINT', interrupted) // evaluating took it away from the signal
    process.on('SIGINT', interrupted)
  })
}

function errorOf(e) {
  if (e?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') return { name: 'Interrupted', value: 'the execution was interrupted', traceback: [] }
  if (!(e instanceof Error) && typeof e?.stack !== 'string') return { name: 'Error', value: inspect(e), traceback: [] }
  const stack = String(e.stack).split('\n')
  const ours = stack.findIndex((line) => /^\s+at .*(node:repl|node:vm|node:domain|child\.cjs|REPL)/.test(line))
  return { name: String(e.name), value: String(e.message), traceback: ours < 0 ? stack : stack.slice(0, ours) }
}

// written returns when what was written is where the kernel finds it before our event.
const written = () => Promise.all([process.stdout, process.stderr].map((to) => new Promise((done) => to.write('', done))))

async function execute(code) {
  try {
    if (typed) code = stripTypeScriptTypes(code, { mode: 'transform' })
    const value = await evaluated(notebook(code))
    if (value !== undefined) tell({ result: await shown(value) })
    running = null
    await written()
    tell({ error: null })
  } catch (e) {
    running = null
    await written()
    tell({ error: errorOf(e) })
  }
}

createInterface({ input: fs.createReadStream(null, { fd: codeFD }) }).on('line', (line) => execute(JSON.parse(line))).on('close', () => process.exit())
tell({})
