// Changes files in the ways that a client has, and prints the sandbox's id.
//
//	node writes.mjs MODULES
import { access, sdk } from './client.mjs'

const sbx = await sdk.Sandbox.create({ ...access, timeout: 300_000 })
await sbx.writeFiles([{ path: 'notes/a.txt', content: 'first' }])
await sbx.runCommand('rm', ['-rf', 'notes'])
await sbx.mkDir('made')
console.log(sbx.currentSession().sessionId)
