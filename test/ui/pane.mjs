// What tests do with the panes of a run: ranges, comments, and what an undo takes back.
import {until} from './page.mjs';

export default async ({state, args}) => {
  const {page} = state;
  page.setDefaultTimeout(args.within);
  return steps[args.do]({state, args, page});
};

const message = (page) => page.getByRole('textbox', {name: 'Message to the agent'});

const steps = {
  // range chooses what the changes begin with, and returns the paths that differ.
  async range({page, args}) {
    await page.getByRole('combobox', {name: 'since'}).selectOption(args.since);
    return until(args, `paths ${args.want}`, async () => {
      const paths = await page.locator('[data-diff] [data-path]').evaluateAll((l) => l.map((n) => n.dataset.path));
      if (paths.sort().join(' ') !== args.want) throw new Error(`they are ${paths}`);
      return paths;
    });
  },

  // comment says something of a line by the keys, and returns the message that it stands in.
  async comment({page, state, args}) {
    const sent = [];
    const note = (r) => { if (r.method() !== 'GET') sent.push(r.url()); };
    page.on('request', note);
    const button = page.getByRole('button', {name: new RegExp(`^Comment ?on a line of ${args.path}$`)});
    await button.first().focus();
    await page.keyboard.press('Enter');
    await page.getByRole('form', {name: `Comment on ${args.path}`}).waitFor();
    await page.keyboard.type(args.words);
    await page.getByRole('button', {name: 'Put into the message'}).press('Enter');
    await until(args, 'the form is gone', async () => !(await page.getByRole('form', {name: `Comment on ${args.path}`}).count()));
    page.off('request', note);
    return {text: await message(page).inputValue(), sent};
  },

  // too asks that the conversation is taken back too.
  async too({page}) {
    const box = page.getByRole('checkbox', {name: 'Conversation too'});
    await box.waitFor();
    const was = await box.isChecked();
    await box.check();
    return {was, says: await page.locator('#talk-why').innerText()};
  },

  // share makes an address at which the run that is open can be read, and returns it.
  async share({page}) {
    await page.getByRole('button', {name: 'Share', exact: true}).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('It is not shared.').waitFor();
    await dialog.getByRole('button', {name: 'Make an address'}).click();
    const address = await dialog.getByRole('status').locator('code').innerText();
    await dialog.getByRole('button', {name: /^Take back shr_/}).waitFor();
    return address;
  },

  // unshare takes the one address back.
  async unshare({page}) {
    await page.getByRole('dialog').getByRole('button', {name: /^Take back shr_/}).click();
    await page.getByRole('dialog').getByText('It is not shared.').waitFor();
    await page.getByRole('dialog').getByRole('button', {name: 'Close'}).click();
  },

  // rewinds waits until so many rows say that the conversation was taken back.
  async rewinds({page, args}) {
    const rows = page.locator('[data-kind=note]').filter({hasText: 'taken back'});
    await until(args, `${args.n} rows`, async () => (await rows.count()) === args.n);
  },

  // talk is what the page says became of the conversation.
  async talk({page, args}) {
    const banner = page.locator('[data-talk]');
    await banner.waitFor();
    const row = await until(args, 'the row of it', () => page.locator('[data-kind=note]').filter({hasText: 'taken back'}).count());
    return {done: await banner.getAttribute('data-talk'), said: await banner.innerText(), text: await message(page).inputValue(), rows: row};
  },

  // origin is what a fork's page says of where it came from.
  async origin({page, args}) {
    const part = page.getByRole('region', {name: 'Where it was forked from'});
    await part.getByRole('button', {name: 'Show what it took over'}).click();
    const list = part.getByRole('list', {name: 'What it took over'});
    await until(args, 'what it took over', () => list.locator('li').count());
    return {href: await part.getByRole('link').getAttribute('href'), lines: (await list.locator('li').allInnerTexts()).map((l) => l.replaceAll('\n', ' '))};
  },

  // play plays a run's past from its beginning, and returns where it was.
  async play({page, args}) {
    const bar = page.getByRole('slider', {name: 'Time of the run'});
    await page.getByRole('combobox', {name: 'Speed'}).selectOption('16');
    const seen = [];
    await page.getByRole('button', {name: 'Play what was recorded'}).click();
    await until(args, 'the end', async () => {
      const at = await bar.getAttribute('aria-valuenow');
      if (seen.at(-1) !== at) seen.push(at);
      return seen.length > 1 && (await page.getByRole('button', {name: 'Play what was recorded'}).count());
    });
    return {seen: seen.map(Number), text: await bar.getAttribute('aria-valuetext')};
  },

  // undoStep asks by a key for what was before the step of a call, leaves it, and returns the plan.
  async undoStep({page, args}) {
    await page.locator('[role=feed] article').filter({hasText: args.call}).first().focus();
    await page.keyboard.press('u');
    const plan = await until(args, 'a plan', () => page.evaluate(() => document.querySelector('[role=dialog] [data-plan]')?.dataset.plan));
    await page.getByRole('button', {name: 'Keep as it is'}).click();
    await page.keyboard.press('.');
    await page.getByRole('button', {name: /^Revert only step/}).waitFor();
    await page.keyboard.press('Escape');
    return plan;
  },

  // pages goes back by one revision, and returns what the bar says.
  async pages({page, args}) {
    const bar = page.getByRole('slider', {name: 'Time of the run'});
    await bar.press('PageDown');
    return until(args, 'a revision', async () => {
      const text = await bar.getAttribute('aria-valuetext');
      return /revision/.test(text) && text;
    });
  },
};
