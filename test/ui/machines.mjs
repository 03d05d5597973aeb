// What tests do with the table of machines, with what a run's machine was refused, and with
// runs of workflows.
import {until} from './page.mjs';

export default async ({state, args}) => {
  const page = state.page;
  page.setDefaultTimeout(args.within);
  return steps[args.do]({page, args});
};

const rowOf = (page, text) => page.locator('[role=feed] [data-kind=note]').filter({hasText: text}).first();

// opened is the open row of something that was refused.
async function opened(page, text) {
  const row = rowOf(page, text);
  const button = row.locator('button[aria-expanded]').first();
  await button.waitFor();
  if (await button.getAttribute('aria-expanded') === 'false') await button.click();
  await row.getByRole('link').waitFor();
  return row;
}

const steps = {
  // refusal waits for the row of a refusal, and says what it offers.
  async refusal({page, args}) {
    await rowOf(page, args.text).waitFor();
    const at = await page.evaluate(() => Date.now());
    const row = await opened(page, args.text);
    await until(args, 'how often', async () => /was refused \d+ time/.test(await row.innerText()));
    return {at, text: (await row.innerText()).replaceAll(/\s+/g, ' '), allow: await row.getByRole('button', {name: /Allow/}).count()};
  },

  // permit allows what was refused by the rule that is chosen at first.
  async permit({page, args}) {
    const row = await opened(page, args.text);
    await row.getByRole('button', {name: /Allow/}).click();
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
    await row.getByRole('button', {name: /^Undo/}).waitFor();
    return {shown, offers, first, url: sent.url(), body: sent.postDataJSON(), said: await row.getByRole('status').first().innerText()};
  },

  // withdraw takes a rule away again, in its first seconds.
  async withdraw({page, args}) {
    const row = await opened(page, args.text);
    await row.getByRole('button', {name: /^Undo/}).click();
    await row.getByRole('button', {name: /Allow/}).waitFor();
    return {};
  },

  // machines waits until the table has so many machines, and says what it says of each.
  async machines({page, args}) {
    const rows = page.locator('main table tbody tr');
    await until(args, `${args.n} machines`, async () => await rows.count() === args.n);
    const head = await page.locator('main table thead th').allInnerTexts();
    const at = head.findIndex((h) => /isolation/i.test(h));
    return rows.evaluateAll((all, n) => all.map((r) => r.cells[n].innerText.replaceAll(/\s+/g, ' ').trim()), at);
  },

  // require asks for a machine with an isolation, and returns what is said of that.
  async require({page, args}) {
    await page.getByRole('button', {name: 'New machine'}).click();
    const box = page.getByRole('dialog');
    await box.getByLabel('Isolation at least').selectOption(args.isolation);
    await box.getByRole('button', {name: 'Create', exact: true}).click();
    const text = await box.getByRole('alert').innerText();
    await box.getByRole('button', {name: 'Cancel'}).click();
    await box.waitFor({state: 'detached'});
    return text;
  },

  // destroyAll chooses all machines and destroys them; the button is of no use before the words are typed.
  async destroyAll({page, args}) {
    await page.getByLabel('Choose all').check();
    const bar = page.getByRole('toolbar');
    const chosen = await bar.locator('strong').innerText();
    await bar.getByRole('button', {name: /^Destroy/}).click();
    const box = page.getByRole('dialog');
    const names = await box.locator('li').count();
    const go = box.getByRole('button', {name: 'Destroy', exact: true});
    await until(args, 'the dialog has looked for histories', async () => !(await box.getByText('Looking for histories').count()));
    const word = box.locator('input');
    const asked = await word.count();
    if (asked) {
      if (await go.isEnabled()) throw new Error('it can be destroyed before its word is typed');
      await word.fill(`destroy ${args.n}`);
    }
    const sent = [];
    page.on('request', (r) => { if (r.method() === 'DELETE') sent.push(new URL(r.url()).pathname); });
    await go.click();
    await until(args, 'no machine is left', async () => !(await page.locator('main table tbody tr').count()));
    return {chosen, names, asked, sent: sent.sort()};
  },

  // graph waits until a node of a workflow's run is in a state, and says how all are.
  async graph({page, args}) {
    const nodes = page.locator('section[aria-labelledby=nodes] svg g > title, section[aria-labelledby=nodes] svg a > title');
    await until(args, `${args.node} ${args.state}`, async () => {
      const all = await nodes.allTextContents();
      if (!all.some((t) => t.startsWith(`${args.node},`) && t.includes(args.state))) throw new Error(`they are ${all.join(' | ')}`);
      return true;
    });
    const all = await nodes.allTextContents();
    return {
      nodes: all,
      places: await page.locator('section[aria-labelledby=nodes] svg g[transform^="translate"]').evaluateAll((all) => all.map((g) => g.getAttribute('transform'))),
      edges: all.filter((t) => / to /.test(t)).length,
    };
  },
};
