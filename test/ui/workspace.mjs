// What tests do with the workspace of a machine: ways back, terminals, previews.
import {until, ready, newPage} from './page.mjs';

export default async ({browser, state, args}) => {
  const {page} = state;
  page.setDefaultTimeout(args.within);
  note(state, page);
  return steps[args.do]({browser, state, args, page});
};

// note keeps what a page asks of the API beside reading, with what it was answered.
function note(state, page) {
  if (state.calls) return;
  state.calls = [];
  page.on('response', (r) => {
    const method = r.request().method();
    const {pathname} = new URL(r.url());
    if (method !== 'GET' && pathname.startsWith('/v1/')) state.calls.push(`${method} ${pathname.split('/').slice(4).join('/')} ${r.status()}`);
  });
}

const box = (page) => page.locator('[role=dialog]');

// look reads the dialog of a way back; null = there is none, or it is still asking.
async function look(page) {
  return page.evaluate(() => {
    const d = document.querySelector('[role=dialog]');
    if (!d) return null;
    const plan = d.querySelector('[data-plan]');
    const problem = d.querySelector('[role=alert]');
    if (!plan && !problem) return null;
    const buttons = [...d.querySelectorAll('button')];
    const main = buttons.find((b) => b.classList.contains('main'));
    return {
      plan: plan?.dataset.plan ?? '',
      title: d.querySelector('h2')?.textContent ?? '',
      text: plan?.textContent ?? '',
      problem: problem?.textContent ?? '',
      paths: [...d.querySelectorAll('[aria-label^="Paths that change"] bdi')].map((n) => n.textContent),
      fresh: [...d.querySelectorAll('[aria-label^="Paths that change"] li')].filter((n) => n.textContent.includes('new in this plan')).map((n) => n.querySelector('bdi').textContent),
      conflicts: [...d.querySelectorAll('fieldset bdi')].map((n) => n.textContent),
      does: main?.textContent ?? '',
      ready: !!main && !main.disabled,
      focus: document.activeElement?.textContent ?? '',
    };
  });
}

const looked = (page, args, what, good = () => true) => until(args, what, async () => {
  const now = await look(page);
  return now && good(now) && now;
});

// settled reads the banner of a way back that was done.
const settled = (page, args) => until(args, 'the banner', () => page.evaluate(() => {
  const n = document.querySelector('[data-done]');
  const same = n?.querySelector('[data-same]');
  if (!n || (!same && n.dataset.done !== 'revert')) return null;
  return {done: n.dataset.done, same: same?.dataset.same ?? '', said: n.textContent, problem: ''};
}));

// tabTo goes on with the Tab key until what has the focus is what is wanted.
async function tabTo(page, args, what, found) {
  for (let i = 0; i < 150; i++) {
    if (await page.evaluate(found, args)) return i;
    await page.keyboard.press('Tab');
  }
  throw new Error(`the Tab key does not lead to ${what}; it led to ${await page.evaluate(() => document.activeElement?.outerHTML.slice(0, 300))}`);
}

const rowsOf = (page) => page.evaluate(() => [...document.querySelectorAll('.xterm-rows > div')].map((d) => d.textContent.replaceAll('\u00a0', ' ').trimEnd()));

async function shell(page, args, line) {
  await until(args, 'a shell that is live', () => page.locator('[role=tab][data-word=live]').count());
  await page.locator('.xterm-helper-textarea').first().focus();
  await page.keyboard.type(line + '\n');
}

async function row(page, args, want) {
  return until(args, `a row ${want}`, async () => {
    const rows = await rowsOf(page);
    if (rows.includes(want)) return rows;
    throw new Error(`there is\n${rows.join('\n')}`);
  });
}

