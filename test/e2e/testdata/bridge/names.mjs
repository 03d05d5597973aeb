// Uses a sandbox with nothing but a domain and a key, and prints what it saw.
//
//	node names.mjs MODULES PACKAGE
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [modules, name] = process.argv.slice(2)
const { Sandbox } = await import(pathToFileURL(createRequire(modules + '/').resolve(name)))
const sbx = await Sandbox.create({ timeoutMs: 300_000 })
await sbx.files.write('a.txt', 'first')
const { stdout } = await sbx.commands.run('cat a.txt')
const signed = await (await fetch(await sbx.downloadUrl('a.txt'))).text()
console.log(JSON.stringify({ stdout, signed, host: sbx.getHost(8080), running: await sbx.isRunning() }))
await sbx.kill()
