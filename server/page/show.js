"use strict";
// Makes elements of what the API answers. Text goes in as text, never as HTML:
// paths, labels and contents are a sandbox's, which is hostile.

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
export const whatOf = (r) => r.label || (r.actor === "outside" ? "changed outside" : "changed");

export const whoOf = (r) => {
  const parts = [r.actor || "nobody known"];
  if (r.run) parts.push(r.run + (r.step ? " step " + r.step : ""));
  parts.push(r.files + " files, " + size(r.bytes));
  if (r.state === "local") parts.push("not yet safe outside the sandbox");
  if (r.torn) parts.push(r.torn + " files were changing");
  return parts.join(" · ");
};

export const revision = (r, where, selected, now) => {
  const current = r.n === where.current;
  const b = el("button", { type: "button", "data-n": r.n, "aria-current": current ? "true" : false, "aria-pressed": String(r.n === selected), title: whatOf(r) },
    el("span", { class: "n", text: "#" + r.n }),
    el("span", { class: "what", text: whatOf(r) }),
    el("time", { class: "quiet", datetime: r.time, title: new Date(r.time).toLocaleString(), text: age(r.time, now) }),
    el("span", { class: "who quiet", text: (current ? "now · " : "") + whoOf(r) }));
  return el("li", {}, b);
};

const words = { add: "made", remove: "removed", change: "changed", attributes: "attributes changed" };

const sizes = (f) => {
  const a = f.before && f.before.type === "file" ? size(f.before.size) : "";
  const b = f.after && f.after.type === "file" ? size(f.after.size) : "";
  if (a && b) return a === b ? a : a + " → " + b;
  if (f.after && f.after.target) return "→ " + f.after.target;
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
      el("td", { text: l.text + (l.no_newline ? "  (no newline at the end)" : "") })));
    if (l.kind !== "add") before++;
    if (l.kind !== "remove") after++;
  }
};

// file shows one path of a diff; restore is called to restore it.
export const file = (f, open, restore) => {
  const d = el("details", { open }, el("summary", {}, el("strong", { text: words[f.action] || f.action }), " " + f.path));
  const button = el("button", { type: "button", text: "Restore this file", "aria-label": "Restore " + f.path });
  button.addEventListener("click", restore);
  d.append(el("div", { class: "file" }, el("span", { class: "quiet", text: sizes(f) }), button));
  if (f.hunks && f.hunks.length) {
    const body = el("tbody");
    for (const h of f.hunks) hunk(h, body);
    d.append(el("table", { "aria-label": "Lines of " + f.path }, body));
  } else if (f.binary) d.append(el("p", { class: "empty", text: "It is no text." }));
  else if (f.large) d.append(el("p", { class: "empty", text: "It is too large to show here; `skete diff` shows it." }));
  return d;
};

export const planned = (f) => el("li", {}, el("span", { text: (words[f.action] || f.action) + " " + f.path }), el("span", { class: "quiet", text: sizes(f) }));

// conflict asks what to do with a path.
export const conflict = (c) => {
  const s = el("select", { required: true }, el("option", { value: "", text: "choose…" }), el("option", { value: "keep", text: "keep what is now" }), el("option", { value: "take", text: "take what was before" }));
  if (c.markers) s.append(el("option", { value: "markers", text: "write both, with markers" }));
  return [el("label", {}, el("span", {}, el("strong", { text: c.path }), " " + c.why), s), s];
};

export const service = (s) => el("li", {}, el("strong", { text: s.name }), " ",
  el("span", { class: { ready: "good", unready: "bad", backoff: "bad", "crash-loop": "bad", failed: "bad" }[s.state] || "quiet", title: s.reason || "", text: s.state }));

// exactPath writes a path into a query, byte by byte where it is no text.
export const exactPath = (f) => {
  if (!f.path_bytes) return encodeURIComponent(f.path);
  return Array.from(atob(f.path_bytes), (c) => "%" + c.charCodeAt(0).toString(16).padStart(2, "0")).join("");
};
