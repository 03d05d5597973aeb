// Calls what the SDK's code interpreter exports, as its documentation shows it, and prints
// a line of JSON for each method: whether it works or fails.
//
//	node everything.mjs MODULES PACKAGE
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [modules, name] = process.argv.slice(2)
const { Sandbox } = await import(pathToFileURL(createRequire(modules + '/').resolve(name)))

async function works(method, call) {
  let line = { method, result: 'works' }
  try {
    await call()
  } catch (e) {
    line = { method, result: 'fails', note: `${e?.name}: ${e?.message}`.slice(0, 500) }
  }
  console.log(JSON.stringify(line))
}

const sbx = await Sandbox.create({ timeoutMs: 600_000, envs: { FROM: 'create' } })
const run = (code, opts) => sbx.runCode(code, opts)

await works('runCode', async () => {
  const first = await run('x = 20; x + 1')
  assert.deepEqual([first.text, first.results[0].isMainResult, first.executionCount, first.error], ['21', true, 1, undefined])
  assert.equal((await run('x += 1; x')).text, '21')
})
await works('runCode, output as it comes', async () => {
  const out = [], err = []
  let waited
  const r = await run('import sys, time; print(1, flush=True); time.sleep(1); print(2); print(3, file=sys.stderr)', {
    onStdout: (m) => { out.push(m.line); waited ??= Date.now() },
    onStderr: (m) => err.push(m.line),
  })
  assert.ok(Date.now() - waited > 500, 'the first line came with the last')
  assert.deepEqual([out.join(''), err.join(''), r.logs.stdout.join(''), r.logs.stderr.join('')], ['1\n2\n', '3\n', '1\n2\n', '3\n'])
})
await works('runCode, errors', async () => {
  const seen = []
  const r = await run('def f():\n  return 1 / 0\nf()', { onError: (e) => seen.push(e) })
  assert.deepEqual([r.error.name, r.error.value, seen.length], ['ZeroDivisionError', 'division by zero', 1])
  assert.match(r.error.traceback, /return 1 \/ 0/)
  assert.equal((await run('f(')).error.name, 'SyntaxError')
})
await works('runCode, envs', async () => {
  const code = { python: 'import os; os.environ.get("A", "gone") + os.environ["FROM"]', js: '(process.env.A ?? "gone") + process.env.FROM' }
  for (const [language, text] of Object.entries(code)) {
    assert.equal((await run(text, { language, envs: { A: "it's " } })).text, "it's create")
    assert.equal((await run(text, { language })).text, 'gonecreate')
  }
  const r = await run('echo "${A-gone}$FROM"', { language: 'bash', envs: { A: "it's " } })
  assert.equal(r.logs.stdout.join(''), "it's create\n")
})
await works('results: html, markdown, svg, jpeg, pdf, latex, json, javascript, extra', async () => {
  const r = await run(`
    from IPython.display import display, HTML, Markdown, SVG, Image, Latex, JSON, Javascript
    for x in HTML('<b>1</b>'), Markdown('*2*'), SVG('<svg xmlns="http://www.w3.org/2000/svg"/>'), Latex('$3$'), Javascript('4'), JSON({'a': 5}):
        display(x)
    display({'text/x-own': '6', 'application/pdf': 'Nw=='}, raw=True)
    Image(data=b'\\xff\\xd8\\xff8', format='jpeg')`)
  assert.equal(r.error, undefined)
  const get = (field) => r.results.map((x) => x[field]).filter((x) => x)[0]
  assert.deepEqual(['html', 'markdown', 'latex', 'javascript', 'json', 'pdf'].map(get), ['<b>1</b>', '*2*', '$3$', '4', { a: 5 }, 'Nw=='])
  assert.match(get('jpeg'), /^\/9j\//)
  assert.match(get('svg'), /<svg/)
  assert.equal(r.results.find((x) => x.pdf).extra['text/x-own'], '6')
  assert.ok(r.results.at(-1).isMainResult && !r.results[0].isMainResult)
  assert.deepEqual((await run('{"a": [1, {"b": None}]}')).results[0].json, { a: [1, { b: null }] })
})
await works('results: data frames', async () => {
  const r = await run('import pandas as pd\npd.DataFrame({"n": [1, 2.5, None], "s": ["a", "b", "c"], "t": pd.to_datetime(["2026-01-02"] * 3)})')
  assert.deepEqual(r.results[0].data, { n: [1, 2.5, null], s: ['a', 'b', 'c'], t: Array(3).fill('2026-01-02T00:00:00') })
  assert.match(r.results[0].html, /<table/)
})
await works('results: charts', async () => {
  const draw = async (text) => {
    const r = await run(`import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\n${text}\nax.set_title('T')\nplt.show()`)
    assert.equal(r.error, undefined, r.error?.value)
    assert.match(r.results[0].png, /^iVBOR/)
    return r.results[0].chart
  }
  const line = await draw("ax.plot([1, 2], [3, 4], label='l'); ax.set_xlabel('X (s)')")
  assert.deepEqual([line.type, line.title, line.x_label, line.x_unit, line.elements], ['line', 'T', 'X (s)', 's', [{ label: 'l', points: [[1, 3], [2, 4]] }]])
  assert.deepEqual((await draw("ax.scatter([1, 2], [3, 4], label='s')")).type, 'scatter')
  assert.deepEqual((await draw("ax.bar(['a', 'b'], [3, 4])")).elements.map((e) => [e.label, e.value]), [['a', 3], ['b', 4]])
  assert.deepEqual((await draw("ax.pie([1, 3], labels=['a', 'b'])")).elements.map((e) => [e.label, e.angle]), [['a', 90], ['b', 270]])
})
await works('results: images of Pillow', async () => {
  const r = await run('from PIL import Image\ni = Image.new("RGB", (8, 8))\ni.show()\ni.save("/tmp/i.png")\ni')
  assert.equal(r.results.filter((x) => x.png?.startsWith('iVBOR')).length, 3)
})
await works('language: javascript', async () => {
  const js = (code) => run(code, { language: 'js' })
  assert.deepEqual((await js('console.log("out"); console.error("err"); const a = 1')).logs, { stdout: ['out\n'], stderr: ['err\n'] })
  assert.equal((await js('const a = await Promise.resolve(41); a + 1')).text, '42')
  assert.equal((await js("import { readFileSync } from 'fs'\ntypeof readFileSync + a")).text, 'function41')
  assert.equal((await js('$$.html("<i>")')).results[0].html, '<i>')
  const { error } = await js('null.x')
  assert.equal(error.name, 'TypeError')
  assert.match(error.traceback, /cell:1/)
})
await works('language: typescript', async () => {
  const r = await run('enum E { A = 7 }\nconst m: number = E.A; console.log(m)', { language: 'ts' })
  assert.deepEqual([r.logs.stdout.join(''), r.error], ['7\n', undefined])
})
await works('language: bash', async () => {
  const bash = (code) => run(code, { language: 'bash' })
  await bash('cd /tmp; word=kept')
  const r = await bash('echo "$word in $PWD"; echo err >&2; exit_with() { return 3; }; exit_with')
  assert.deepEqual([r.logs.stdout.join(''), r.logs.stderr.join(''), r.error.value], ['kept in /tmp\n', 'err\n', '3'])
})
await works('createCodeContext', async () => {
  const context = await sbx.createCodeContext({ cwd: '/tmp', language: 'python' })
  assert.deepEqual([context.language, context.cwd], ['python', '/tmp'])
  assert.equal((await run('import os; os.getcwd()', { context })).text, '/tmp')
  assert.equal((await run('x', { context })).error.name, 'NameError')
  assert.ok((await sbx.listCodeContexts()).some((c) => c.id === context.id))
  await assert.rejects(sbx.createCodeContext({ cwd: '/nowhere' }), /400/)
  await assert.rejects(sbx.createCodeContext({ language: 'cobol' }), /400/)
  await sbx.removeCodeContext(context)
  await assert.rejects(run('1', { context }), /not found/)
  await assert.rejects(sbx.removeCodeContext('nope'), /not found/)
})
await works('listCodeContexts', async () => {
  const languages = (await sbx.listCodeContexts()).map((c) => c.language)
  assert.ok(languages.includes('python') && languages.includes('javascript'))
})
await works('restartCodeContext', async () => {
  const context = (await sbx.listCodeContexts()).find((c) => c.language === 'python')
  await run('gone = 1', { context })
  await sbx.restartCodeContext(context)
  const r = await run('gone')
  assert.deepEqual([r.error.name, r.executionCount], ['NameError', 1])
})
await works('runCode, its timeout', async () => {
  await run('left = 1')
  await assert.rejects(run('import time\nwhile True: time.sleep(1)', { timeoutMs: 1500 }), /timed out/)
  assert.equal((await run('left', { timeoutMs: 20_000 })).text, '1', 'the kernel did not go on')
  await run('let left = 2', { language: 'js' })
  await assert.rejects(run('await new Promise(() => {})', { language: 'js', timeoutMs: 1500 }), /timed out/)
  assert.equal((await run('left', { language: 'js', timeoutMs: 20_000 })).text, '2', "JavaScript's did not go on")
})
await works('a kernel that hangs', async () => {
  const hang = 'import time\nwhile True:\n  try: time.sleep(60)\n  except KeyboardInterrupt: pass'
  await assert.rejects(run(hang, { timeoutMs: 1000 }), /timed out/)
  const r = await run('1 + 1', { timeoutMs: 60_000 })
  assert.equal(r.text, '2')
  assert.match(r.logs.stderr.join(''), /knows no variables/)
})
await works('a kernel that dies', async () => {
  const r = await run('print("last words", flush=True)\nimport os, time; time.sleep(.5); os.kill(os.getpid(), 9)')
  assert.deepEqual([r.error.name, r.logs.stdout.join('')], ['KernelDied', 'last words\n'])
  assert.equal((await run('1 + 1')).text, '2')
})
await works('1 GB of output', async () => {
  let bytes = 0
  const r = await run('for i in range(100): print("x" * 10_000_000)\n"done"', { onStdout: (m) => { bytes += m.line.length } })
  assert.ok(bytes >= 16_000_000 && bytes < 18_000_000, `${bytes} bytes`)
  assert.match(r.logs.stderr.join(''), /is left out/)
  assert.equal(r.text, 'done')
})
await works('an image of 100 MB', async () => {
  const r = await run('from IPython.display import Image\nImage(data=b"\\x89PNG" + bytes(100_000_000))')
  assert.ok(!r.results[0]?.png)
  assert.match(r.logs.stderr.join(''), /image\/png of .* is left out/)
})
await works('a paused sandbox', async () => {
  await sbx.pause()
  await assert.rejects(run('1'), /timeout|not found/)
  await (await Sandbox.connect(sbx.sandboxId)).runCode('1')
  assert.equal((await run('"again"')).text, 'again')
})
await works('a killed sandbox', async () => {
  const kill = async () => {
    await new Promise((r) => setTimeout(r, 1000))
    await sbx.kill()
  }
  await Promise.all([assert.rejects(run('import time; time.sleep(300)'), /killed while the request|terminated/), kill()])
})
process.exit(0)
