// What tests do with the preview of an app that a machine serves.
import {ready, until} from './page.mjs';

export default async ({browser, state, args}) => {
  const {page} = state;
  page.setDefaultTimeout(args.within);
  return steps[args.do]({browser, state, args, page});
};

const pane = (page) => page.locator('[role=tabpanel]:not([hidden])').filter({has: page.getByLabel('Width of the app')});

// appOf is the frame of the app, once it shows a text.
const appOf = (page, args) => until(args, `an app that shows ${args.want}`, async () => {
  const frame = page.frames().find((f) => f !== page.mainFrame() && new URL(f.url()).host.startsWith(`${args.port}-`));
  if (!frame) throw new Error(`frames: ${page.frames().map((f) => f.url())}; ${await page.locator('#pane-preview, main').first().innerText()}`);
  const text = await frame.evaluate(() => document.querySelector('#x')?.textContent);
  if (text !== args.want) throw new Error(`it shows ${text}`);
  return frame;
});

// frameOf is what there is to know of the app's frame.
async function frameOf(page, frame) {
  const at = page.locator('iframe');
  const width = async (n) => Math.round((await n.boundingBox()).width);
  return {
    origin: new URL(frame.url()).origin, ui: new URL(page.url()).origin,
    said: await page.locator('[data-origin]').first().textContent(),
    sandbox: await at.getAttribute('sandbox'),
    policies: [await at.getAttribute('referrerpolicy'), await at.getAttribute('allow')],
    width: await width(at), room: await at.evaluate((n) => n.parentElement.clientWidth),
    parent: await frame.evaluate(() => document.querySelector('#parent')?.textContent ?? ''),
    ...await frame.evaluate(() => ({mark: window.mark ?? '', loaded: performance.timeOrigin, clicks: Number(document.querySelector('#clicks')?.textContent ?? 0)})),
  };
}

// trySome runs in a page of an app, or of ours.
async function trySome([origin, name, again]) {
  const out = {};
  const go = async (what, f) => {
    const bound = new Promise((done) => setTimeout(done, 10_000, 'nothing within 10 s')); // so that none holds up the others
    try { out[what] = await Promise.race([f(), bound]); } catch { out[what] = 'refused'; }
  };
  const body = JSON.stringify({name, scopes: ['read']});
  const send = (o) => fetch(origin + '/v1/keys', {method: 'POST', credentials: 'include', body, ...o});
  await go('post', async () => (await send({headers: {'Content-Type': 'application/json'}})).status);
  await go('simple post', async () => (await send({mode: 'no-cors', headers: {'Content-Type': 'text/plain'}})).type);
  await go('read', async () => (await fetch(origin + '/v1/login', {credentials: 'include'})).status);
  await go('socket', () => new Promise((done) => {
    const s = new WebSocket(origin.replace('http', 'ws') + '/v1/follow');
    s.onopen = () => { done('open'); s.close(); };
    s.onerror = () => done('refused');
  }));
  if (location.origin === origin || again) return out;
  await go('parent', () => String(parent.document.title));
  await go('top', async () => { top.location.href = 'about:blank'; return 'left'; });
  await go('logout', () => new Promise((done) => { // as a form does, with the cookies of a navigation
    const frame = document.createElement('iframe');
    frame.name = 'inner';
    document.body.append(frame);
    const form = document.body.appendChild(document.createElement('form'));
    Object.assign(form, {method: 'post', action: origin + '/logout', target: 'inner'});
    frame.onload = () => {
      let here;
      try { here = frame.contentWindow.location.href; } catch { here = 'elsewhere'; }
      if (here === 'about:blank') return;
      done('answered'); // by what, the network says
    };
    form.submit();
  }));
  // Cookies for each domain above the app's own, also such as have the name of a login's.
  const labels = location.hostname.split('.');
  for (let i = 1; i < labels.length; i++) {
    const domain = labels.slice(i).join('.');
    for (const c of ['__Host-sid=evil; Path=/; Secure', 'sid=evil; Path=/', '=__Host-sid=evil; Path=/', '__Host-sid =evil; Path=/; Secure']) document.cookie = `${c}; Domain=${domain}`;
  }
  document.cookie = '__Host-sid=evil; Path=/; Secure';
  return out;
}

