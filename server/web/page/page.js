"use strict";
import { el, visible, revision, unsaved, file, planned, conflict, service, whatOf } from "/s/show.js";

let id = location.pathname.split("/")[2]; // or a name, until the server has told the id
const $ = (name) => document.getElementById(name);

// ---- the API

class Problem extends Error {
  constructor(status, p) {
    super(p.detail || "the server answered " + status);
    this.status = status;
    this.hint = p.hint || "";
  }
}

// api asks for something of this sandbox. Without a session it leads to the
// login, which comes back here.
const api = async (method, path, body) => {
  const res = await fetch("/v1/sandboxes/" + id + path, {
    method, cache: "no-store", credentials: "same-origin", redirect: "error",
    headers: body ? { "Content-Type": "application/json" } : {}, body: body ? JSON.stringify(body) : undefined,
  });
  if (res.status === 401) location.assign("/login?next=" + encodeURIComponent(location.pathname));
  const data = res.status === 204 ? {} : await res.json().catch(() => ({}));
  if (!res.ok) throw new Problem(res.status, data);
  return data;
};

const noticeMS = 8000;
let hush = 0;

// notice tells something; what is no problem goes by itself.
const notice = (text, bad) => {
  clearTimeout(hush);
  $("notice").textContent = visible(text);
  $("notice").className = bad ? "alert" : "";
  if (text && !bad) hush = setTimeout(() => notice(""), noticeMS);
};

$("hush").addEventListener("click", () => notice(""));

const failed = (err) => notice(err instanceof Problem ? err.message + (err.hint ? " – " + err.hint : "") : "The server cannot be reached.", true);

// ---- who is here

const onlyLooks = "You may look here but not change anything: the key that you logged in with lacks the right “write”.";
let may = true; // change something; the server decides, this is for the looks

const showWho = async () => {
  const res = await fetch("/v1/login", { cache: "no-store", credentials: "same-origin" });
  if (!res.ok) return;
  const who = await res.json();
  may = who.scopes.some((s) => s === "write" || s === "admin");
  $("who").textContent = may ? "" : "read only";
  $("who").title = may ? "" : onlyLooks;
  $("logout").disabled = who.by !== "login";
  for (const b of [...needRight, $("open").querySelector("button")]) b.toggleAttribute("data-refused", !may);
  if (!may) notice(onlyLooks, true);
};

// on makes a button do what needs the right to change something. Who lacks it
// is told so.
const needRight = [];
const on = (name, act) => {
  needRight.push($(name));
  $(name).addEventListener("click", () => (may ? act() : notice(onlyLooks, true)));
};

$("logout").addEventListener("click", async () => {
  try {
    const res = await fetch("/logout", { method: "POST", credentials: "same-origin", redirect: "manual" });
    if (res.type !== "opaqueredirect") throw new Problem(res.status, await res.json());
    location.assign("/login?next=" + encodeURIComponent(location.pathname));
  } catch (err) { failed(err); }
});

// A page that the browser kept may be of a user who has logged out.
addEventListener("pageshow", (e) => { if (e.persisted) location.reload(); });

// ---- the timeline

const pageSize = 50;
const state = { revs: [], where: { current: 0, undo: 0, redo: 0 }, next: "", selected: 0, follows: true, seen: "", newest: 0 };

// take puts a page of the newest revisions before what is known already.
const take = (page) => {
  const oldest = page.items.length ? page.items[page.items.length - 1].n : 0;
  const newest = state.revs.length ? state.revs[0].n : 0;
  const older = state.revs.filter((r) => r.n < oldest);
  const gap = newest < oldest - 1 && page.next_page_token;
  if (gap || !older.length) state.next = page.next_page_token || "";
  state.revs = gap ? page.items : page.items.concat(older);
  state.where = { current: page.current, undo: page.undo, redo: page.redo, unsaved: page.unsaved };
};

