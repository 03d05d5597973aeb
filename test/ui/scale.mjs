// What tests do with long runs and fast streams. Times are in ms, by the page's own clock.
import {until, ready} from './page.mjs';

export default async ({browser, state, args}) => {
  const {page} = state;
  page.setDefaultTimeout(args.within);
  state.cdp ??= await browser.newCDPSession(page);
  return steps[args.do]({browser, state, args, page});
};

const median = (list) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)];

// heap is what the page's objects take after a collection.
async function heap({cdp}) {
  await cdp.send('HeapProfiler.collectGarbage');
  const {usedSize} = await cdp.send('Runtime.getHeapUsage');
  return Math.round(usedSize / (1 << 20));
}

const nodes = (page) => page.evaluate(() => document.querySelectorAll('*').length);

// toRow goes to a run and waits for its first row, and for the frame that shows it.
async function toRow(page, url) {
  await page.goto(url, {waitUntil: 'commit'});
  await page.locator('[data-kind]').first().waitFor();
  return page.evaluate(() => new Promise((r) => requestAnimationFrame(() => r(performance.now()))));
}

// pageUp scrolls to where older events are asked for, and follows the row that is on top there,
// frame by frame: until they are here, and a little longer.
async function pageUp() {
  const feed = document.querySelector('[role=feed]');
  const frame = () => new Promise((r) => requestAnimationFrame(r));
  const place = (n) => Number(n.getAttribute('aria-posinset'));
  const rows = () => [...feed.querySelectorAll('[aria-posinset]')].sort((a, b) => place(a) - place(b));
  const y = (n) => n.getBoundingClientRect().top - feed.getBoundingClientRect().top;
  const began = performance.now();
  feed.scrollTop = 450; // what is near has its size, and nothing is asked for yet
  for (let i = 0; i < 3; i++) await frame();
  feed.scrollTop = 350;
  const shown = rows().find((n) => y(n) >= 0);
  const [was, name, at] = [y(shown), shown.textContent, place(shown)];
  let shift = 0, added = 0, ms = 0;
  for (let still = 0; still < 5;) {
    await frame();
    const found = rows().filter((n) => n.textContent === name);
    if (found.length > 1) throw new Error(`${found.length} rows say ${name}`);
    if (!found.length) { // it is away in a frame that is between two places
      shift = Math.max(shift, feed.clientHeight);
      continue;
    }
    shift = Math.max(shift, Math.abs(y(found[0]) - was));
    added = place(found[0]) - at;
    if (!added || feed.getAttribute('aria-busy') === 'true') continue;
    ms ||= performance.now() - began;
    still++;
  }
  return {added, shift_px: shift, ms: Math.round(ms)};
}

// watchPaint notes after each frame what the newest row is and when it was there; how long after a
// key the frame came that answers it; long tasks; and how far a row has moved.
function watchPaint() {
  const feed = document.querySelector('[role=feed]');
  const seen = window.seen = {frames: [], keys: [], long: [], shift_px: 0};
  const after = new MessageChannel();
  let keys = [], row = null, was = 0;
  const y = () => row.getBoundingClientRect().top;
  window.begin = (reading) => {
    Object.assign(seen, {frames: [], keys: [], long: [], shift_px: 0});
    row = null;
    if (!reading) return;
    feed.scrollTop = feed.scrollHeight / 2;
    const middle = feed.getBoundingClientRect().top + feed.clientHeight / 2;
    return new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => {
      row = [...feed.querySelectorAll('[data-seq]')].find((n) => n.getBoundingClientRect().top > middle);
      was = y();
      r();
    })));
  };
  after.port1.onmessage = () => {
    const now = performance.now();
    const newest = [...feed.querySelectorAll('[data-seq]')].at(-1);
    seen.frames.push([performance.timeOrigin + now, Number(newest?.getAttribute('data-seq') ?? 0)]);
    for (const at of keys) seen.keys.push(now - at);
    keys = [];
    if (row) seen.shift_px = Math.max(seen.shift_px, row.isConnected ? Math.abs(y() - was) : innerHeight);
  };
  const frame = () => {
    after.port2.postMessage(0);
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  addEventListener('keydown', (e) => keys.push(e.timeStamp), true);
  new PerformanceObserver((l) => { for (const e of l.getEntries()) seen.long.push(Math.round(e.duration)); }).observe({type: 'longtask'});
}

const steps = {
  // opened opens two runs in turn, so often, and says how long the middle one took to its first row.
  async opened({page, state, args}) {
    const took = {short: [], long: []};
    for (let i = 0; i <= args.times; i++) {
      for (const which of ['short', 'long']) {
        const ms = await toRow(page, args.origin + args[which]);
        await ready(page, state, args);
        if (i) took[which].push(Math.round(ms)); // the first time fills the browser's caches
      }
    }
    return {short_ms: median(took.short), long_ms: median(took.long), took};
  },

  // paged opens a run and goes up by pages of older events. The row that was on top has to stay
  // where it was.
  async paged({page, state, args}) {
    await toRow(page, args.origin + args.path);
    await ready(page, state, args);
    const first = {nodes: await nodes(page), heap_mb: await heap(state)};
    const plan = await page.getByRole('region', {name: 'Plan'}).innerText();
    const up = [];
    for (let i = 0; i < args.times; i++) {
      up.push(await page.evaluate(pageUp));
      await ready(page, state, args);
    }
    return {...first, plan, up, after_nodes: await nodes(page), after_heap_mb: await heap(state)};
  },

  // watch opens a page to which events will be sent.
  async watch({page, state, args}) {
    await page.goto(args.origin + args.path);
    await ready(page, state, args);
    await page.evaluate(watchPaint);
    return {};
  },

  // begin begins to measure anew: at the end of the list, or in the middle of it, as one who reads there.
  async begin({page, args}) {
    if (args.typed) await page.getByLabel(args.typed).first().click();
    await page.evaluate((reading) => window.begin(reading), args.reading ?? false);
    return {};
  },

  // seen types while events come, and returns what was measured when the newest is there.
  async seen({page, args}) {
    for (let n = 0; n < args.keys; n++) {
      await page.keyboard.press('abcdefgh '[n % 9]);
      await page.evaluate(() => new Promise((r) => { let n = 6; const f = () => (n-- ? requestAnimationFrame(f) : r()); f(); }));
    }
    return {};
  },

  // measured waits until the newest row is there, and returns what was seen.
  async measured({page, args}) {
    await until(args, `row ${args.newest}`, () => page.evaluate((n) => window.seen.frames.at(-1)[1] >= n, args.newest));
    return page.evaluate(() => window.seen);
  },

  // unread waits until the page has counted so many new rows for one who reads above.
  async unread({page, args}) {
    await until(args, `${args.rows} new`, async () => {
      const says = await page.getByRole('button', {name: /^Jump to latest/}).allInnerTexts();
      if (!says.includes(`Jump to latest, ${args.rows} new`)) throw new Error(`the page says ${says}`);
      return true;
    });
    return page.evaluate(() => window.seen);
  },
};