const steps = {
  // app waits until the app shows a text, and says where it is, what it found when it tried to
  // read the page around it, and whether it is still the page that was marked.
  async app({page, args}) {
    const began = Date.now();
    if (args.reload) await page.getByRole('button', {name: 'Reload the app'}).click();
    const frame = await appOf(page, args);
    const ms = Date.now() - began;
    if (args.mark) await frame.evaluate((m) => { window.mark = m; }, args.mark);
    for (let i = 0; i < (args.clicks ?? 0); i++) await frame.locator('#clicks').click();
    return until(args, 'the app in a frame that stays', async () => {
      const now = await appOf(page, args);
      return {...await frameOf(page, now), ms};
    });
  },

  // leave takes the keys out of the frame, in which an app's buttons were pressed.
  async leave({page}) {
    await page.getByRole('feed').focus();
  },

  // undone agrees to the plan that is seen, and says how long after that the app shows a text.
  async undone({page, args}) {
    await page.locator('[role=dialog] button.main:not([disabled])').click();
    const began = Date.now();
    const frame = await appOf(page, args);
    const ms = Date.now() - began;
    await until(args, 'the banner', () => page.locator('[data-done=undo] [data-same]').count());
    return {...await frameOf(page, frame), ms, same: await page.locator('[data-done=undo] [data-same]').getAttribute('data-same')};
  },

  // wide chooses a width, and returns what the app then has.
  async wide({page, args}) {
    await page.getByLabel('Width of the app').selectOption({label: args.label});
    return frameOf(page, await appOf(page, args));
  },

  // port types a port, and returns what is said of it.
  async port({page, args}) {
    await page.getByRole('combobox', {name: 'Port'}).selectOption('other');
    await page.getByRole('textbox', {name: 'Port'}).fill(String(args.port));
    await page.getByRole('button', {name: 'Show', exact: true}).click();
    return steps.word({page, args});
  },

  // word waits until the state of the app is said in such words, and returns all that is said of it.
  async word({page, args}) {
    return until(args, `the word ${args.want}`, async () => {
      const said = (await pane(page).locator('[role=status]').first().innerText()).trim();
      if (said.includes(args.want)) return said;
      throw new Error(said);
    });
  },

  // looks waits for what the pane asks a machine that runs, and says which calls may wake it.
  async looks({page}) {
    const asked = ['services', 'ports'].map((what) => page.waitForRequest((r) => r.url().endsWith(`/${what}`)));
    return (await Promise.all(asked)).map((r) => r.headers()['skete-wake'] ?? 'may wake');
  },

  // asleep waits until the pane says that the machine is paused, and then asks the machine as the pane does.
  async asleep({page, args}) {
    await page.getByText('The machine is paused').first().waitFor();
    return page.evaluate(async (id) => (await fetch(`/v1/sandboxes/${id}/services`, {headers: {'Skete-Wake': 'false'}})).status, args.sandbox);
  },

  // log waits for the log of what crashed.
  async log({page, args}) {
    return until(args, `a log with ${args.want}`, async () => {
      const text = await pane(page).locator('pre').first().innerText();
      return text.includes(args.want) && text;
    });
  },

  async press({page, args}) {
    await pane(page).getByRole('button', {name: args.name, exact: true}).click();
    return {};
  },

  // tab opens the app in a tab of its own, and returns where that is and what it shows.
  async tab({page, state, args}) {
    const opened = page.context().waitForEvent('page');
    await page.getByRole('link', {name: 'Open the app in a new tab'}).click();
    const tab = await opened;
    const text = await until(args, 'the app in its tab', async () => {
      const t = await tab.evaluate(() => document.querySelector('#x')?.textContent);
      return t === args.want && t;
    });
    const got = {origin: new URL(tab.url()).origin, text, opener: await tab.evaluate(() => String(window.opener))};
    await tab.close();
    state.seen.popups.length = 0;
    return got;
  },

  // free sets the switch, and returns what an app's download and window then come to. What is
  // not allowed has come to nothing when something that was asked for later is there.
  async free({page, state, args}) {
    const box = page.getByRole('checkbox', {name: 'Downloads and popups'});
    const was = await box.isChecked();
    if (was !== args.on) await box.click();
    const frame = await until(args, 'a frame of that kind', async () => {
      const allowed = ((await page.locator('iframe').getAttribute('sandbox')) ?? '').includes('allow-popups');
      return allowed === args.on && appOf(page, {...args, within: 1000});
    });
    const downloads = [];
    const on = (d) => downloads.push(d.suggestedFilename());
    page.on('download', on);
    await frame.locator('#save').click();
    await frame.locator('#open').click();
    if (args.on) {
      await until(args, 'a download', () => downloads.length);
      await until(args, 'a window', () => state.seen.popups.length);
      for (const p of page.context().pages()) if (!state.pages.has(p)) await p.close();
    } else await frame.evaluate(() => fetch('/').then((r) => r.text()));
    page.off('download', on);
    const seen = {was, downloads, popups: state.seen.popups.length, sandbox: await page.locator('iframe').getAttribute('sandbox')};
    state.seen.popups.length = 0;
    return seen;
  },

  // attack does what an app must not be able to. from says by which page.
  async attack({browser, page, args}) {
    const ours = args.from === 'page';
    const frame = ours ? page.mainFrame() : await appOf(page, args);
    const before = (await browser.cookies(args.origin)).filter((c) => c.name === '__Host-sid').map((c) => c.value);
    const answers = [];
    const on = (r) => {
      const {origin, pathname} = new URL(r.url());
      if (origin === args.origin && (r.request().frame() === page.mainFrame()) === ours && r.request().method() !== 'GET') answers.push(`${r.request().method()} ${pathname} ${r.status()}`);
    };
    page.on('response', on);
    const tries = await frame.evaluate(trySome, [args.origin, args.name, false]);
    const again = await frame.evaluate(trySome, [args.origin, args.name, true]); // with the cookies that it set
    page.off('response', on);
    const login = await page.evaluate(async () => {
      const r = await fetch('/v1/login');
      return `${r.status} ${(await r.json()).user}`;
    });
    const live = await until(args, 'the page is live', () => page.locator('[data-live=live]').count());
    const cookies = await browser.cookies(args.origin);
    return {
      tries, again, answers, login, live: live > 0, before, sids: cookies.filter((c) => c.name === '__Host-sid').map((c) => c.value),
      tossed: cookies.filter((c) => c.value.includes('evil')).map((c) => `${c.name} ${c.domain}`), url: page.url(),
    };
  },

  // reloaded loads the page anew, and says who is logged in.
  async reloaded({page, state, args}) {
    await page.reload();
    await ready(page, state, args);
    return page.evaluate(async () => {
      const r = await fetch('/v1/login');
      return `${r.status} ${(await r.json()).user}`;
    });
  },
};
