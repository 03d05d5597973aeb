export default async ({browser, state, args}) => {
  if (args.url) {
    state.theme = await browser.newPage();
    await state.theme.goto(args.url);
  }
  const page = state.theme;
  for (const until = Date.now() + 30000; ;) {
    try {
      await page.waitForFunction((want) => document.querySelector('main')?.dataset.theme === want, args.want, {polling: 10, timeout: 20000});
      return await page.evaluate(() => ({theme: document.querySelector('main').dataset.theme, loaded_at: window.loadedAt}));
    } catch (e) {
      if (Date.now() > until) throw e; // a page that reloads meanwhile is asked again
    }
  }
};
