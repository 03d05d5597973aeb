// Writes files by code in three languages, and prints the sandbox's id.
//
//	node writes.mjs MODULES PACKAGE
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [modules, name] = process.argv.slice(2)
const { Sandbox } = await import(pathToFileURL(createRequire(modules + '/').resolve(name)))
const sbx = await Sandbox.create({ timeoutMs: 300_000 })
for (const [language, code] of [['python', 'open("notes.txt", "w").write("first")'], ['bash', 'rm notes.txt; echo >made']]) {
  assert.equal((await sbx.runCode(code, { language })).error, undefined)
}
console.log(sbx.sandboxId)
process.exit(0)
