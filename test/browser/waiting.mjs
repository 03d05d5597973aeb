export default async ({browser, state, args}) => {
  if (args.url) {
    state.page = await browser.newPage();
    await state.page.goto(args.url);
    return {waited: await state.page.textContent('h1')};
  }
  await state.page.waitForFunction((text) => document.body.innerText.includes(text), args.until, {polling: 20, timeout: 20000});
  return {came_back: await state.page.textContent('#x')};
};
