// Runs scripts in one headless Chromium for a Go test: one JSON object a line.
// In:  {"id":1,"script":"/path/x.mjs","args":{…}}
// Out: {"id":1,"result":…} or {"id":1,"error":"…"}
// A script's default export is async ({browser, state, args}) => result; state
// is kept between scripts, so that a page may stay open.
import {createInterface} from 'node:readline';
import {pathToFileURL} from 'node:url';

const [library, program, profile, ...flags] = process.argv.slice(2);
const {chromium} = await import(pathToFileURL(library));
const context = await chromium.launchPersistentContext(profile, {
  executablePath: program, headless: true, chromiumSandbox: false, args: flags,
});
const state = {};
const say = (o) => process.stdout.write(JSON.stringify(o) + '\n');
say({id: 0, result: 'ready'});
for await (const line of createInterface({input: process.stdin})) {
  const {id, script, args} = JSON.parse(line);
  try {
    const {default: run} = await import(pathToFileURL(script));
    say({id, result: (await run({browser: context, state, args})) ?? null});
  } catch (e) {
    say({id, error: String(e?.stack ?? e)});
  }
}
await context.close();
process.exit(0);
