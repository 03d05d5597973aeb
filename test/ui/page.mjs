// What tests do with pages of the UI. One function a step; a test calls it by its name.

export default async ({browser, state, args}) => {
  state.page?.setDefaultTimeout(args.within);
  return steps[args.do]({browser, state, args, page: state.page});
};

const pause = () => new Promise((r) => setTimeout(r, 15));

// until polls: the page's policy forbids what the library's own waiting does.
export async function until(args, what, look) {
  let seen;
  for (const end = Date.now() + args.within; Date.now() < end; await pause()) {
    try {
      seen = await look();
      if (seen) return seen;
    } catch (e) {
      seen = e; // it is being loaded
    }
  }
  throw new Error(`in vain: ${what}; last ${seen?.stack ?? seen}`);
}

// inPage notes what a policy refused, and every title.
function inPage() {
  window.reports = [];
  window.titles = [];
  document.addEventListener('securitypolicyviolation', (e) => {
    window.reports.push(`${e.effectiveDirective} ${e.blockedURI} ${e.sample} ${e.sourceFile}:${e.lineNumber}`);
  });
  const note = () => {
    const t = document.title;
    if (!/^(\(\d+\) )?skete$/.test(t) && t && !window.titles.includes(t)) window.titles.push(t);
  };
  new MutationObserver(note).observe(document, {subtree: true, childList: true, characterData: true});
}

function watch(state, browser, origin) {
  const seen = state.seen = {dialogs: [], outside: [], violations: [], errors: [], titles: [], popups: []};
  state.traffic = {open: new Set(), urls: []};
  state.frames = [];
  const home = new URL(origin).host;
  browser.on('request', (r) => {
    const url = new URL(r.url());
    if (!['data:', 'blob:', 'about:'].includes(url.protocol) && url.host !== home) seen.outside.push(`${r.method()} ${r.url()}`);
    state.traffic.open.add(r);
    state.traffic.urls.push(r.url());
  });
  for (const how of ['requestfinished', 'requestfailed']) browser.on(how, (r) => state.traffic.open.delete(r));
  browser.on('page', (p) => { if (!state.pages?.has(p)) seen.popups.push(p.url()); });
}

async function newPage(browser, state) {
  state.pages ??= new Set();
  const opened = state.seen.popups.length;
  const page = await browser.newPage();
  state.seen.popups.length = opened; // it is ours
  state.pages.add(page);
  // What a page that is left has asked for may never be told to end.
  page.on('framenavigated', (f) => { if (f === page.mainFrame()) state.traffic.open.clear(); });
  page.on('dialog', (d) => { state.seen.dialogs.push(`${d.type()} ${d.message()}`); void d.dismiss(); });
  page.on('pageerror', (e) => state.seen.errors.push(String(e)));
  page.on('console', (m) => {
    if (m.type() === 'error' && /Content.Security|Trusted|Minified React/i.test(m.text())) state.seen.violations.push(m.text());
  });
  page.on('websocket', (ws) => {
    if (ws.url().endsWith('/v1/follow')) state.sockets = (state.sockets ?? 0) + 1;
    ws.on('framereceived', ({payload}) => {
      try { state.frames.push(JSON.parse(String(payload))); } catch { /* a terminal's */ }
    });
  });
  await page.addInitScript(inPage);
  return page;
}

// ready waits for a page that has its heading and asks for nothing any more.
async function ready(page, state, args) {
  await until(args, `the heading of ${page.url()}`, () => page.locator('main h1').count());
  let quiet = 0;
  await until(args, `quiet of ${page.url()}`, () => {
    quiet = state.traffic.open.size ? 0 : quiet + 1;
    if (!quiet) throw new Error(`it waits for ${[...state.traffic.open].map((r) => r.url())}`);
    return quiet > 10;
  });
}

// stateOf is the run's state: for the machine, and in words.
async function stateOf(page) {
  const n = page.locator('main [data-state]').first();
  return `${await n.getAttribute('data-state')}: ${await n.textContent()}`;
}

