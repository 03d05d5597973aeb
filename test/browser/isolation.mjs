// What a person does, and what a page that an agent wrote tries.
export default async ({browser, args}) => {
  const {origin, key, box, other, link, address} = args;
  const out = {attempts: {}};
  const page = await browser.newPage();

  // Log in, as a person.
  await page.goto(origin + '/login');
  await page.fill('input[name=key]', key);
  await Promise.all([page.waitForNavigation(), page.click('button')]);
  out.logged_in = await page.textContent('h1');
  out.sid = (await browser.cookies(origin)).find((c) => c.name === '__Host-sid') ?? {};

  // Open the preview, as a page of the app does.
  await page.goto(origin + '/healthz');
  const open = (port, path) => page.evaluate(async ([box, port, path]) => {
    const r = await fetch(`/v1/sandboxes/${box}/previews`, {
      method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify({port, path}),
    });
    const o = await r.json(); if (!o.url) throw new Error(JSON.stringify(o)); return o.url;
  }, [box, port, path]);
  const url = await open(5173, '/');
  const evil = await browser.newPage();
  await evil.goto(url);
  out.preview = await evil.textContent('#x');
  const second = await browser.newPage();
  await second.goto(other);
  const otherOrigin = new URL(other).origin;

  // Toss cookies, by script and by answers.
  out.readable = await evil.evaluate(() => document.cookie);
  await evil.evaluate(() => {
    for (const c of [
      '__Host-sid=tossed; Path=/; Secure', '__Host-sid=tossed; Path=/; Secure; Domain=localhost', '__host-sid=tossed; Path=/; Domain=localhost',
      'sid=tossed; Path=/; Domain=localhost', 'sid=tossed; Path=/; Domain=preview.localhost', '=__Host-sid=tossed; Path=/; Domain=localhost',
    ]) document.cookie = c;
  });
  out.after_toss = await page.evaluate(async () => (await fetch('/v1/login')).status);

  // Act as the user.
  out.attempts = await evil.evaluate(async ([origin, otherOrigin]) => {
    const tries = {};
    const note = async (name, f) => {
      try { tries[name] = await f(); } catch (e) { tries[name] = 'refused'; }
    };
    await note('fetch to the API', async () => 'read ' + (await (await fetch(origin + '/v1/login', {credentials: 'include'})).text()));
    await note('read of the API', async () => 'read ' + (await (await fetch(origin + '/v1/keys', {credentials: 'include', mode: 'cors'})).text()));
    await note('post of a key', async () => {
      // It is sent; no page may read the answer, and the test looks whether a key was made.
      await fetch(origin + '/v1/keys', {method: 'POST', credentials: 'include', mode: 'no-cors', body: '{"name":"evil","scopes":["admin"]}'});
      return 'refused';
    });
    await note('image of the API', () => new Promise((done) => {
      const i = new Image();
      i.onload = () => done('loaded');
      i.onerror = () => done('refused');
      i.src = origin + '/v1/login';
    }));
    const socket = (address) => new Promise((done) => {
      const s = new WebSocket(address);
      s.onopen = () => done('open');
      s.onerror = () => done('refused');
    });
    await note('socket to the API', () => socket(origin.replace('http', 'ws') + '/v1/follow'));
    await note('socket to the other preview', () => socket(otherOrigin.replace('http', 'ws') + '/hmr'));
    await note('read of the other preview', async () => 'read ' + (await (await fetch(otherOrigin + '/', {credentials: 'include'})).text()));
    await note('write to the other preview', async () => {
      const r = await fetch(otherOrigin + '/', {method: 'POST', credentials: 'include', body: 'x'});
      return 'read ' + (await r.text());
    });
    return tries;
  }, [origin, otherOrigin]);
  const form = await browser.newPage();
  await form.goto(address);
  await Promise.all([form.waitForNavigation(), form.evaluate((origin) => {
    const f = document.createElement('form');
    f.method = 'post';
    f.action = origin + '/logout';
    document.body.append(f);
    f.submit();
  }, origin)]);
  const still = await page.evaluate(async () => (await fetch('/v1/login')).status);
  out.attempts['form to /logout'] = still === 200 ? 'refused' : 'logged out';

  // Spend the code again, here and elsewhere.
  out.replay = (await form.goto(url)).status();
  const stranger = await browser.browser()?.newContext?.();
  if (stranger) {
    const p = await stranger.newPage();
    out.stranger = (await p.goto(url)).status();
    const first = await p.goto(link);
    out.public_by = first.status();
    const items = await page.evaluate(async (box) => (await (await fetch(`/v1/sandboxes/${box}/previews`)).json()).items, box);
    await page.evaluate(async ([box, id]) => { await fetch(`/v1/sandboxes/${box}/previews/${id}`, {method: 'DELETE'}); }, [box, items[0].id]);
    out.afterwards = (await p.goto(address)).status();
    await stranger.close();
  }

  // In a frame of the app; in a frame of another preview; the app in a preview's.
  const frameOf = async (p, src) => {
    await p.evaluate((src) => {
      const f = document.createElement('iframe');
      f.name = 'inner';
      f.src = src;
      document.body.append(f);
      return new Promise((done) => { f.onload = done; setTimeout(done, 5000); });
    }, src);
    return p.frames().find((f) => f !== p.mainFrame());
  };
  const shell = await browser.newPage();
  await shell.goto(origin + '/healthz');
  const frame = await frameOf(shell, await open(5173, '/in-a-frame'));
  out.frame = await frame.textContent('#x').catch((e) => String(e));
  out.frame_fetch = await frame.evaluate(async () => (await fetch('/data')).status);
  const text = async (f) => { // where it is, is known a moment after it is there
    for (const until = Date.now() + 5000; !f.url() && Date.now() < until;) await new Promise((r) => setTimeout(r, 20));
    return f.url().startsWith('chrome-error:') ? 'refused' : f.url() + ' ' + await f.textContent('body', {timeout: 1000}).catch(String);
  };
  out.framed = await text(await frameOf(second, address));
  out.framing = await text(await frameOf(evil, origin + '/login'));

  // Lose the visit; come back by the app, which the browser is logged in to.
  await browser.clearCookies({name: '__Host-pv'});
  const back = await browser.newPage();
  const lost = await back.goto(address + 'deep');
  if (lost.status() === 401) {
    await back.click('a');
    await back.waitForSelector('#x', {timeout: 15000});
    out.returned = await back.textContent('#x');
  }

  // Log out: what the login let in ends too.
  await page.evaluate(async () => { await fetch('/logout', {method: 'POST', redirect: 'manual'}); });
  out.logged_out = (await back.reload()).status();
  out.cookies = (await browser.cookies()).map((c) => `${c.domain} ${c.name}`);
  for (const p of [page, evil, second, form, shell, back]) await p.close();
  return out;
};
