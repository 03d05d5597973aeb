"use strict";
// Makes elements of what the API answers. Text goes in as text, never as HTML:
// paths, labels and contents are a sandbox's, which is hostile.

// visible is a text in which nothing hides: what would turn the direction of
// writing, break a line or has no width is written as its number. A tab stays.
export const visible = (s) =>
  String(s).replace(/[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    (c) => "⟨" + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩");

const charsMax = 2000; // of a line of a diff

const line = (s) => visible(s.length > charsMax ? s.slice(0, charsMax) : s) + (s.length > charsMax ? " … and " + (s.length - charsMax) + " characters more" : "");

export const el = (tag, attributes, ...children) => {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes || {})) {
    if (v === false || v === null || v === undefined) continue;
    if (k === "text") e.textContent = v;
    else if (k === "class") e.className = v;
    else e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...children);
  return e;
};

export const size = (n) => {
  if (n < 1024) return n + " B";
  let i = -1;
  do { n /= 1024; i++; } while (n >= 1024 && i < 3);
  return n.toFixed(1) + " " + ["KiB", "MiB", "GiB", "TiB"][i];
};

export const age = (time, now) => {
  const s = Math.max(0, Math.floor((now - Date.parse(time)) / 1000));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 172800) return Math.floor(s / 3600) + " h";
  return Math.floor(s / 86400) + " d";
};

// whatOf says of what a revision is the result.
export const whatOf = (r) => visible(r.title);

const short = (id) => visible(id.length > 13 ? id.slice(0, 12) + "…" : id);

export const whoOf = (r) => {
  const parts = [visible(r.who)];
  if (r.run) parts.push(short(r.run) + (r.step ? " step " + r.step : ""));
  if (r.state === "local") parts.push("not yet safe outside the sandbox");
  if (r.torn) parts.push(r.torn + " files were changing");
  return parts.join(" · ");
};

export const revision = (r, where, selected, now) => {
  const current = r.n === where.current;
  const b = el("button", { type: "button", "data-n": r.n, "aria-current": current ? "true" : false, "aria-pressed": String(r.n === selected), title: [visible(r.label || r.title), visible(r.actor || ""), visible(r.run || ""), r.files + " files, " + size(r.bytes)].filter(Boolean).join("\n") },
    el("span", { class: "n", text: "#" + r.n }),
    el("span", { class: "what" }, el("bdi", { text: whatOf(r) })),
    el("time", { class: "quiet", datetime: r.time, title: new Date(r.time).toLocaleString(), text: age(r.time, now) }),
    el("span", { class: "by quiet" }, current ? el("strong", { class: "pill now", text: "now" }) : "", whoOf(r)));
  return el("li", {}, b);
};

// unsaved is the line above the newest revision, for what none has yet.
export const unsaved = (u) =>
  el("li", { class: "unsaved" }, el("strong", { class: "pill now", text: "now" }), " unsaved changes: " + (u.files ? u.files + (u.files === 1 ? " file" : " files") : "directories only") + (u.cut ? " and more" : ""));

const words = { add: "made", remove: "removed", change: "changed", attributes: "attributes changed" };

const sizes = (f) => {
  const a = f.before && f.before.type === "file" ? size(f.before.size) : "";
  const b = f.after && f.after.type === "file" ? size(f.after.size) : "";
  if (a && b) return a === b ? a : a + " → " + b;
  if (f.after && f.after.target) return "→ " + visible(f.after.target);
  return a || b;
};

const hunk = (h, body) => {
  let before = h.before, after = h.after;
  body.append(el("tr", { class: "gap" }, el("td", { colspan: 4, text: "line " + (h.after || h.before) })));
  for (const l of h.lines) {
    const sign = { same: " ", remove: "−", add: "+" }[l.kind];
    body.append(el("tr", { class: l.kind },
      el("td", { class: "no", text: l.kind === "add" ? "" : String(before) }),
      el("td", { class: "no", text: l.kind === "remove" ? "" : String(after) }),
      el("td", { class: "sign", text: sign }),
      el("td", { text: line(l.text) + (l.no_newline ? "  (no newline at the end)" : "") })));
    if (l.kind !== "add") before++;
    if (l.kind !== "remove") after++;
  }
};

const kinds = { add: "made", remove: "gone", change: "same", attributes: "same" };

const path = (f) => el("bdi", { class: "path", text: visible(f.path) });

const lines = (f) => {
  const body = el("tbody");
  for (const h of f.hunks) hunk(h, body);
  const columns = el("colgroup", {}, ...["no", "no", "sign", ""].map((c) => el("col", { class: c })));
  return el("table", { "aria-label": "Lines of " + visible(f.path) }, columns, body);
};

// file shows one path of a diff; its lines are made when it is first open.
// restore is called to restore it.
export const file = (f, open, restore) => {
  const count = (kind) => (f.hunks || []).reduce((n, h) => n + h.lines.filter((l) => l.kind === kind).length, 0);
  const added = count("add"), removed = count("remove");
  const d = el("details", {}, el("summary", {},
    el("strong", { class: "pill " + kinds[f.action], text: words[f.action] || f.action }), path(f),
    el("span", { class: "count" }, added ? el("span", { class: "good", text: "+" + added }) : "", " ", removed ? el("span", { class: "bad", text: "−" + removed }) : "")));
  const button = el("button", { type: "button", text: (f.after || f.before || {}).type === "directory" ? "Restore this directory" : "Restore this file", "aria-label": "Restore " + visible(f.path) });
  button.addEventListener("click", restore);
  d.append(el("div", { class: "file" }, el("span", { class: "quiet", text: sizes(f) }), button));
  if (f.hunks && f.hunks.length) d.addEventListener("toggle", () => { if (d.open && !d.querySelector("table")) d.append(lines(f)); });
  else if (f.binary) d.append(el("p", { class: "empty", text: "It is no text." }));
  else if (f.large) d.append(el("p", { class: "empty", text: "It is too large to show here; `skete diff` shows it." }));
  if (open && f.hunks && f.hunks.length) d.append(lines(f));
  d.open = open;
  return d;
};

export const planned = (f) => el("li", {}, el("span", {}, el("span", { class: "pill " + kinds[f.action], text: words[f.action] || f.action }), " ", path(f)), el("span", { class: "quiet", text: sizes(f) }));

// conflict asks what to do with a path.
export const conflict = (c) => {
  const s = el("select", { required: true }, el("option", { value: "", text: "choose…" }), el("option", { value: "keep", text: "keep what is now" }), el("option", { value: "take", text: "take what was before" }));
  if (c.markers) s.append(el("option", { value: "markers", text: "write both, with markers" }));
  return [el("label", {}, el("span", {}, el("strong", {}, path(c)), " " + visible(c.why)), s), s];
};

export const service = (s) => el("li", {}, el("strong", { text: visible(s.name) }), " ",
  el("span", { class: { ready: "good", unready: "bad", backoff: "bad", "crash-loop": "bad", failed: "bad" }[s.state] || "quiet", title: visible(s.reason || ""), text: s.state }));
