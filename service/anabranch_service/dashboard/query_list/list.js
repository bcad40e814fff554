// The list of queries on the first page: the service searches and pages; only changed rows are redrawn.

import { read } from "../access.js";
import { batches, completeFrom, noExpiry } from "../activation.js";
import { breakable, make, say } from "../dom.js";
import { clock } from "../times.js";
import { ROWS, choices, counted, requestOf, searchOf, wanted } from "./view.js";

const COLUMNS = 8;
/** Drop-down filters, and the label of each without a selection. */
const CHOICES = { stream: "any", owner: "anybody", tag: "any", status: "any" };

const at = (id) => document.getElementById(id);

function badges(query) {
  const found = [make("span", { className: `badge ${query.status}`, text: query.status })];
  if (Object.keys(query.input_problems ?? {}).length) {
    found.push(" ", make("span", { className: "badge failed", text: "input not read" }));
  }
  if (query.complete === "never" && query.missed?.length) {
    found.push(" ", make("span", { className: "badge pending", text: "rows missing" }));
  }
  return found;
}

function definition(query) {
  const cell = make("td", { className: "sql" });
  for (const [stream, why] of Object.entries(query.input_problems ?? {})) {
    cell.append(make("p", { className: "problem", text: `${stream} is not read: ${why}` }));
  }
  if (query.problem) {
    cell.append(make("p", { className: "problem", text: `${query.problem.message}. ${query.problem.remedy}` }));
  }
  if (query.failure) {
    const { batch, message, expression } = query.failure;
    const text = `Failed in batch ${batch}: ${message}${expression ? ` in ${expression}` : ""}.`;
    cell.append(make("p", { className: "problem", text }));
  }
  cell.append(make("code", { text: query.sql ?? JSON.stringify(query.query) }));
  return cell;
}

export class QueryList {
  /** `dot`: creates the coloured mark of a query. */
  constructor(dot) {
    this.dot = dot;
    this.queries = [];
    this.shown = new Map();
    this.page = null;
    /** Cursors of the pages up to the shown one. */
    this.cursors = [null];
    this.asked = 0;
    const { find, ...chosen } = wanted(location.search);
    at("find").value = find;
    this.chosen = chosen;
    at("find").addEventListener("input", () => this.search());
    for (const name of Object.keys(CHOICES)) {
      at(`find-${name}`).addEventListener("change", ({ target }) => this.choose({ [name]: target.value }));
    }
    const leaf = (cursors) => {
      this.turn(cursors);
      // The buttons are below the rows.
      at("queries").tHead.scrollIntoView({ block: "center" });
    };
    at("queries-before").addEventListener("click", () => leaf(this.cursors.slice(0, -1)));
    at("queries-after").addEventListener("click", () => leaf([...this.cursors, this.page.next_cursor]));
  }

  /** Filter by an owner, a tag, a stream or a status. */
  choose(what) {
    Object.assign(this.chosen, what);
    this.search();
  }

  search() {
    history.replaceState(null, "", `${location.pathname}${searchOf(this.sought())}${location.hash}`);
    this.turn([null]);
  }

  turn(cursors) {
    this.cursors = cursors;
    this.refresh().catch(say);
  }

  sought() {
    return { find: at("find").value, ...this.chosen };
  }

  /** Set all queries, which are counted and give the filters' choices. */
  know(queries) {
    this.queries = queries;
    this.offer(choices(queries));
    if (this.page) this.show();
  }

  /** Request the page again; an answer that comes after a later request is dropped. */
  async refresh() {
    const asked = ++this.asked;
    const page = await read(requestOf(this.sought(), this.cursors.at(-1)));
    if (asked !== this.asked) return;
    this.page = page;
    this.show();
  }

  show() {
    const { items, next_cursor: next } = this.page;
    at("queries-count").textContent = counted(this.queries, this.sought(), this.page, ROWS * (this.cursors.length - 1));
    at("queries-pages").hidden = next === null && this.cursors.length === 1;
    at("queries-before").disabled = this.cursors.length === 1;
    at("queries-after").disabled = next === null;
    const before = this.shown;
    this.shown = new Map();
    const rows = items.map((query) => {
      const key = JSON.stringify(query);
      const known = before.get(query.id);
      const row = known?.key === key ? known.row : this.row(query);
      this.shown.set(query.id, { key, row });
      return row;
    });
    const body = at("queries").tBodies[0];
    if (!rows.length) rows.push(this.none());
    if (rows.length === body.rows.length && rows.every((row, i) => row === body.rows[i])) return;
    body.replaceChildren(...rows);
  }

  /** The row of a list without queries, the same at every update: its button may have the focus. */
  none() {
    const cell = (...content) => make("tr", {}, make("td", { className: "empty", colSpan: COLUMNS }, ...content));
    if (!this.queries.length) return (this.first ??= cell("No queries yet: write one in ", make("a", { href: "/dashboard/what-if", text: "What if" }), "."));
    if (!this.unmatched) {
      const clear = make("button", { type: "button", className: "quiet", text: "Clear the search" });
      clear.addEventListener("click", () => {
        at("find").value = "";
        this.choose(Object.fromEntries(Object.keys(CHOICES).map((name) => [name, ""])));
        at("find").focus();
      });
      this.unmatched = cell("No matching query. ", clear);
    }
    return this.unmatched;
  }

  /** Fill the filters' lists of choices, if they have changed: a list may be open. */
  offer(found) {
    for (const [name, all] of Object.entries(CHOICES)) {
      const [select, chosen, names] = [at(`find-${name}`), this.chosen[name], found[name]];
      const listed = chosen && !names.includes(chosen) ? [chosen, ...names] : names;
      select.parentElement.hidden = !listed.length;
      const key = JSON.stringify(listed);
      if (select.dataset.names !== key) {
        select.dataset.names = key;
        select.replaceChildren(make("option", { value: "", text: all }), ...listed.map((one) => make("option", { value: one, text: one })));
      }
      select.value = chosen;
    }
  }

  row(q) {
    const label = (name, text, what) => {
      const button = make("button", { type: "button", className: `label ${name}`, text, title: `${text}: all queries of this ${name}` });
      button.addEventListener("click", () => this.choose(what));
      return button;
    };
    return make(
      "tr",
      {},
      make(
        "td",
        { className: "name" },
        // A block of its own, since the link is not underlined as one within a text.
        make("div", {}, this.dot(q.id), make("a", { href: `/dashboard/query/${encodeURIComponent(q.id)}` }, ...breakable(q.id))),
        ...(q.title ? [make("div", { className: "muted", title: q.title }, make("div", { className: "titled" }, ...breakable(q.title)))] : []),
      ),
      make("td", { "data-label": "Status" }, ...badges(q)),
      make(
        "td",
        { className: "labels", "data-label": "Owner, tags" },
        ...(q.owner ? [label("owner", q.owner, { owner: q.owner })] : []),
        ...(q.tags ?? []).map((tag) => label("tag", tag, { tag })),
        ...(q.owner || q.tags?.length ? [] : ["–"]),
      ),
      make("td", { className: "number", "data-label": "Results", text: q.results.toLocaleString("en") }),
      make("td", {
        className: "whole-line",
        "data-label": "Batches",
        text: batches(q),
        title: q.earlier.map((a) => `before: ${batches(a)}`).join("\n"),
      }),
      make("td", { "data-label": "Complete from", text: completeFrom(q), title: (q.missed ?? []).map((one) => one.message).join("\n") }),
      make("td", { className: "whole-line", "data-label": "Expires", text: q.expires_at ? clock(q.expires_at) : noExpiry(q) }),
      definition(q),
    );
  }
}
