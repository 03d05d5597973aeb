// Changes files in the ways that a client has, and prints the sandbox's id.
//
//	node writes.mjs MODULES PACKAGE
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [modules, name] = process.argv.slice(2)
const { Sandbox } = await import(pathToFileURL(createRequire(modules + '/').resolve(name)))
const sbx = await Sandbox.create({ timeoutMs: 300_000 })
await sbx.files.write('notes/a.txt', 'first')
await sbx.commands.run('rm -rf notes')
await sbx.files.makeDir('made')
console.log(sbx.sandboxId)
