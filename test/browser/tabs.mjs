// A few steps in a named tab of a named person, whose tabs share cookies:
//   [["go", url], ["fill", selector, text], ["click", selector], ["press", key],
//    ["until", js], ["get", js], ["app", js], ["size", width, height, scheme],
//    ["shot", path], ["close"]]
// It returns what "get" (in the page) and "app" (in its frame) found, and what
// the page has complained about: exceptions, console errors, broken policies,
// dialogs and new windows.
export default async ({browser, state, args}) => {
  const {who, tab, steps} = args;
  state.people ??= {};
  state.tabs ??= {};
  state.people[who] ??= await browser.browser().newContext();
  const key = who + '/' + tab;
  const open = async () => {
    const page = await state.people[who].newPage();
    const complaints = [];
    page.on('pageerror', (e) => complaints.push('exception: ' + e));
    page.on('console', (m) => { if (m.type() === 'error') complaints.push('console: ' + m.text() + ' ' + m.location().url); });
    page.on('dialog', (d) => { complaints.push('dialog: ' + d.message()); d.dismiss().catch(() => {}); });
    page.on('popup', (p) => complaints.push('window: ' + p.url()));
    return {page, complaints};
  };
  const t = state.tabs[key] ??= await open();
  const {page} = t;
  const found = [];
  const timeout = 30000;
  // until asks again and again; page.waitForFunction would need what a strict
  // policy forbids. What is asked while it is being loaded is asked again.
  const until = async (where, js) => {
    for (const end = Date.now() + timeout; ; await new Promise((r) => setTimeout(r, 20))) {
      const v = await (async () => where().evaluate(js))().catch((e) => { if (Date.now() > end) throw e; });
      if (v) return v;
      if (Date.now() > end) throw new Error('it never came true');
    }
  };
  const frame = () => page.frames().find((f) => f !== page.mainFrame());
  const can = {
    go: (url) => page.goto(url),
    fill: (selector, text) => page.fill(selector, text, {timeout}),
    click: (selector) => page.click(selector, {timeout}),
    choose: (selector, value) => page.selectOption(selector, value, {timeout}),
    press: (k) => page.keyboard.press(k),
    until: (js) => until(() => page, js),
    get: async (js) => { found.push(String(await page.evaluate(js))); },
    app: async (js) => { found.push(String(await until(frame, js))); },
    size: async (width, height, colorScheme) => { await page.setViewportSize({width, height}); await page.emulateMedia({colorScheme, reducedMotion: 'reduce'}); },
    shot: (path) => page.screenshot({path}),
    close: async () => { await page.close(); delete state.tabs[key]; },
  };
  for (const [what, ...rest] of steps) {
    try { await can[what](...rest); } catch (e) {
      const text = await page.evaluate(() => document.body.innerText).catch(String);
      throw new Error(`${who}: ${what} ${rest.join(' ')}: ${String(e).split('\n')[0]}\nat ${page.url()} there is:\n${text.slice(0, 4000)}\n${t.complaints.join('\n')}`);
    }
  }
  return {found, url: page.url(), complaints: t.complaints.splice(0)};
};