const draw = () => {
  const list = $("revisions");
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.n : "";
  const now = Date.now();
  list.replaceChildren(...(state.where.unsaved ? [unsaved(state.where.unsaved)] : []), ...state.revs.map((r) => revision(r, state.where, state.selected, now)));
  if (!state.revs.length) list.append(el("li", { class: "empty", text: "Nothing is recorded yet. The first change that an agent makes will be here, and so will “Save a revision”." }));
  list.setAttribute("aria-busy", "false");
  if (focused) list.querySelector('[data-n="' + focused + '"]')?.focus();
  $("more").hidden = !state.next;
  $("undo").disabled = !state.where.undo;
  $("redo").disabled = !state.where.redo;
  $("snapshot").disabled = false;
  $("restore").disabled = !state.selected || state.selected === state.where.current;
  $("revert").disabled = !state.selected;
};

const select = (n) => {
  state.selected = n;
  state.follows = state.revs.length > 0 && n === state.revs[0].n;
  draw();
  showChanges();
};

$("revisions").addEventListener("click", (e) => {
  const b = e.target.closest("button");
  if (b) select(Number(b.dataset.n));
});

$("revisions").addEventListener("keydown", (e) => {
  const way = { ArrowDown: 1, ArrowUp: -1 }[e.key];
  if (!way) return;
  const all = [...$("revisions").querySelectorAll("button")];
  const to = all[all.indexOf(document.activeElement) + way];
  if (!to) return;
  e.preventDefault();
  to.focus();
});

$("more").addEventListener("click", async () => {
  try {
    const page = await api("GET", "/history?page_size=" + pageSize + "&page_token=" + encodeURIComponent(state.next));
    state.next = page.next_page_token || "";
    state.revs = state.revs.concat(page.items);
    draw();
  } catch (err) { failed(err); }
});

// ---- what changed

const openMax = 20; // paths that are open at once
let asked = 0; // answers to older questions are dropped

const showChanges = async () => {
  const mine = ++asked;
  const n = state.selected;
  const out = $("diff");
  if (!n) {
    $("changes-title").textContent = "What changed";
    out.replaceChildren(el("p", { class: "empty", text: "Choose a revision to see what it changed." }));
    return;
  }
  try {
    const rev = await api("GET", "/history/" + n);
    const diff = await api("GET", "/history/diff?hunks=true&from=" + rev.from + "&to=" + n);
    if (mine !== asked) return;
    $("changes-title").textContent = "#" + n + " " + whatOf(rev);
    $("changes-title").title = whatOf(rev);
    const restore = (f) => (may ? plan({ do: "restore", n, path: f.path, path_bytes: f.path_bytes }) : notice(onlyLooks, true));
    out.replaceChildren(...diff.files.map((f, i) => file(f, i < openMax, () => restore(f))));
    out.scrollTop = 0;
    if (!diff.files.length) out.append(el("p", { class: "empty", text: "Nothing differs from the revision before it." }));
    if (diff.cut) out.append(el("p", { class: "empty", text: "There is more than is shown here; `skete diff` shows it." }));
  } catch (err) {
    if (mine !== asked) return;
    out.replaceChildren(el("p", { class: "empty alert", text: err.message }));
  }
};

// ---- ways back

const titles = { undo: "Undo", redo: "Redo", restore: "Restore", revert: "Revert" };
let request = null, current = null;

