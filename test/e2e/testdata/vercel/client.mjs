// The SDK as an application has it, but for its fetch, which asks SKETE_URL in the place
// of Vercel's own service. Every script has the folder of the SDK as its first argument.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

export const sdk = await import(pathToFileURL(createRequire(process.argv[2] + '/').resolve('@vercel/sandbox')))

const theirs = 'https://vercel.com/api/'
export const access = {
  token: process.env.SKETE_KEY,
  teamId: 'team_any',
  projectId: 'prj_any',
  fetch: (url, init) => fetch(url.replace(theirs, process.env.SKETE_URL + '/vercel/'), init),
}
