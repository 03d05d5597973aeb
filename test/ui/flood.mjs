// What tests do with a command that wrote more than a page can hold.
import {heap, nodes} from './scale.mjs';
import {until, ready} from './page.mjs';

export default async ({browser, state, args}) => {
  const {page} = state;
  page.setDefaultTimeout(args.within);
  state.cdp ??= await browser.newCDPSession(page);
  return steps[args.do]({state, args, page});
};

// weigh adds up what each request brought, unpacked, and what came by sockets.
async function weigh({cdp}) {
  const got = {requests: new Map(), socket: 0, urls: new Map()};
  await cdp.send('Network.enable');
  cdp.on('Network.requestWillBeSent', (e) => got.urls.set(e.requestId, e.request.url));
  cdp.on('Network.dataReceived', (e) => got.requests.set(e.requestId, (got.requests.get(e.requestId) ?? 0) + e.dataLength));
  cdp.on('Network.webSocketFrameReceived', (e) => { got.socket += e.response.payloadData.length; });
  return got;
}

// inView is the text of a part's lines that can be seen in what scrolls it.
const inView = (box, words) => box.evaluate((box, words) => {
  const seen = box.getBoundingClientRect();
  const walk = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    for (let at = n.data.indexOf(words); at >= 0; at = n.data.indexOf(words, at + 1)) {
      const range = document.createRange();
      range.setStart(n, at);
      range.setEnd(n, at + words.length);
      const r = range.getBoundingClientRect();
      if (r.bottom > seen.top && r.top < seen.bottom) return true;
    }
  }
  return false;
}, words);

const steps = {
  // flooded opens a run and the row of its command, and reads what is kept of the output as a
  // person does: the pager, a search, the end.
  async flooded({page, state, args}) {
    const got = await weigh(state);
    await page.goto(args.origin + args.path);
    const row = page.locator('[data-kind=call]').first();
    await row.waitFor();
    await row.locator('button[aria-expanded=false]').first().click();
    const all = row.getByRole('button', {name: /^Open /});
    await all.waitFor();
    const shown = await row.innerText();
    const opens = await all.innerText();
    await all.click();
    const pager = row.getByRole('region', {name: 'All of the output'});
    await pager.waitFor();
    const says = await row.getByText(/ were kept/).allInnerTexts();
    const box = pager.locator('div[tabindex]');
    await until(args, `${args.first} in the pager`, () => inView(box, args.first));
    const search = pager.getByLabel('Search in the output');
    await search.fill(args.search);
    await search.press('Enter');
    const found = await until(args, `${args.search} is found`, async () => {
      const text = await pager.getByRole('status').innerText();
      if (/^no/.test(text)) throw new Error(text);
      return /^at /.test(text) && text;
    });
    await until(args, `the line ${args.search} where it is seen`, () => inView(box, args.search));
    const marked = await pager.locator('mark').allInnerTexts();
    await search.fill(args.absent);
    await search.press('Enter');
    const absent = await until(args, `${args.absent} is not found`, async () => {
      const text = await pager.getByRole('status').innerText();
      return /^(not|at )/.test(text) && text;
    });
    await box.evaluate((b) => { b.scrollTop = 0; });
    await box.focus();
    await until(args, `the end, with ${args.last}`, async () => {
      await page.keyboard.press('End');
      return inView(box, args.last);
    });
    await ready(page, state, args);
    const most = [...got.requests].reduce((a, b) => (b[1] > a[1] ? b : a), ['', 0]);
    return {
      shown, says, found, opens, marked, absent, nodes: await nodes(page), heap_mb: await heap(state),
      requests: got.requests.size, most_bytes: most[1], most_url: got.urls.get(most[0]) ?? '', socket_bytes: got.socket,
    };
  },
};