// plan asks what a way back would do and shows it; nothing is done yet.
const plan = async (r, said) => {
  request = r;
  try {
    current = await api("POST", "/history/plan", r);
  } catch (err) {
    $("plan").close();
    failed(err);
    return;
  }
  const p = current;
  $("plan-title").textContent = titles[p.do] + (p.do === "revert" ? " #" : " to #") + p.n;
  $("plan-text").textContent = (said ? said + " " : "") + (p.total ? p.total + (p.total === 1 ? " path changes." : " paths change.") + " What is there now stays a revision." : "Nothing would change.");
  $("plan-files").replaceChildren(...p.files.map(planned));
  if (p.cut) $("plan-files").append(el("li", { text: "and " + (p.total - p.files.length) + " more" }));
  const asks = p.conflicts.map((c) => [c, ...conflict(c)]);
  $("conflicts").replaceChildren($("conflicts").firstElementChild, ...asks.map(([, label]) => label));
  $("conflicts").hidden = !asks.length;
  $("go").textContent = asks.length ? "Show the plan" : titles[p.do];
  const ready = () => { $("go").disabled = asks.length ? asks.some(([, , s]) => !s.value) : !p.total; };
  for (const [, , s] of asks) s.addEventListener("change", ready);
  ready();
  current.choices = () => asks.map(([c, , s]) => ({ path: c.path, path_bytes: c.path_bytes, choice: s.value }));
  if (!$("plan").open) $("plan").showModal();
  ($("go").disabled ? $("cancel") : $("go")).focus();
};

const apply = async () => {
  if (current.conflicts.length) {
    await plan({ ...request, choices: (request.choices || []).concat(current.choices()) });
    return;
  }
  $("go").disabled = true;
  try {
    const done = await api("POST", "/history/apply", { plan: current.id });
    $("plan").close();
    const kept = done.files.filter((f) => f.result === "kept").length;
    notice(titles[current.do] + " done: " + (done.files.length - kept) + (done.cut ? " or more" : "") + (done.files.length - kept === 1 && !done.cut ? " path" : " paths") + " changed" + (kept ? ", " + kept + " kept because they hold what the history does not have" : "") + ". This is revision #" + done.revision.n + ".");
    state.follows = true;
    await refresh();
  } catch (err) {
    if (err.status === 409) {
      await plan(request, "The files changed meanwhile; this is what would happen now.");
      return;
    }
    $("plan").close();
    failed(err);
  }
};

$("go").addEventListener("click", apply);
on("undo", () => plan({ do: "undo", scope: $("scope").value }));
on("redo", () => plan({ do: "redo" }));
on("restore", () => plan({ do: "restore", n: state.selected }));
on("revert", () => plan({ do: "revert", n: state.selected }));

// The keys of every editor; nothing is done before the plan is agreed to.
addEventListener("keydown", (e) => {
  if (!(e.ctrlKey || e.metaKey) || e.altKey || $("plan").open || e.target.closest("input, select")) return;
  const key = e.key.toLowerCase();
  const button = key === "z" ? (e.shiftKey ? "redo" : "undo") : key === "y" ? "redo" : "";
  if (!button) return;
  e.preventDefault();
  $(button).click();
});

on("snapshot", async () => {
  try {
    const r = await api("POST", "/history", { label: "saved by hand" });
    notice("The files as they are now are revision #" + r.n + ".");
    await refresh();
  } catch (err) { failed(err); }
});

// ---- the app

let made = null, services = [];

const show = async (port) => {
  try {
    made = await api("POST", "/previews", { port });
    const url = new URL(made.url, location.href), address = new URL(made.address || made.url, location.href);
    if (!/^https?:$/.test(url.protocol) || url.origin === location.origin || address.origin !== url.origin) throw new Problem(0, { detail: "The preview has no origin of its own." });
    made.again = address.href;
    $("frame").src = url.href;
    $("frame").hidden = false;
    $("stage-text").hidden = true;
    $("again").disabled = false;
    $("apart").href = "/preview/" + url.hostname.split(".")[0] + "?to=%2F";
  } catch (err) {
    made = null;
    $("frame").hidden = true;
    $("frame").removeAttribute("src");
    $("stage-text").hidden = false;
    $("stage-text").textContent = err instanceof Problem ? err.message : "The server cannot be reached.";
    $("again").disabled = true;
    $("apart").removeAttribute("href");
  }
};

$("open").addEventListener("submit", (e) => {
  e.preventDefault();
  if (may) show(Number($("port").value));
  else $("stage-text").textContent = "The app is for those who may change something: it does what it is asked.";
});