const steps = {
  // plan asks for a way back by its keys, and returns what the dialog says.
  async plan({page, state, args}) {
    state.calls.length = 0;
    await page.keyboard.press(args.keys ?? 'Control+z');
    return looked(page, args, 'a plan');
  },

  // press presses a button of the page that leads to a plan.
  async press({page, state, args}) {
    state.calls.length = 0;
    await page.getByRole('button', {name: args.name, exact: true}).first().click();
    return looked(page, args, 'a plan');
  },

  async keep({page, state, args}) {
    await box(page).getByRole('button', {name: 'Keep as it is'}).click();
    await until(args, 'the dialog is gone', async () => !(await box(page).count()));
    return {done: '', same: '', said: '', problem: '', calls: state.calls};
  },

  // apply agrees to a plan. It is done; or the dialog says why not, or has another plan.
  async apply({page, state, args}) {
    const before = await looked(page, args, 'a plan that can be done', (d) => d.ready);
    await box(page).getByRole('button', {name: before.does, exact: true}).click();
    let next = null;
    await until(args, 'an answer', async () => {
      if (!(await box(page).count())) return true;
      next = await look(page);
      return next && (next.problem || next.plan !== before.plan) && !/Doing it/.test(next.does);
    });
    if (!(await box(page).count())) return {...await settled(page, args), calls: state.calls};
    return {done: '', same: '', said: '', problem: next.problem, next, calls: state.calls};
  },

  // choose decides each conflict, and shows the whole plan.
  async choose({page, args}) {
    const before = await looked(page, args, 'conflicts', (d) => d.conflicts.length > 0);
    const ready = [before.ready];
    for (const s of await box(page).getByRole('combobox').all()) await s.selectOption(args.choice);
    await box(page).getByRole('button', {name: before.does, exact: true}).click();
    const after = await looked(page, args, 'the plan', (d) => d.plan !== before.plan);
    return {...after, wasReady: ready.some(Boolean)};
  },

  // keyboard does all of a start and an undo without the mouse.
  async keyboard({page, state, args}) {
    await page.goto(args.origin + '/');
    await ready(page, state, args);
    await tabTo(page, args, 'the task', () => document.activeElement?.id === 'task');
    await page.keyboard.type('Do it.');
    await until(args, 'the model is offered', () => page.evaluate((m) => [...document.querySelectorAll('option')].some((o) => o.textContent === m), args.model));
    await tabTo(page, args, 'the model', () => document.activeElement instanceof HTMLSelectElement && /^Model/.test(document.activeElement.labels[0]?.textContent ?? ''));
    await page.keyboard.type(args.model);
    const model = await page.evaluate(() => document.activeElement.selectedOptions[0].textContent);
    await page.keyboard.press('Control+Enter');
    await page.waitForURL(/\/runs\/[^/]+$/);
    await page.locator('main [data-state=succeeded]').first().waitFor();
    return {id: new URL(page.url()).pathname.split('/').pop(), model};
  },

  // keysPlan asks for an undo, and takes it back by the key that has the focus.
  async keysPlan({page, state, args}) {
    state.calls.length = 0;
    await page.keyboard.press('Control+z');
    const plan = await looked(page, args, 'a plan', (d) => d.ready && d.focus === 'Keep as it is');
    await page.keyboard.press('Enter');
    await until(args, 'the dialog is gone', async () => !(await box(page).count()));
    return {...plan, calls: [...state.calls]};
  },

  // keysApply goes to a button of the page if one is named, and does what the dialog then offers.
  async keysApply({page, state, args}) {
    state.calls.length = 0;
    if (args.name) {
      await tabTo(page, args, args.name, ({name}) => document.activeElement?.tagName === 'BUTTON' && document.activeElement.textContent === name);
      await page.keyboard.press('Enter');
    } else await page.keyboard.press('Control+z');
    await looked(page, args, 'a plan', (d) => d.ready && d.focus === 'Keep as it is');
    await tabTo(page, args, 'what does it', () => document.activeElement?.classList.contains('main') && document.activeElement.closest('[role=dialog]') !== null);
    await page.keyboard.press('Enter');
    await until(args, 'the dialog is gone', async () => !(await box(page).count()));
    return {...await settled(page, args), calls: state.calls};
  },

  // line types a line into the shell, and waits for a row.
  async line({page, args}) {
    await shell(page, args, args.line);
    return row(page, args, args.want);
  },

  // sized makes the window as large as that, and returns the size that the shell was told and
  // the one that is seen.
  async sized({page, args}) {
    await page.setViewportSize({width: args.width, height: args.height});
    let n = 0;
    return until(args, 'the shell was told', async () => {
      const mark = `size${args.height}n${++n}`;
      await shell(page, args, `clear; echo ${mark}=$(stty size | tr ' ' x); printf 'x%.0s' $(seq 500); echo; echo ${mark}$((6*7))`);
      const rows = await row(page, args, `${mark}42`);
      const told = rows.map((r) => r.match(/^size\w+=(\d+)x(\d+)$/)).find(Boolean);
      if (!told) throw new Error(rows.join('\n'));
      const size = {rows: Number(told[1]), cols: Number(told[2]), seen_rows: rows.length, seen_cols: Math.max(...rows.map((r) => r.match(/^x+$/)?.[0].length ?? 0))};
      if (size.rows !== size.seen_rows || size.cols !== size.seen_cols) throw new Error(JSON.stringify(size));
      return size;
    });
  },

  // back loads the page anew, and goes up in the terminal until a row is there.
  async back({page, state, args}) {
    await page.reload();
    await ready(page, state, args);
    await until(args, 'a shell that is live', () => page.locator('[role=tab][data-word=live]').count());
    await page.locator('.xterm-helper-textarea').first().focus();
    return until(args, `a row ${args.want}`, async () => {
      const rows = await rowsOf(page);
      if (rows.includes(args.want)) return rows;
      await page.keyboard.press('Shift+PageUp');
      throw new Error(rows.join('\n'));
    });
  },

  // clipboard copies a text in another page if there is one, and says what is pasted.
  async clipboard({browser, state, page, args}) {
    const other = await newPage(browser, state);
    await other.goto(args.origin + '/');
    const field = other.locator('#task');
    if (args.text) {
      await field.fill(args.text);
      await field.press('Control+a');
      await field.press('Control+c');
    }
    await field.fill('');
    await field.press('Control+v');
    const value = await field.inputValue();
    await field.fill('');
    await other.close();
    state.pages.delete(other);
    await page.bringToFront();
    return {value, title: await page.title()};
  },

  // flood clicks a button for as long as the terminal is flooded, and says how long each click took
  // until it was painted.
  async flood({page, args}) {
    await page.evaluate(() => {
      window.clicks = [];
      addEventListener('click', (e) => {
        requestAnimationFrame(() => {
          const c = new MessageChannel();
          c.port1.onmessage = () => window.clicks.push(Math.round(performance.now() - e.timeStamp));
          c.port2.postMessage(0);
        });
      }, true);
    });
    await shell(page, args, `timeout ${args.seconds} yes; echo end$((6*7))`);
    await until(args, 'the flood', async () => (await rowsOf(page)).filter((r) => r === 'y').length > 3);
    const find = page.getByRole('button', {name: 'Find in the terminal'});
    let over = false;
    for (const end = Date.now() + args.within; !over && Date.now() < end;) {
      const was = await find.getAttribute('aria-expanded');
      await find.click();
      await until(args, 'the click was answered', async () => (await find.getAttribute('aria-expanded')) !== was);
      over = (await rowsOf(page)).includes('end42');
    }
    if (!over) await row(page, args, 'end42');
    if ((await find.getAttribute('aria-expanded')) === 'true') await find.click();
    return page.evaluate(() => window.clicks);
  },

  // word waits until the preview's state is said in such words.
  async word({page, args}) {
    return until(args, `the word ${args.want}`, async () => {
      const said = await page.locator('[role=tabpanel]:not([hidden]) [role=status]').allInnerTexts();
      if (said.some((t) => t.includes(args.want))) return said.join(' ');
      throw new Error(said.join('\n'));
    });
  },

  async ready({page, state, args}) {
    await ready(page, state, args);
    return {};
  },
};
