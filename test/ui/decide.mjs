// What tests do with approvals, with a run's past, and with what leaves machines.
import {ready, until} from './page.mjs';

export default async ({browser, state, args}) => {
  const page = args.tab ? state.tabs[args.tab] : state.page;
  page?.setDefaultTimeout(args.within);
  return steps[args.do]({browser, state, args, page});
};

const agentsOf = (page) => page.locator('section[aria-label=Agents] li > button').evaluateAll((all) =>
  all.map((b) => [...b.children].map((c) => c.textContent.trim()).join(': ')));

// cardOf is the card of a call that waits, by a text that is in it.
const cardOf = (page, words) => page.locator('article[data-call][data-open]').filter({hasText: words});

// note keeps what goes over the network from now on.
function note(page, to) {
  page.on('request', (r) => to.requests.push({method: r.method(), url: r.url(), body: r.postData() ?? ''}));
  page.on('response', (r) => {
    to.open++;
    r.body().then((b) => to.answers.push(`${r.url()}\n${JSON.stringify(r.headers())}\n${b}`), () => {}).finally(() => to.open--);
  });
  page.on('websocket', (ws) => {
    to.sockets.push(ws.url());
    for (const how of ['framereceived', 'framesent']) ws.on(how, ({payload}) => to.frames.push(String(payload)));
  });
  page.on('console', (m) => to.said.push(m.text()));
}

const empty = () => ({requests: [], answers: [], sockets: [], frames: [], said: [], open: 0});

