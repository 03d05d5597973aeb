// Looks at the page of a dev server until it is as args say: with a theme and
// no error, with an error, without the app, or loaded and connected.
export default async ({browser, state, args}) => {
  if (args.url) {
    state.story = await browser.newPage();
    watch(state);
    await state.story.goto(args.url);
  }
  const page = state.story;
  if (args.hold) { // the page has its modules, and the dev server's client does not connect yet
    await page.route('**/env.mjs*', async (r) => {
      await new Promise((release) => { state.release = release; });
      await r.continue();
    }, {times: 1});
    const old = page.waitForResponse((r) => r.url().includes('theme.js'));
    await page.evaluate(() => { setTimeout(() => location.reload(), 0); });
    await old;
    return {};
  }
  state.release?.();
  if (args.reload) await reload(page);
  const look = () => page.evaluate(() => ({
    theme: document.querySelector('main')?.dataset.theme ?? '', loaded_at: window.loadedAt ?? 0,
    overlay: !!document.querySelector('vite-error-overlay'), marker: window.marker ?? '',
  })).then((s) => ({...s, quiet: quiet(state)}));
  const good = (s) => args.quiet ? s.quiet : args.error ? s.overlay : args.gone ? !s.theme : s.theme === args.theme && !s.overlay;
  let seen = {};
  for (const until = Date.now() + args.within; Date.now() < until;) {
    try {
      seen = await look();
      if (good(seen)) {
        if (args.mark) await page.evaluate((m) => { window.marker = m; }, args.mark);
        break;
      }
    } catch {} // it is being loaded
    await new Promise((r) => setTimeout(r, 10));
  }
  return seen;
};

// reload loads a page anew, also one that is doing so by itself.
async function reload(page) {
  for (let left = 5; ; left--) {
    try {
      await page.reload({waitUntil: 'domcontentloaded'});
      return;
    } catch (e) {
      if (!left) throw e;
      await new Promise((r) => setTimeout(r, 100));
    }
  }
}

// watch notes when a page last asked for something, and counts its sockets.
function watch(state) {
  const traffic = state.traffic = {sockets: 0, last: Date.now()};
  const note = () => { traffic.last = Date.now(); };
  const page = state.story;
  for (const what of ['request', 'requestfinished', 'requestfailed']) page.on(what, note);
  page.on('websocket', (w) => {
    note();
    traffic.sockets++;
    w.on('close', () => { note(); traffic.sockets--; });
  });
}

// quiet: a page that is loaded and connected to its dev server.
const quiet = ({traffic}) => traffic.sockets > 0 && Date.now() - traffic.last > 500;