const steps = {
  async enter({browser, state, args}) {
    watch(state, browser, args.origin);
    const page = state.page = await newPage(browser, state);
    page.setDefaultTimeout(args.within);
    await page.goto(args.origin + '/');
    await page.fill('input[name=key]', args.key);
    await page.click('button');
    await until(args, 'the page after the login', () => page.locator('main h1').count());
    return {};
  },

  async watched({state}) {
    for (const page of state.pages) {
      if (page.isClosed()) continue;
      const {reports, titles} = await page.evaluate(() => ({reports: window.reports ?? [], titles: window.titles ?? []}));
      state.seen.violations.push(...reports);
      state.seen.titles.push(...titles);
    }
    return state.seen;
  },

  // start writes a task into the composer as a person does, by the keys alone.
  async start({page, args}) {
    await page.goto(args.origin + '/');
    const task = page.getByLabel('What should an agent do?');
    await task.fill(args.task);
    const model = page.getByRole('combobox', {name: /^Model/}).first();
    await until(args, 'the model is offered', () => model.locator('option').filter({hasText: args.model}).count());
    await model.selectOption(args.model);
    await page.evaluate(observe);
    await task.press('Control+Enter');
    await page.waitForURL(/\/runs\/[^/]+$/);
    await page.locator('[data-kind=input]').first().waitFor();
    const at = Date.now();
    const word = await until(args, 'a state', async () => {
      const w = await stateOf(page);
      return !w.startsWith('pending') && w;
    });
    return {id: new URL(page.url()).pathname.split('/').pop(), at, word};
  },

  async open({page, state, args}) {
    state.frames.length = 0;
    const began = Date.now();
    await page.goto(args.origin + args.path);
    if (args.row) await page.locator('[data-kind]').first().waitFor();
    const row = Date.now() - began;
    await ready(page, state, args);
    return {row_ms: row};
  },

  // text waits for the end of a run, and returns what its page says and how it came to that.
  async text({page, args}) {
    await page.locator('main [data-state=succeeded]').first().waitFor();
    await until(args, 'the text has settled', async () => !(await page.locator('[data-streaming=true]').count()));
    return page.evaluate(() => ({
      text: [...document.querySelectorAll('[data-kind=text] p')].map((p) => p.textContent).join('\n\n'),
      paints: window.paints.size, long: window.long,
    }));
  },

  // says waits until the model's texts are a text.
  async says({page, args}) {
    await until(args, 'the whole text', async () => {
      const said = await page.evaluate(() => [...document.querySelectorAll('[data-kind=text] p')].map((p) => p.textContent).join('\n\n'));
      if (said !== args.text) throw new Error(`it is ${said.length} characters long: ${said.slice(0, 200)}`);
      return true;
    });
    return {};
  },

  // line waits until a call shows a line of its output, which is unfolded first.
  async line({page, args}) {
    const row = page.locator('[data-kind=call]').nth(args.nth ?? 0);
    await row.waitFor();
    const button = row.locator('button[aria-expanded=false]').first();
    if (await button.count()) await button.click();
    await until(args, `a line ${args.line}`, async () => (await row.innerText()).split('\n').some((l) => l.trim() === args.line));
    return row.innerText();
  },

  // row waits until a call's row says all of the words.
  async row({page, args}) {
    const row = page.locator('[data-kind=call]').nth(args.nth ?? 0);
    return until(args, `${args.words} in ${await row.innerText()}`, async () => {
      const text = (await row.innerText()).replaceAll('\n', ' ');
      return args.words.every((w) => text.includes(w)) && text;
    });
  },

  // unfold goes through a timeline from its beginning, opens every row, and looks at all of it.
  async unfold({page}) {
    return page.evaluate(async () => {
      const frame = () => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
      const feed = document.querySelector('[role=feed]');
      const said = [], wrong = new Set();
      feed.scrollTop = 0;
      const place = (n) => Number(n.getAttribute('aria-posinset'));
      for (let seen = 0, tries = 0; ; tries++) {
        await frame();
        for (const b of feed.querySelectorAll('button[aria-expanded=false]')) b.click();
        await frame();
        const rows = [...feed.querySelectorAll('[aria-posinset]')].sort((a, b) => place(a) - place(b));
        if (tries > 3000) throw new Error(`rows ${rows.map(place)} are there, after ${seen}`);
        if (!rows.length) continue;
        if (place(rows[0]) > seen + 1) { // rows that grew have moved others away
          feed.scrollTop -= feed.clientHeight / 2;
          continue;
        }
        for (const n of rows) said.push(n.textContent);
        for (const w of wrongs(document)) wrong.add(w);
        seen = Math.max(seen, place(rows.at(-1)));
        if (seen >= Number(rows[0].getAttribute('aria-setsize'))) break;
        const before = feed.scrollTop;
        rows.at(-1).scrollIntoView({block: 'center'});
        if (feed.scrollTop === before) feed.scrollTop += feed.clientHeight / 2;
      }
      return {said: [...new Set(said)].join('\n'), wrong: [...wrong]};

      // wrongs names what no text may have become.
      function wrongs(root) {
        const out = [];
        const tags = new Set('A B BLOCKQUOTE BR CODE DEL DIV EM H1 H2 H3 H4 H5 H6 HR I LI OL P PRE SPAN STRONG SUB SUP TABLE TBODY TD TH THEAD TR UL BUTTON svg path'.split(' '));
        const attributes = new Set('href title align start target rel class type aria-hidden aria-label aria-live role tabindex'.split(' '));
        for (const n of root.querySelectorAll('.md *')) {
          if (n.closest('svg')) continue;
          if (!tags.has(n.tagName)) out.push(`<${n.tagName}>`);
          for (const a of n.attributes) if (!attributes.has(a.name) && !a.name.startsWith('data-')) out.push(`${n.tagName} ${a.name}=${a.value}`);
          if (n.tagName === 'A' && (!/^(https?|mailto):/.test(n.href) || !/noopener/.test(n.rel) || !/noreferrer/.test(n.rel))) out.push(n.outerHTML);
        }
        for (const n of root.querySelectorAll('main *')) {
          for (const a of n.attributes) if (a.name.startsWith('on')) out.push(`${n.tagName} ${a.name}`);
          if (/^(SCRIPT|OBJECT|EMBED|LINK|META|BASE|MARQUEE|TEMPLATE|MATH)$/i.test(n.tagName)) out.push(`<${n.tagName}>`);
          if (n.tagName === 'IMG' && new URL(n.src).origin !== location.origin && !/^(blob|data):/.test(n.src)) out.push(n.outerHTML);
        }
        for (const n of root.querySelectorAll('[data-kind=call] > button')) {
          if (/[\p{Bidi_Control}\u200b\u2060\ufeff]/u.test(n.textContent)) out.push(`hidden characters in ${JSON.stringify(n.textContent)}`);
        }
        return out;
      }
    });
  },

  // tabs opens every tab of the page, and returns their names.
  async tabs({page, state, args}) {
    const names = [];
    for (const tab of await page.getByRole('tab').all()) {
      names.push(await tab.innerText());
      await tab.click();
      await ready(page, state, args);
    }
    return names;
  },

  // attack does itself what no text may do, for the eyes of the tests.
  async attack({page}) {
    await page.evaluate(() => {
      new Image().src = 'https://evil.test/control.png';
      try { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); } catch { /* as it should be */ }
      document.head.querySelector('title').textContent = 'pwned';
    });
    await page.evaluate(() => new Promise((r) => requestAnimationFrame(r)));
    return {};
  },

  // rows counts what a long run takes. All older pages are loaded by going up; then the
  // timeline is moved, so many pixels a frame.
  async rows({page, state, args}) {
    const feed = page.locator('[role=feed]').first();
    const nodes = () => page.evaluate(() => document.querySelectorAll('*').length);
    const first = await nodes();
    const total = await until(args, 'the whole run', async () => {
      const [size, lowest] = await feed.evaluate((f) => {
        const rows = [...f.querySelectorAll('[aria-setsize]')];
        f.scrollTop = 0;
        return [Number(rows[0]?.getAttribute('aria-setsize')), Math.min(...rows.map((r) => Number(r.getAttribute('aria-posinset'))))];
      });
      return size > 0 && lowest === 1 && size;
    });
    await ready(page, state, args);
    const moved = {};
    for (const step of [60, 400]) {
      moved[step] = await feed.evaluate(async (f, step) => {
        f.scrollTop = 0;
        const gaps = [];
        let most = 0, last = await new Promise((r) => requestAnimationFrame(r));
        for (let i = 0; i < 180; i++) {
          f.scrollTop += step;
          const now = await new Promise((r) => requestAnimationFrame(r));
          gaps.push(now - last);
          last = now;
          if (i % 20 === 0) most = Math.max(most, document.querySelectorAll('*').length);
        }
        gaps.sort((a, b) => a - b);
        const sum = gaps.reduce((a, b) => a + b, 0);
        return {fps: Math.round(gaps.length / sum * 10000) / 10, p95_ms: Math.round(gaps[Math.floor(gaps.length * 0.95)]), nodes: most};
      }, step);
    }
    const heap = await page.evaluate(() => Math.round((performance.memory?.usedJSHeapSize ?? 0) / (1 << 20)));
    return {total, first_nodes: first, all_nodes: await nodes(), heap_mb: heap, moved};
  },

  // many opens a run in many tabs, and counts those that are live.
  async many({browser, state, args}) {
    const pages = [];
    for (let i = 0; i < args.tabs; i++) {
      const p = await newPage(browser, state);
      pages.push(p);
      await p.goto(args.origin + args.path, {waitUntil: 'commit'});
    }
    let live = 0;
    for (const p of pages) live += await until(args, 'a tab is live', () => p.locator('[data-live=live]').count());
    for (const p of pages) {
      await p.close();
      state.pages.delete(p);
    }
    return live;
  },

  // resize crosses the widths at which the layout changes.
  async resize({page, state, args}) {
    const size = page.viewportSize();
    await page.setViewportSize({width: 1300, height: 800});
    await page.goto(args.origin + args.path);
    await page.locator('[data-kind]').first().waitFor();
    // The last of what the page asks for by itself: what the newest revision changed.
    await page.getByRole('tabpanel', {name: 'Changes'}).getByText(/^Restore this (file|directory)/).first().waitFor();
    await ready(page, state, args);
    await page.getByLabel('Message to the agent').first().fill('kept');
    await page.evaluate(() => { window.old = [...document.querySelectorAll('main h1, main [role=feed], main textarea, main [role=tablist]')]; });
    state.traffic.urls.length = 0;
    const sockets = state.sockets;
    for (const width of [1201, 1199, 901, 899, 600, 899, 901, 1199, 1201, 1300]) {
      await page.setViewportSize({width, height: 800});
      await page.evaluate(() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r))));
    }
    await ready(page, state, args);
    const lost = await page.evaluate(() => window.old.filter((n) => !n.isConnected).map((n) => n.outerHTML.slice(0, 200)));
    const text = await page.getByLabel('Message to the agent').first().inputValue();
    if (text !== 'kept') lost.push(`what was written: ${text}`);
    const parts = await page.evaluate(() => window.old.length);
    await page.setViewportSize(size);
    return {requests: state.sockets === sockets ? state.traffic.urls : [...state.traffic.urls, 'a socket'], lost, parts};
  },

  async settled({page}) {
    await page.locator('main [data-state=succeeded]').first().waitFor();
    return {};
  },

  async draft({page, args}) {
    const box = page.getByLabel('Message to the agent').first();
    if (args.text) await box.fill(args.text);
    return box.inputValue();
  },

  // events waits until the page is live and was told of an event above a seq; and, if
  // asked, by another socket than before.
  async events({page, state, args}) {
    const own = () => state.frames.filter((m) => m.topic === `tree:${args.id}` && m.event && (!m.thread || m.thread === args.thread)).map((m) => m.event.seq);
    await until(args, `live, with an event above ${args.above}`, async () => {
      const live = await page.locator('[data-live=live]').count();
      return live && state.sockets > (args.sockets ?? 0) && Math.max(0, ...own()) > args.above;
    });
    return {seqs: own(), sockets: state.sockets, state: await stateOf(page)};
  },

  // unknown waits until the page says that it does not know how the run is.
  async unknown({page}) {
    const began = Date.now();
    const text = await page.locator('main [data-state=unknown]').first().textContent();
    return {text, ms: Date.now() - began};
  },

  async eval({page, args}) {
    return page.evaluate(args.script);
  },
};

// observe notes each length that a streaming text had in a frame, and long tasks.
function observe() {
  window.paints = new Set();
  window.long = [];
  new PerformanceObserver((l) => { for (const e of l.getEntries()) window.long.push(Math.round(e.duration)); }).observe({type: 'longtask'});
  const look = () => {
    const n = document.querySelector('[data-streaming=true]');
    if (n) window.paints.add(n.textContent.length);
    requestAnimationFrame(look);
  };
  look();
}
export {steps, ready, newPage};
