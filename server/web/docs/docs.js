"use strict";
// Draws the OpenAPI document of this server. Text goes in as text, never as HTML.
const el = (tag, text, ...children) => {
  const e = document.createElement(tag);
  if (text) e.textContent = text;
  e.append(...children);
  return e;
};
const typeOf = (s) => {
  if (!s) return "";
  if (s.$ref) return s.$ref.split("/").pop();
  const t = Array.isArray(s.type) ? s.type.filter((x) => x !== "null").join("|") : s.type || "any";
  if (t === "array") return typeOf(s.items) + "[]";
  if (t === "object" && typeof s.additionalProperties === "object") return "map of " + typeOf(s.additionalProperties);
  return s.format ? t + " (" + s.format + ")" : t;
};
const schemaCell = (s) => {
  const name = typeOf(s);
  if (!s || !(s.$ref || (s.items && s.items.$ref))) return el("td", name);
  const a = el("a", name);
  a.href = "#schema-" + name.replace("[]", "");
  return el("td", "", a);
};
const rules = (s) => {
  const r = [];
  for (const k of ["enum", "default", "minimum", "maximum", "maxLength"]) if (s && s[k] !== undefined) r.push(k + ": " + JSON.stringify(s[k]));
  return r.join(", ");
};
const table = (rows, ...heads) => el("table", "", el("tr", "", ...heads.map((h) => el("th", h))), ...rows);
const route = (path, method, op) => {
  const d = el("details");
  const s = el("summary");
  const m = el("span", method.toUpperCase());
  m.className = "method";
  s.append(m, el("code", path), " " + (op.summary || ""));
  d.append(s);
  if (op.description) d.append(el("p", op.description));
  const ps = op.parameters || [];
  if (ps.length) d.append(table(ps.map((p) => el("tr", "", el("td", p.name + (p.required ? " *" : "")), el("td", p.in), schemaCell(p.schema), el("td", [p.description, rules(p.schema)].filter(Boolean).join("; ")))), "parameter", "in", "type", ""));
  if (op.requestBody) d.append(table(Object.entries(op.requestBody.content).map(([ct, c]) => el("tr", "", el("td", ct), schemaCell(c.schema))), "body", "schema"));
  d.append(table(Object.entries(op.responses || {}).flatMap(([code, r]) => Object.entries(r.content || { "": {} }).map(([ct, c]) => el("tr", "", el("td", code), el("td", r.description), el("td", ct), schemaCell(c.schema)))), "status", "", "content", "schema"));
  d.dataset.find = (method + " " + path + " " + (op.summary || "")).toLowerCase();
  return d;
};
const schema = (name, s) => {
  const d = el("details");
  d.id = "schema-" + name;
  d.append(el("summary", name));
  const required = s.required || [];
  d.append(table(Object.entries(s.properties || {}).map(([k, p]) => el("tr", "", el("td", k + (required.includes(k) ? " *" : "")), schemaCell(p), el("td", [p.description, rules(p)].filter(Boolean).join("; ")))), "field", "type", ""));
  return d;
};
const open = () => {
  const d = location.hash.startsWith("#schema-") && document.getElementById(location.hash.slice(1));
  if (d) { d.open = true; d.scrollIntoView(); }
};
fetch("/openapi.json").then((r) => r.json()).then((doc) => {
  document.getElementById("about").textContent = doc.info.title + " " + doc.info.version + ". " + (doc.info.description || "");
  const main = document.getElementById("routes");
  const groups = new Map();
  for (const [path, item] of Object.entries(doc.paths)) {
    for (const [method, op] of Object.entries(item)) {
      const tag = (op.tags || ["other"])[0];
      if (!groups.has(tag)) { const s = el("section", "", el("h2", tag)); groups.set(tag, s); main.append(s); }
      groups.get(tag).append(route(path, method, op));
    }
  }
  const schemas = document.getElementById("schemas");
  for (const [name, s] of Object.entries(doc.components.schemas)) schemas.append(schema(name, s));
  document.getElementById("find").addEventListener("input", (e) => {
    const want = e.target.value.toLowerCase();
    for (const d of main.querySelectorAll("details")) d.classList.toggle("hidden", !d.dataset.find.includes(want));
  });
  window.addEventListener("hashchange", open);
  open();
});
