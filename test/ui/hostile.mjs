// What tests do to see that texts stay texts, wherever a page shows them.
import {ready, until} from './page.mjs';

export default async ({state, args}) => {
  const {page} = state;
  page.setDefaultTimeout(args.within);
  return steps[args.do]({page, state, args});
};

// look says what a page shows, and what no text may have become in it.
const look = (page) => page.evaluate(() => {
  const wrong = new Set();
  if ('pwned' in window) wrong.add(`a text has run: ${window.pwned}`);
  for (const n of document.querySelectorAll('body *')) {
    if (n.matches('body > noscript, .xterm style')) continue; // ours
    const svg = n.closest('svg');
    for (const a of n.attributes) {
      if (a.name.startsWith('on')) wrong.add(`${n.tagName} ${a.name}=${a.value}`);
      if (/^(href|src|action|formaction|data|srcset|ping|srcdoc|xlink:href)$/.test(a.name) && a.value) {
        const url = new URL(a.value, location.href);
        const leads = n.tagName === 'A' && a.name === 'href';
        if (leads ? !/^(https?|mailto):$/.test(url.protocol) : url.origin !== location.origin && !/^(blob|data):$/.test(url.protocol)) wrong.add(n.outerHTML.slice(0, 300));
        if (leads && url.origin !== location.origin && !(/noopener/.test(n.rel) && /noreferrer/.test(n.rel))) wrong.add(n.outerHTML.slice(0, 300));
      }
      // What a person cannot see must not turn what they can.
      if (/^(title|aria-label|alt|placeholder)$/.test(a.name) && /\p{Bidi_Control}/u.test(a.value)) wrong.add(`hidden characters in ${a.name} of ${n.outerHTML.slice(0, 200)}`);
    }
    if (!svg && /^(IFRAME|SCRIPT|OBJECT|EMBED|LINK|META|BASE|MARQUEE|TEMPLATE|MATH|VIDEO|AUDIO|STYLE|NOSCRIPT|PORTAL)$/.test(n.tagName)) wrong.add(`<${n.tagName}> ${n.outerHTML.slice(0, 200)}`);
    if (svg && /^(script|use|animate|set|image|foreignObject)$/i.test(n.tagName)) wrong.add(`<svg ${n.tagName}>`);
  }
  // A shell and an editor have ways of their own; Markdown keeps joiners, that scripts need.
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const of = n.parentElement;
    if (of.closest('textarea, .xterm, .cm-editor')) continue;
    const decided = of.closest('article[data-call], [data-rule]') && !of.closest('.md');
    const bad = decided ? /(?![\n\t])[\p{Cc}\p{Cf}\u2028\u2029]/u : /\p{Bidi_Control}/u;
    if (bad.test(n.data)) wrong.add(`hidden characters in ${JSON.stringify(n.data.slice(0, 100))} of ${of.tagName} ${of.className}`);
  }
  return {said: document.body.textContent, wrong: [...wrong]};
});

const steps = {
  // sweep opens a page, and looks at all of it: press names what has to be pressed first.
  async sweep({page, state, args}) {
    if (args.path) await page.goto(args.origin + args.path);
    await ready(page, state, args);
    for (const [role, name] of args.press ?? []) {
      const all = await until(args, `${role} ${name}`, async () => {
        const found = await page.getByRole(role, {name, exact: false}).all();
        return found.length && found;
      });
      await all[0].click();
      await ready(page, state, args);
    }
    if (args.open) {
      await page.evaluate(() => { for (const d of document.querySelectorAll('main details')) d.open = true; });
      await ready(page, state, args);
    }
    if (args.calls) await until(args, `${args.calls} calls`, async () => (await page.locator('article[data-call][data-open] button[data-act]:not([hidden])').count()) >= args.calls);
    let seen = await look(page);
    if (args.has) {
      // That it never comes, the test says better, by all that is there.
      await until(args, args.has, async () => {
        seen = await look(page);
        return seen.said.includes(args.has);
      }).catch(() => {});
    }
    return seen;
  },

  // tree goes through a tree of files, which draws what is in the window alone.
  async tree({page, args}) {
    const names = new Set(), wrong = new Set();
    await until(args, 'a file', () => page.getByRole('treeitem').count());
    for (let more = true; more;) {
      for (const w of (await look(page)).wrong) wrong.add(w);
      for (const n of await page.getByRole('treeitem').locator('bdi').allTextContents()) names.add(n);
      more = await page.evaluate(async () => {
        let box = document.querySelector('[role=treeitem]');
        while (box && !(box.scrollHeight > box.clientHeight + 1 && /auto|scroll/.test(getComputedStyle(box).overflowY))) box = box.parentElement;
        const was = box?.scrollTop;
        if (box) box.scrollTop += box.clientHeight / 2;
        await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
        return !!box && box.scrollTop > was;
      });
    }
    return {said: [...names].join('\n'), wrong: [...wrong]};
  },

  // shell has the terminal write a file.
  async shell({page, args}) {
    await until(args, 'a shell that is live', () => page.locator('[role=tab][data-word=live]').count());
    await page.locator('.xterm-helper-textarea').first().focus();
    await page.keyboard.type(`${args.line}; stty sane; printf '\\033c'; echo far$((6*7))\n`);
    await until(args, 'the end of it', () => page.evaluate(() => [...document.querySelectorAll('.xterm-rows > div')].some((d) => /^far42/.test(d.textContent))));
    const seen = await look(page);
    return {...seen, said: await page.evaluate(() => [...document.querySelectorAll('.xterm-rows > div')].map((d) => d.textContent).join('\n'))};
  },

  // spoil puts in what no text may have become, for the eyes of the tests.
  async spoil({page}) {
    await page.evaluate(() => {
      window.pwned = 'itself';
      const add = (tag, to) => document.querySelector('main').append(Object.assign(document.createElement(tag), to));
      add('a', {href: 'javascript:void 0'});
      add('a', {href: 'https://evil.test/'});
      add('template', {});
      add('b', {title: 'a\u202eb'});
      add('b', {textContent: 'a\u202eb'});
    });
    return look(page);
  },
};