$("again").addEventListener("click", () => { if (made) $("frame").src = made.again; });

// wentBack shows the app as it is after a way back. A dev server that is known
// tells its page by itself, which then keeps its state.
const wentBack = () => {
  if (made && !services.some((s) => s.known_as && (s.ports || []).includes(made.port))) $("frame").src = made.again;
};

// inside asks for what only a running sandbox has; that there is none is no error.
const inside = async (path) => {
  try { return (await api("GET", path)).items || []; } catch { return []; }
};

let proposed = false;

const showInside = async () => {
  let ports;
  [services, ports] = await Promise.all([inside("/services"), inside("/ports")]);
  $("services").replaceChildren(...services.map(service));
  if (!services.length) $("services").append(el("li", { class: "quiet", text: "No services are declared." }));
  $("ports").replaceChildren(...ports.map((p) => el("option", { value: p.port })));
  if (proposed) return;
  const ready = services.find((s) => s.state === "ready" && s.ports && s.ports.length);
  const port = ready ? ready.ports[0] : ports.length ? ports[0].port : 0;
  if (!port) return;
  proposed = true;
  if ($("port").value) return;
  $("port").value = port;
  if (ready && may) show(port);
};

const showSandbox = async () => {
  const sb = await api("GET", "");
  id = sb.id;
  const name = visible(sb.name || sb.id);
  document.title = name + " · skete";
  $("name").textContent = name;
  $("life").textContent = sb.state;
  $("life").className = "pill " + (sb.state === "running" ? "good" : sb.state === "failed" ? "bad" : "");
  $("about").textContent = [sb.name ? sb.id : "", sb.provider, sb.isolation].filter(Boolean).join(" · ");
  $("about").title = $("about").textContent;
  return sb.state;
};

// ---- live

const everyMS = 1500, everyMSMax = 30000;

// To ask what runs inside would wake a paused sandbox, and keep one from being
// paused for ever: it is asked only while it runs and a reader is at the page.
const attendedMS = 5 * 60 * 1000;
let attended = Date.now();
for (const sign of ["pointerdown", "pointermove", "keydown", "focus", "visibilitychange"]) {
  addEventListener(sign, () => { attended = Date.now(); }, { passive: true, capture: true });
}
let timer = 0, wait = everyMS, turn = 0, busy = false;

const refresh = async () => {
  const page = await api("GET", "/history?page_size=" + pageSize);
  take(page);
  const key = JSON.stringify([state.where, state.revs.map((r) => [r.n, r.state])]);
  const newest = state.revs.length ? state.revs[0].n : 0;
  const follow = state.follows && newest !== state.selected;
  if (newest > state.newest && state.newest && state.revs[0].undoes) wentBack();
  state.newest = newest;
  if (follow) state.selected = newest;
  if (key !== state.seen || turn % 20 === 0) draw(); // ages too
  state.seen = key;
  if (follow || turn === 0) showChanges();
};

const tick = async () => {
  clearTimeout(timer);
  if (document.hidden || busy) return;
  busy = true;
  try {
    if (turn === 0) await showWho();
    await refresh();
    if (turn % 4 === 0 && await showSandbox() === "running" && Date.now() < attended + attendedMS) await showInside();
    turn++;
    if (wait > everyMS) notice("");
    wait = everyMS;
  } catch (err) {
    $("revisions").setAttribute("aria-busy", "false");
    if (err.status === 401) return; // on the way to the login
    if (err.status === 404) {
      $("revisions").replaceChildren(el("li", { class: "empty", text: "There is no such sandbox, or it is not yours." }));
      $("life").textContent = "unknown";
      return;
    }
    failed(err);
    wait = Math.min(wait * 2, everyMSMax);
  } finally {
    busy = false;
  }
  timer = setTimeout(tick, wait);
};

document.addEventListener("visibilitychange", tick);
tick();
