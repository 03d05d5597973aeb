// What tests do to see that pages can be used by all: with any eyes, by the keys alone, in a
// narrow window.
import {readFileSync} from 'node:fs';
import {ready, until} from './page.mjs';

export default async ({state, args}) => {
  const {page} = state;
  page.setDefaultTimeout(args.within);
  return steps[args.do]({page, state, args});
};

const frames = (page) => page.evaluate(() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r))));

// looked is what axe finds, in each of the themes.
async function looked(page, args) {
  const out = {found: [], rules: 99};
  // Panes are loaded with what they show.
  if (args.shot) await until(args, 'the pane shows something', () => page.evaluate(() => [...document.querySelectorAll('[role=tabpanel]')].every((p) => p.hidden || p.innerText.trim() !== '')));
  if (!await page.evaluate(() => !!window.axe)) await page.evaluate(readFileSync(args.axe, 'utf8'));
  for (const theme of args.themes) {
    await page.evaluate((t) => { document.documentElement.dataset.theme = t; }, theme);
    await frames(page);
    if (args.shot) await page.screenshot({path: args.shot.replace('THEME', theme)});
    const got = await page.evaluate(async () => {
      const r = await window.axe.run(document, {
        runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'], rules: {'target-size': {enabled: true}}, resultTypes: ['violations'],
      });
      return {
        rules: r.passes.length,
        found: r.violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${v.help}: ${n.target.join(' ')} ${n.html.slice(0, 200)}`)),
      };
    });
    out.rules = Math.min(out.rules, got.rules);
    out.found.push(...got.found.map((f) => `${theme}: ${f}`));
  }
  return out;
}

// tooWide names what makes the page wider than a window of 320 pixels. Tables may be scrolled
// in a box of their own.
async function tooWide(page) {
  const size = page.viewportSize();
  await page.setViewportSize({width: 320, height: 640});
  await frames(page);
  const found = await page.evaluate(() => {
    const out = [];
    for (const n of [document.documentElement, document.body, document.querySelector('main'), ...document.querySelectorAll('[role=dialog]')]) {
      if (n.scrollWidth > n.clientWidth) out.push(`${n.tagName} ${n.getAttribute('role') ?? ''} is ${n.scrollWidth} wide, in ${n.clientWidth}`);
    }
    if (!out.length) return out;
    for (const n of document.querySelectorAll('main *, [role=dialog] *')) {
      const r = n.getBoundingClientRect();
      if (r.right > innerWidth + 1 && r.width && !n.closest('.overflow-x-auto, .overflow-auto:not(main):not([role=dialog])')) out.push(`${n.tagName}.${String(n.className).slice(0, 80)} ends at ${Math.round(r.right)}`);
    }
    return out.slice(0, 6);
  });
  await page.setViewportSize(size);
  await frames(page);
  return found;
}

// unseen names what can have the focus without looking so: neither it nor a box around it has
// an outline of two pixels then.
async function unseen(page) {
  await page.keyboard.press('Shift'); // the keys are in use: the focus is shown
  return page.evaluate(() => {
    const of = (n) => {
      const s = getComputedStyle(n);
      return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 ? `${s.outlineWidth} ${s.outlineColor}` : '';
    };
    const around = (n) => {
      const all = [];
      for (let at = n; at && at.tagName !== 'MAIN' && all.length < 6; at = at.parentElement) all.push(at);
      return all;
    };
    const before = document.activeElement;
    const out = [];
    let seen = 0;
    for (const n of document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')) {
      if (n.disabled || !n.getClientRects().length || n.closest('[aria-hidden=true], [inert]')) continue;
      document.body.focus();
      document.activeElement.blur();
      const boxes = around(n);
      const was = boxes.map(of);
      n.focus({preventScroll: true});
      if (document.activeElement !== n) continue;
      seen++;
      if (n.tabIndex < 0) continue; // a program's, for a moment
      if (!boxes.some((b, i) => of(b) && (of(b) !== was[i]))) out.push(n.outerHTML.slice(0, 200));
    }
    before?.focus?.({preventScroll: true});
    return {seen, out};
  });
}

const dialog = (page) => page.locator('[role=dialog]:not([aria-label=Approvals])');

// Each opens what its name says, on a page that has it.
const openers = {
  async button({page, args}) {
    await page.getByRole('button', {name: args.button, exact: true}).first().click();
  },
  async key({page, args}) {
    await page.keyboard.press(args.key);
  },
  // act opens a form of a call that waits.
  async act({page, args}) {
    await page.locator(`article[data-call][data-open] button[data-act=${args.act}]`).first().click();
    await page.locator('article[data-call] form').first().waitFor();
  },
  // group opens the question about a host that was refused.
  async group({page, args}) {
    const group = page.locator('section[aria-label=Decisions] details').filter({has: page.locator('summary strong', {hasText: args.host})});
    await until(args, `a refusal of ${args.host}`, () => group.locator('summary').getByText('refused').count());
    if (!await group.evaluate((d) => d.open)) await group.locator('summary').click();
    await group.getByRole('button', {name: /Allow/}).first().click();
  },
  // shell has a program write in red, and in the other colours.
  async shell({page, args}) {
    await until(args, 'a shell that is live', () => page.locator('[role=tab][data-word=live]').count());
    await page.locator('.xterm-helper-textarea').first().focus();
    await page.keyboard.type("for i in 1 2 3 4 5 6; do printf '\\033[3'$i'mcolour'$i'\\033[0m '; done; printf '\\033[31;41mred\\033[0m\\n'; echo far$((6*7))\n");
    await until(args, 'the text', () => page.evaluate(() => [...document.querySelectorAll('.xterm-rows > div')].some((d) => /^far42/.test(d.textContent))));
  },
};

// tabTo goes on with the Tab key until what has the focus is what is wanted.
async function tabTo(page, what, found, arg) {
  for (let i = 0; i < 200; i++) {
    if (await page.evaluate(found, arg)) return;
    await page.keyboard.press('Tab');
  }
  throw new Error(`the Tab key does not lead to ${what}; it led to ${await page.evaluate(() => document.activeElement?.outerHTML.slice(0, 300))}`);
}

const chosen = (page) => page.evaluate(() => document.activeElement.selectedOptions[0].textContent);
const atSelect = (label) => document.activeElement instanceof HTMLSelectElement && (document.activeElement.labels[0]?.textContent ?? '').startsWith(label);
const atCall = (words) => document.activeElement?.matches('article[data-call][data-open]') && document.activeElement.innerText.includes(words);

const steps = {
  // visit opens a page, and looks at it in all ways.
  async visit({page, state, args}) {
    await page.goto(args.origin + args.path);
    await ready(page, state, args);
    const axe = await looked(page, args);
    const focus = await unseen(page);
    return {...axe, wide: await tooWide(page), unseen: focus.out, focused: focus.seen, title: await page.locator('main h1').first().innerText()};
  },

  // opened opens something on a page, and looks at it in all ways.
  async opened({page, state, args}) {
    if (args.path) {
      await page.goto(args.origin + args.path);
      await ready(page, state, args);
    }
    await openers[args.open]({page, args});
    let title = '';
    if (args.dialog) {
      await dialog(page).waitFor();
      title = await dialog(page).getByRole('heading').first().innerText();
      if (args.says) await dialog(page).getByText(args.says).first().waitFor();
    }
    await ready(page, state, args);
    const inside = await page.evaluate(() => !!document.activeElement.closest('[role=dialog]'));
    const axe = await looked(page, args);
    const wide = await tooWide(page);
    let closed = false;
    if (args.dialog) {
      await page.keyboard.press('Escape');
      closed = await until(args, 'Escape closes it', async () => !(await dialog(page).count()));
    }
    return {...axe, wide, title, inside, closed};
  },

  // shared opens the page of a shared run, and looks at it in all ways. It has no script that could say that it is ready.
  async shared({page, args}) {
    let axe = {found: [], rules: 99};
    for (const colorScheme of args.themes) {
      await page.emulateMedia({colorScheme});
      await page.goto(args.origin + args.path);
      if (args.shot) await page.screenshot({path: args.shot.replace('THEME', colorScheme)});
      const got = await looked(page, {...args, shot: '', themes: [colorScheme]});
      axe = {found: [...axe.found, ...got.found], rules: Math.min(axe.rules, got.rules)};
    }
    await page.emulateMedia({colorScheme: null});
    const scripts = await page.evaluate(() => document.scripts.length + document.querySelectorAll('form, iframe, input, button').length);
    return {...axe, wide: await tooWide(page), title: await page.locator('main h1').first().innerText(), text: await page.locator('main').innerText(), scripts};
  },

  // full opens the approvals in a narrow window, and measures their buttons.
  async full({page, state, args}) {
    const size = page.viewportSize();
    await page.setViewportSize({width: 390, height: 780});
    await page.goto(args.origin + args.path);
    await ready(page, state, args);
    await page.locator('section[aria-label=Approvals] > button').click();
    await page.locator('[role=dialog][aria-label=Approvals]').waitFor();
    const axe = await looked(page, args);
    const got = await page.evaluate(() => {
      const box = document.querySelector('[role=dialog][aria-label=Approvals]');
      const r = box.getBoundingClientRect();
      const buttons = [...box.querySelectorAll('button[data-act]')].filter((b) => b.getClientRects().length);
      return {
        whole: r.width === innerWidth && r.height === innerHeight,
        buttons: buttons.length, low: Math.min(...buttons.map((b) => b.getBoundingClientRect().height)),
        sticky: getComputedStyle(buttons[0].parentElement).position,
        modal: box.getAttribute('aria-modal'),
      };
    });
    await page.keyboard.press('Escape');
    got.closed = await until(args, 'Escape leads back', async () => !(await page.locator('[role=dialog][aria-label=Approvals]').count()));
    const bar = await page.getByRole('navigation', {name: 'Parts of the run'}).getByRole('button').evaluateAll((all) => all.map((b) => [b.innerText, b.getBoundingClientRect().height]));
    await page.getByRole('navigation', {name: 'Parts of the run'}).getByRole('button', {name: 'Terminal'}).click();
    await page.getByRole('toolbar', {name: 'Keys'}).waitFor();
    const keys = await page.getByRole('toolbar', {name: 'Keys'}).getByRole('button').evaluateAll((all) => all.map((b) => [b.innerText, b.getBoundingClientRect().height]));
    await page.setViewportSize(size);
    return {...axe, ...got, bar: bar.map((b) => b[0]), keys: keys.map((k) => k[0]), lowest: Math.min(...[...bar, ...keys].map((k) => k[1]))};
  },

  // spoil puts in what is to be seen: a field without a name, a target that is too small, a
  // focus that cannot be seen, and something that is too wide.
  async spoil({page, args}) {
    await page.evaluate(() => {
      const main = document.querySelector('main');
      const box = document.createElement('div');
      for (let i = 0; i < 2; i++) {
        const b = document.createElement('button');
        b.ariaLabel = `small ${i}`;
        b.style.cssText = 'width:10px;height:10px;outline:none';
        box.append(b);
      }
      const wide = document.createElement('div');
      wide.style.cssText = 'width:500px;height:1px;flex-shrink:0';
      main.append(document.createElement('input'), box, wide);
    });
    const axe = await looked(page, args);
    return {...axe, wide: await tooWide(page), unseen: (await unseen(page)).out};
  },

  // moved asserts with other wishes of a person: nothing moves, and colours of the system show the focus.
  async moved({page, state, args}) {
    const out = {};
    await page.goto(args.origin + args.path);
    await ready(page, state, args);
    const count = () => page.evaluate(() => {
      const n = document.createElement('div');
      n.style.cssText = 'transition: opacity 5s; animation: spin 5s infinite';
      document.querySelector('main').append(n);
      const s = getComputedStyle(n), control = `${s.animationName} ${s.transitionDuration}`;
      const bad = [...document.querySelectorAll('*')].filter((e) => {
        const c = getComputedStyle(e);
        return c.animationName !== 'none' || c.transitionDuration.split(',').some((d) => parseFloat(d) > 0);
      }).length;
      n.remove();
      return {bad, control, moving: document.getAnimations().length};
    });
    out.free = await count();
    await page.emulateMedia({reducedMotion: 'reduce'});
    out.reduced = await count();
    await page.emulateMedia({reducedMotion: null, forcedColors: 'active'});
    const focus = await unseen(page);
    out.unseen = focus.out;
    out.focused = focus.seen;
    out.forced = await page.evaluate(() => matchMedia('(forced-colors: active)').matches);
    // A state is told by a word, not by a colour that the system takes away.
    out.words = await page.locator('main [data-state]').first().innerText();
    await page.emulateMedia({forcedColors: null});
    return out;
  },

  // crossing changes the window's width while a person writes, and looks for what was made anew.
  async crossing({page, state, args}) {
    const size = page.viewportSize();
    await page.setViewportSize({width: 1300, height: 800});
    await page.goto(args.origin + args.path);
    await ready(page, state, args);
    await page.locator(`article[data-call][data-open] button[data-act=${args.act}]`).first().click();
    const field = page.locator('article[data-call] form textarea').first();
    await field.fill('kept');
    await ready(page, state, args);
    await page.evaluate(() => {
      window.old = [...document.querySelectorAll('main h1, main [role=feed], main textarea, main [role=tablist], main article[data-call], main aside, main [role=slider]')];
      for (const n of window.old) n.mark = n.tagName;
    });
    state.traffic.urls.length = 0;
    const sockets = state.sockets;
    for (const width of [1199, 1201, 1199, 901, 899, 320, 899, 901, 1199, 1201, 1300]) {
      await page.setViewportSize({width, height: 800});
      await frames(page);
    }
    await ready(page, state, args);
    const lost = await page.evaluate(() => window.old.filter((n) => !n.isConnected || n.mark !== n.tagName).map((n) => n.outerHTML.slice(0, 200)));
    if (await field.inputValue() !== 'kept') lost.push('what was written');
    const parts = await page.evaluate(() => window.old.length);
    await page.setViewportSize(size);
    return {requests: [...state.traffic.urls, ...(state.sockets === sockets ? [] : ['a socket'])], lost, parts};
  },

  // decideByKeys starts a run and decides its four calls, and never touches the mouse.
  async decideByKeys({page, state, args}) {
    const keys = page.keyboard;
    await page.goto(args.origin + '/');
    await ready(page, state, args);
    await tabTo(page, 'the task', () => document.activeElement?.id === 'task');
    await keys.type('Do it.');
    await until(args, 'the model and the agent are offered', () => page.evaluate(([m, a]) => [m, a].every((n) => [...document.querySelectorAll('option')].some((o) => o.textContent === n)), [args.model, args.agent]));
    await tabTo(page, 'the agent', atSelect, 'Agent');
    await keys.type(args.agent);
    const agent = await chosen(page);
    await tabTo(page, 'the model', atSelect, 'Model');
    await keys.type(args.model);
    const model = await chosen(page);
    await keys.press('Control+Enter');
    await page.waitForURL(/\/runs\/[^/]+$/);
    await until(args, 'four calls that wait', async () => (await page.locator('article[data-call][data-open] button[data-act=approve]').count()) === 4);
    await keys.press('Shift+A');
    await until(args, 'the first call has the focus', () => page.evaluate(atCall, 'ran-as-asked'));
    await keys.press('a');
    const next = async (words) => {
      for (let i = 0; i < 4 && !await page.evaluate(atCall, words); i++) {
        await keys.press('n');
        await frames(page);
      }
      await until(args, `the call of ${words} has the focus`, () => page.evaluate(atCall, words));
    };
    const say = async (act, text) => {
      await keys.press(act);
      await until(args, 'a field has the focus', () => page.evaluate(() => document.activeElement?.matches('article[data-call] form textarea')));
      await keys.type(text);
      await tabTo(page, 'what sends it', () => document.activeElement?.matches('article[data-call] form button[type=submit]'));
      await keys.press('Enter');
    };
    await next('before-the-edit');
    await keys.press('e');
    await until(args, 'a field has the focus', () => page.evaluate(() => document.activeElement?.matches('article[data-call] form textarea, article[data-call] form input')));
    await keys.press('Control+a');
    await keys.type(args.edited);
    await tabTo(page, 'what sends it', () => document.activeElement?.tagName === 'BUTTON' && document.activeElement.textContent === 'Approve with the changes');
    await keys.press('Enter');
    await next('unwanted');
    await say('x', args.reject);
    await next('which-port');
    await say('r', args.respond);
    await page.locator('main [data-state=succeeded]').first().waitFor();
    return {id: new URL(page.url()).pathname.split('/').pop(), agent, model, focus: await page.evaluate(() => document.activeElement !== document.body)};
  },

  // spoken notes what is said aloud from now on, by elements that are for that.
  async spoken({page, args}) {
    await page.goto(args.origin + args.path);
    await page.locator('[role=feed]').waitFor();
    await page.evaluate(() => {
      window.said = {status: [], alert: []};
      const look = () => {
        for (const how of ['status', 'alert']) {
          for (const n of document.querySelectorAll(`main .sr-only[role=${how}]${how === 'alert' ? ', main .sr-only[aria-live=assertive]' : ''}`)) {
            const t = n.textContent;
            if (t && window.said[how].at(-1) !== t) window.said[how].push(t);
          }
        }
      };
      new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
      look();
    });
    return {};
  },

  // said waits until a text was said, and says all that was.
  async said({page, args}) {
    await until(args, `${args.words} is said`, async () => {
      const said = await page.evaluate(() => window.said);
      if (![...said.status, ...said.alert].includes(args.words)) throw new Error(JSON.stringify(said));
      return true;
    });
    return page.evaluate(() => ({
      ...window.said,
      live: [...document.querySelectorAll('[role=feed] :is([aria-live], [role=status], [role=alert]), [role=feed][aria-live]')].map((n) => n.textContent).filter(Boolean),
    }));
  },
};
