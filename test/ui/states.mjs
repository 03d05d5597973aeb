// What tests of the states of pages do. One function a step; a test calls it by its name.
import {ready, until} from './page.mjs';

export default async ({browser, state, args}) => {
  state.page?.setDefaultTimeout(args.within);
  return steps[args.do]({browser, state, args, page: state.page});
};

// seen waits for a text in a part of the page, and returns all that the part says.
const seen = (page, args, part, words) => until(args, `${words} in ${part}`, async () => {
  const all = await page.locator(part).allInnerTexts();
  const found = all.find((t) => words.every((w) => t.includes(w)));
  if (!found) throw new Error(`there is ${JSON.stringify(all)}`);
  return found.replaceAll('\n', ' ');
});

const steps = {
  async seen({page, args}) {
    return seen(page, args, args.part, args.words);
  },

  async press({page, args}) {
    await page.locator(args.part ?? 'body').getByRole(args.role ?? 'button', {name: args.name, exact: true}).first().click();
    return page.url();
  },

  // left waits until the page is of another run, and returns its id.
  async left({page, args}) {
    return until(args, 'another run', async () => {
      const id = new URL(page.url()).pathname.split('/').pop();
      return id !== args.id && id;
    });
  },

  // marked says whether the page is still the one that was marked.
  async marked({page, args}) {
    if (args.mark) await page.evaluate(() => { window.marked = true; });
    return page.evaluate(() => window.marked === true);
  },

  // without loads a path without a login, and logs in where it leads.
  async without({browser, page, state, args}) {
    await browser.clearCookies();
    await page.goto(args.origin + args.path);
    const at = new URL(page.url()).pathname;
    await page.fill('input[name=key]', args.key);
    await page.click('button');
    await until(args, 'the page after the login', () => page.locator('main h1').count());
    await ready(page, state, args);
    const url = new URL(page.url());
    return {at, back: url.pathname + url.search};
  },

  async reloaded({page, state, args}) {
    await until(args, 'another page', () => page.evaluate(() => window.marked === undefined));
    await ready(page, state, args);
    return page.getByRole('button', {name: /reload when ready/}).count();
  },
};
