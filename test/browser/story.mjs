// Looks at the page of a dev server until it is as args say: with a theme and
// no error, with an error, or without the app.
export default async ({browser, state, args}) => {
  if (args.url) {
    state.story = await browser.newPage();
    await state.story.goto(args.url);
  }
  const page = state.story;
  if (args.reload) await page.reload({waitUntil: 'domcontentloaded'});
  const look = () => page.evaluate(() => ({
    theme: document.querySelector('main')?.dataset.theme ?? '', loaded_at: window.loadedAt ?? 0,
    overlay: !!document.querySelector('vite-error-overlay'), marker: window.marker ?? '',
  }));
  const good = (s) => args.error ? s.overlay : args.gone ? !s.theme : s.theme === args.theme && !s.overlay;
  let seen = {};
  for (const until = Date.now() + 15000; Date.now() < until;) {
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
