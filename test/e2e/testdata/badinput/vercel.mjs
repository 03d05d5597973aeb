// Bad input with Vercel's SDK.
//
//	node vercel.mjs MODULES
import assert from 'node:assert/strict'
import { access, sdk } from '../vercel/client.mjs'
import { tried, within } from './tried.mjs'

const { APIError, Sandbox } = sdk
const sbx = await Sandbox.create({ ...access, timeout: 300_000 })

await tried('more than the disk holds', async () => {
  const large = new Uint8Array(512 << 20)
  await assert.rejects(within(sbx.writeFiles([{ path: 'large', content: large }])), (e) => e instanceof APIError && e.response.status === 413 && /space|room/.test(e.message))
  assert.equal(await sbx.readFileToBuffer({ path: 'large' }), null)
  await sbx.writeFiles([{ path: 'small', content: 'there is room again' }])
})
await tried('many files at once', async () => {
  const files = Array.from({ length: 100 }, (_, i) => ({ path: `many/${i}`, content: String(i) }))
  await within(sbx.writeFiles(files))
  assert.equal(await (await sbx.runCommand('sh', ['-c', 'ls many | wc -l'])).stdout(), '100\n')
})
await tried('a paused sandbox', async () => {
  // The SDK has no word for it: what another client has paused goes on with the next call.
  const id = sbx.currentSession().sessionId
  const paused = await fetch(`${process.env.SKETE_URL}/v1/sandboxes/${id}/pause`, { method: 'POST', headers: { Authorization: `Bearer ${access.token}` } })
  assert.equal(paused.status, 200, await paused.text())
  assert.equal((await within(sbx.readFileToBuffer({ path: 'small' }))).toString(), 'there is room again')
  assert.equal(await (await within(sbx.runCommand('echo', ['awake']))).stdout(), 'awake\n')
})
await sbx.delete()
process.exit(0)
