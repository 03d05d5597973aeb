// The way of a person who has never seen the page: each step is found by the words on it.
// README's two pictures are made on it.
import {until} from './page.mjs';

export default async ({state: {page}, args}) => {
  const click = (name) => page.getByRole('button', {name}).first().click();
  const total = (want) => until(args, `the shop's total ${want}`, async () => {
    const shop = page.frames().find((f) => f !== page.mainFrame() && new URL(f.url()).host.startsWith('8080-'));
    return (await shop.evaluate(() => document.body.innerText)).includes(want);
  });
  const way = async (name) => {
    await click(name);
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', {name}).click();
    await dialog.waitFor({state: 'detached'});
  };
  const shot = async (theme, name) => {
    await page.evaluate((t) => { document.documentElement.dataset.theme = t; }, theme);
    await page.mouse.move(0, 0);
    await page.screenshot({path: args.shot.replace('NAME', name)});
  };
  page.setDefaultTimeout(args.within);
  await page.setViewportSize({width: 1400, height: 860});
  await page.getByRole('button', {name: 'Run the example'}).waitFor();
  const first = await page.locator('main').innerText();
  await click('Run the example');
  await page.getByRole('button', {name: /^Approve/}).first().waitFor();
  await page.getByRole('tabpanel', {name: 'Changes'}).getByText(/^Restore this file/).first().waitFor();
  await shot('light', 'run-light');
  await click(/^Approve/);
  await click(/^Open the preview/);
  await total('8.10 €');
  await shot('dark', 'run-dark');
  await page.getByRole('tab', {name: 'Changes'}).click();
  await way('Undo');
  await page.getByRole('tab', {name: 'Preview'}).click();
  await total('5.70 €');
  await click('Redo'); // of the banner
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', {name: 'Redo'}).click();
  await total('8.10 €');
  const log = await page.getByRole('feed').innerText();
  await page.getByRole('feed').focus();
  await page.keyboard.press('['); // the machine is that of the past, too
  await page.getByRole('region', {name: 'Workspace'}).getByText('belongs to the present').waitFor();
  return {first, url: page.url(), log};
};