const steps = {
  // another opens a page in a tab of its own, which later steps name.
  async another({browser, state, args}) {
    const before = state.seen.popups.length;
    const page = await browser.newPage();
    state.seen.popups.length = before; // it is ours
    state.pages.add(page);
    page.setDefaultTimeout(args.within);
    page.on('pageerror', (e) => state.seen.errors.push(String(e)));
    (state.tabs ??= {})[args.name] = page;
    await page.goto(args.origin + args.path);
    await until(args, 'the heading', () => page.locator('main h1').count());
    return {};
  },

  // agents waits until the tree of agents is as it is wanted: names and states in their order.
  async agents({page, args}) {
    const want = [...args.want].sort().join(', ');
    await until(args, want, async () => {
      const got = (await agentsOf(page)).sort().join(', ');
      if (got !== want) throw new Error(`the agents are ${got}`);
      return true;
    });
    return {};
  },

  // inside opens the row of a sub-agent in its parent's timeline, and waits for what it does there.
  async inside({page, args}) {
    const row = page.locator('[role=feed] [data-kind=call]').filter({hasText: args.agent}).first();
    await row.waitFor();
    const button = row.locator('button[aria-expanded]').first();
    if (await button.getAttribute('aria-expanded') === 'false') await button.click();
    const child = page.locator(`section[aria-label="Agent ${args.agent}"]`);
    return until(args, `${args.words} in ${args.agent}`, async () => {
      const text = (await child.innerText()).replaceAll('\n', ' ');
      if (!text.includes(args.words)) throw new Error(`it shows ${text}`);
      return text;
    });
  },

  // focus goes to the timeline of a sub-agent, through the tree.
  async focus({page, args}) {
    await page.locator('section[aria-label=Agents] li > button').filter({hasText: args.agent}).click();
    await until(args, 'its address', () => new URL(page.url()).searchParams.get('agent'));
    return page.getByRole('navigation', {name: 'Agents above'}).innerText();
  },

  // waits waits until so many calls wait for a person, and says what their cards show; and the
  // state of a call's own row, if asked.
  async waits({page, args}) {
    const open = page.locator('article[data-call][data-open]');
    await until(args, `${args.n} calls that wait`, async () => {
      const buttons = await open.locator('button[data-act]').count();
      return (await open.count()) === args.n && buttons >= args.n;
    });
    const row = args.row && await until(args, `the row of ${args.row}`, async () =>
      page.locator('[role=feed] [data-kind=call][data-state=waiting]').filter({hasText: args.row}).count());
    const cards = await open.evaluateAll((all) => all.map((a) => ({
      text: a.innerText,
      acts: [...a.querySelectorAll('button[data-act]')].map((b) => b.dataset.act),
    })));
    return {cards, rows: row || 0, focused: await page.evaluate(() => !!document.activeElement.closest('[data-call]'))};
  },

  // decide makes a decision, with what belongs to it.
  async decide({page, args}) {
    const card = cardOf(page, args.call);
    await card.locator(`button[data-act=${args.act}]`).click();
    if (args.act === 'edit') {
      await card.getByLabel(args.field).fill(args.value);
      await until(args, 'the mark of a change', () => card.locator('[data-changed]').count());
      await card.getByRole('button', {name: 'Approve with the changes'}).click();
    } else if (args.text) {
      await card.locator('form textarea').fill(args.text);
      await card.locator('form button[type=submit]').click();
    }
    return {};
  },

  // notice keeps what cards say of decisions from now on: they leave the card after a while.
  async notice({page}) {
    await page.evaluate(() => {
      window.decisions = new Set();
      const look = () => {
        for (const d of document.querySelectorAll('article[data-call] [data-decision]')) window.decisions.add(d.innerText.replaceAll('\n', ' '));
      };
      new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
      look();
    });
    return {};
  },

  // decided waits until the cards have said all of the words since notice.
  async decided({page, args}) {
    const began = Date.now();
    const text = await until(args, `${args.words} on a card`, async () => {
      const all = await page.evaluate(() => [...window.decisions].join(' | '));
      const lacks = args.words.filter((w) => !all.includes(w));
      if (lacks.length) throw new Error(`${lacks} is not in ${all}`);
      return all;
    });
    return {text, ms: Date.now() - began};
  },

  // hold keeps a tab's decisions on their way until release.
  async hold({page, state}) {
    state.held = [];
    await page.route('**/decisions', (route) => { state.held.push(route); });
    return {};
  },

  async release({page, state, args}) {
    await until(args, 'a decision that is held', () => state.held.length);
    const answer = page.waitForResponse('**/decisions');
    for (const route of state.held.splice(0)) await route.continue();
    return (await answer).json();
  },

  // record keeps all that this page sends and gets from now on.
  async record({page, state}) {
    if (!state.record) {
      state.record = empty();
      note(page, state.record);
    }
    Object.assign(state.record, {...empty(), open: state.record.open});
    return {};
  },

  // recorded says what the page asked for that may change something, and which sockets it opened.
  async recorded({state}) {
    const {requests, sockets} = state.record;
    return {
      all: requests.length,
      changing: requests.filter((r) => !['GET', 'HEAD'].includes(r.method)).map((r) => `${r.method} ${r.url} ${r.body}`),
      sockets: sockets.filter((s) => !s.endsWith('/v1/follow')),
    };
  },

  // drag moves the bar of time to about an event, as a hand does, and then by keys to it.
  async drag({page, args}) {
    const bar = page.getByRole('slider', {name: 'Time of the run'});
    await bar.waitFor();
    const box = await bar.boundingBox();
    const y = box.y + box.height / 2;
    const x = box.x + box.width * Math.min(1, (args.to + 0.3 - args.first) / (args.last - args.first));
    await page.mouse.move(box.x + box.width - 2, y);
    await page.mouse.down();
    await page.mouse.move(x + 30, y, {steps: 4});
    await page.mouse.move(x, y, {steps: 4});
    await page.mouse.up();
    for (let seq = 0; seq !== args.to;) {
      const text = await bar.getAttribute('aria-valuetext');
      seq = Number(/^event (\d+) of/.exec(text)?.[1]);
      if (!seq || Math.abs(seq - args.to) > 4) throw new Error(`the bar was dragged to event ${args.to}, and says ${text}`);
      if (seq !== args.to) await bar.press(seq > args.to ? 'ArrowLeft' : 'ArrowRight');
    }
    await until(args, `at=${args.to}`, () => {
      const at = new URL(page.url()).searchParams.get('at');
      if (at !== String(args.to)) throw new Error(`at=${at}`);
      return true;
    });
    return bar.getAttribute('aria-valuetext');
  },

  // past says what the page shows of a moment: its files, once they are there.
  async past({page, args}) {
    const files = await until(args, `the files ${args.files}`, async () => {
      const names = await page.getByRole('tree', {name: 'Files'}).getByRole('treeitem').locator('bdi').allInnerTexts();
      if (names.sort().join(' ') !== args.files) throw new Error(`they are ${names}`);
      return names;
    });
    return {
      at: new URL(page.url()).searchParams.get('at'),
      files: files.join(' '),
      plan: await page.locator('section[aria-label=Plan]').innerText(),
      head: (await page.locator('main h1').first().locator('..').innerText()).replaceAll('\n', ' '),
      said: await page.getByText('Nothing is executed.').count(),
      rows: await page.locator('[role=feed] [data-seq]').evaluateAll((all) => all.map((n) => Number(n.dataset.seq))),
    };
  },

  async reload({page, state, args}) {
    await page.reload();
    await ready(page, state, args);
    return {};
  },

  // fresh waits until the page counts what came since it looks at the past.
  async fresh({page, args}) {
    return until(args, 'a count of new events', async () => {
      const text = await page.locator('[data-past]').innerText();
      const n = Number(/(\d+) new/.exec(text)?.[1] ?? 0);
      if (n < args.least) throw new Error(`it says ${n}`);
      return n;
    });
  },

  async live({page, args}) {
    await page.getByRole('button', {name: 'Back to live'}).click();
    await until(args, 'the address of what is live', () => !new URL(page.url()).searchParams.get('at'));
    await page.locator('main [data-state=succeeded]').first().waitFor();
    await page.locator('[role=feed]').getByText(args.text).first().waitFor();
    return {};
  },

  // fork makes a fork from the moment that is looked at, and returns its run.
  async fork({page, args}) {
    await page.getByRole('button', {name: 'Fork from here'}).click();
    const box = page.getByRole('dialog');
    const title = await box.getByRole('heading').innerText();
    await box.getByLabel(/What to do there/).fill(args.task);
    await box.getByRole('button', {name: 'Fork', exact: true}).click();
    await until(args, 'the page of the fork', () => !page.url().includes(args.run));
    await page.locator('main [data-state=succeeded]').first().waitFor();
    return {id: new URL(page.url()).pathname.split('/').pop(), title};
  },

  // refused waits until a host's group shows a refusal, opens it, and says what it offers.
  async refused({page, args}) {
    const began = Date.now();
    const group = page.locator('section[aria-label=Decisions] details').filter({has: page.locator('summary strong', {hasText: args.host})});
    await until(args, `a refusal of ${args.host}`, () => group.locator('summary').getByText('refused').count());
    const ms = Date.now() - began;
    if (!await group.evaluate((d) => d.open)) await group.locator('summary').click();
    await group.locator('tbody tr').first().waitFor();
    return {ms, text: (await group.innerText()).replaceAll('\n', ' '), allow: await group.getByRole('button', {name: /Allow/}).count()};
  },

  // allow adds the rule that is chosen at first, and says what was shown of it and what was sent.
  async allow({page, args}) {
    const group = page.locator('section[aria-label=Decisions] details').filter({has: page.locator('summary strong', {hasText: args.host})});
    await group.locator('tbody tr').filter({hasText: args.machine}).getByRole('button', {name: /Allow/}).first().click();
    const box = page.getByRole('dialog');
    await box.waitFor();
    const shown = await box.locator('[data-rule]').innerText();
    const offers = await box.getByRole('radio').count();
    const first = await box.getByRole('radio').first().isChecked();
    const [sent] = await Promise.all([
      page.waitForRequest((r) => r.method() === 'PUT'),
      box.getByRole('button', {name: 'Add this rule'}).click(),
    ]);
    await box.waitFor({state: 'detached'});
    return {shown, offers, first, url: sent.url(), body: sent.postDataJSON()};
  },

  // passed waits until a host's group shows that a request passed, and by which rule.
  async passed({page, args}) {
    const group = page.locator('section[aria-label=Decisions] details').filter({has: page.locator('summary strong', {hasText: args.host})});
    const row = group.locator('tbody tr').filter({hasText: '✓ allowed'});
    await row.first().waitFor();
    return (await row.first().innerText()).replaceAll(/\s+/g, ' ');
  },

  // secret makes a secret by the form.
  async secret({page, args}) {
    await page.getByRole('button', {name: 'New secret'}).click();
    const box = page.getByRole('dialog');
    await box.getByLabel('Name', {exact: false}).first().fill(args.name);
    const value = box.locator('input[name=value]');
    await value.fill(args.value);
    await box.locator('input[name=hosts]').fill(args.host);
    await box.locator('input[name=env]').fill(args.env);
    const kind = [await value.getAttribute('type'), await value.getAttribute('autocomplete')].join(' ');
    await box.getByRole('button', {name: 'Save', exact: true}).click();
    await box.waitFor({state: 'detached'});
    await page.getByRole('table').getByText(args.name, {exact: true}).first().waitFor();
    return kind;
  },

  // ask asks the API from the page, which is recorded as all else is.
  async ask({page, args}) {
    return page.evaluate(async (paths) => {
      const out = {};
      for (const p of paths) {
        const r = await fetch(p, {headers: {Accept: 'application/json'}});
        await r.text();
        out[p] = r.status;
      }
      return out;
    }, args.paths);
  },

  // places says where a text is: in the page, in what the browser keeps, in what came and went.
  async places({page, state, args}) {
    await until(args, 'all answers are read', () => !state.record.open);
    const here = await page.evaluate(async () => {
      const bases = await indexedDB.databases();
      const caches_ = await caches.keys();
      return {
        page: document.documentElement.outerHTML,
        fields: [...document.querySelectorAll('input, textarea, select')].map((n) => n.value).join('\n'),
        local: JSON.stringify(localStorage), session: JSON.stringify(sessionStorage),
        history: JSON.stringify(history.state), title: document.title, address: location.href,
        databases: JSON.stringify([bases, caches_]),
      };
    });
    here.cookies = JSON.stringify(await page.context().cookies());
    const r = state.record;
    const all = {
      ...here, answers: r.answers.join('\n'), frames: r.frames.join('\n'), console: r.said.join('\n'),
      addresses: r.requests.map((q) => q.url).join('\n'), sent: r.requests.map((q) => q.body).join('\n'),
    };
    return {
      found: Object.keys(all).filter((k) => all[k].includes(args.text)).sort(),
      answers: r.answers.length, frames: r.frames.length,
    };
  },
};
