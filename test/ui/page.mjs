// What tests do with pages of the UI. One function a step; a test calls it by its name.
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {dirname, join} from 'node:path';

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
  state.traffic = {open: 0, urls: []};
  state.frames = [];
  const home = new URL(origin).host;
  browser.on('request', (r) => {
    const url = new URL(r.url());
    if (!['data:', 'blob:', 'about:'].includes(url.protocol) && url.host !== home) seen.outside.push(`${r.method()} ${r.url()}`);
    state.traffic.open++;
    state.traffic.urls.push(r.url());
  });
  for (const how of ['requestfinished', 'requestfailed']) browser.on(how, () => state.traffic.open--);
  browser.on('page', (p) => { if (!state.pages?.has(p)) seen.popups.push(p.url()); });
}

async function newPage(browser, state) {
  state.pages ??= new Set();
  const opened = state.seen.popups.length;
  const page = await browser.newPage();
  state.seen.popups.length = opened; // it is ours
  state.pages.add(page);
  page.on('dialog', (d) => { state.seen.dialogs.push(`${d.type()} ${d.message()}`); void d.dismiss(); });
  page.on('pageerror', (e) => state.seen.errors.push(String(e)));
  page.on('console', (m) => {
    if (m.type() === 'error' && /Content.Security|Trusted|Minified React/i.test(m.text())) state.seen.violations.push(m.text());
  });
  page.on('websocket', (ws) => {
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
    quiet = state.traffic.open > 0 ? 0 : quiet + 1;
    return quiet > 10;
  });
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
    const word = await until(args, 'a state', () => page.locator('main [data-state]').first().textContent());
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
