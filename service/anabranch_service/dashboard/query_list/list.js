// The list of queries on the first page: searched, and drawn anew only where a query has changed.

import { breakable, make } from "../dom.js";
import { choices, fits, searchOf, wanted } from "./view.js";

/** Rows that are shown; more make every look at the page slow, and are found by the search. */
const MOST = 100;
const COLUMNS = 8;

const at = (id) => document.getElementById(id);

function when(text) {
  return text ? text.replace("T", " ").replace(/(\.\d+)?Z$/, "") : "";
}

function badges(query) {
  const found = [make("span", { className: `badge ${query.status}`, text: query.status })];
  if (Object.keys(query.input_problems ?? {}).length) {
    found.push(" ", make("span", { className: "badge failed", text: "input not read" }));
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
  /** `dot` makes the mark of a query's colour. */
  constructor(dot) {
    this.dot = dot;
    this.queries = [];
    this.shown = new Map();
    const { text, owner, tag } = wanted(location.search);
    at("find").value = text;
    this.chosen = { owner, tag };
    at("find").addEventListener("input", () => this.search());
    for (const [id, name] of [["find-owner", "owner"], ["find-tag", "tag"]]) {
      at(id).addEventListener("change", ({ target }) => this.choose({ [name]: target.value }));
    }
  }

  /** Look for an owner, or a tag. */
  choose(what) {
    Object.assign(this.chosen, what);
    this.search();
  }

  search() {
    const query = searchOf(this.filter());
    history.replaceState(null, "", `${location.pathname}${query}${location.hash}`);
    this.show(this.queries);
  }

  filter() {
    return { text: at("find").value, ...this.chosen };
  }

  show(queries) {
    this.queries = queries;
    this.offer(choices(queries));
    const filter = this.filter();
    const found = queries.filter((query) => fits(query, filter));
    const live = queries.filter((q) => q.status === "active").length;
    const searched = found.length < queries.length ? `; ${found.length.toLocaleString("en")} found` : "";
    const cut = found.length > MOST ? `; the first ${MOST} are shown, search for others` : "";
    at("queries-count").textContent = `${live} active of ${queries.length}${searched}${cut}`;
    const before = this.shown;
    this.shown = new Map();
    const rows = found.slice(0, MOST).map((query) => {
      const key = JSON.stringify(query);
      const known = before.get(query.id);
      const row = known?.key === key ? known.row : this.row(query);
      this.shown.set(query.id, { key, row });
      return row;
    });
    const body = at("queries").tBodies[0];
    if (rows.length && rows.length === body.rows.length && rows.every((row, i) => row === body.rows[i])) return;
    const none = make("td", { className: "empty", text: queries.length ? "No query is called so." : "No queries yet: write one in What if." });
    none.colSpan = COLUMNS;
    body.replaceChildren(...(rows.length ? rows : [make("tr", {}, none)]));
  }

  /** Owners and tags to choose from; lists that stay the same are left alone, they may be open. */
  offer({ owners, tags }) {
    for (const [id, all, chosen, names] of [["find-owner", "anybody", this.chosen.owner, owners], ["find-tag", "any", this.chosen.tag, tags]]) {
      const select = at(id);
      const listed = chosen && !names.includes(chosen) ? [chosen, ...names] : names;
      select.parentElement.hidden = !listed.length;
      const key = JSON.stringify(listed);
      if (select.dataset.names !== key) {
        select.dataset.names = key;
        select.replaceChildren(make("option", { value: "", text: all }), ...listed.map((name) => make("option", { value: name, text: name })));
      }
      select.value = chosen;
    }
  }

  row(q) {
    const complete = { always: "first result", never: "never" }[q.complete] ?? when(q.complete_from);
    const label = (name, text, what) => {
      const button = make("button", { type: "button", className: "label", text, title: `Queries of this ${name}` });
      button.addEventListener("click", () => this.choose(what));
      return button;
    };
    return make(
      "tr",
      {},
      make(
        "td",
        { className: "name" },
        this.dot(q.id),
        make("a", { href: `/dashboard/query/${encodeURIComponent(q.id)}` }, ...breakable(q.id)),
        ...(q.title ? [make("div", { className: "muted titled", text: q.title })] : []),
      ),
      make("td", {}, ...badges(q)),
      make(
        "td",
        { className: "labels" },
        ...(q.owner ? [label("owner", q.owner, { owner: q.owner })] : []),
        ...(q.tags ?? []).map((tag) => label("tag", tag, { tag })),
        ...(q.owner || q.tags?.length ? [] : ["–"]),
      ),
      make("td", { className: "number", text: q.results.toLocaleString("en") }),
      make("td", {
        text:
          q.activated_batch === null
            ? "–"
            : `batch ${q.activated_batch}${q.expired_batch === null ? "" : ` to ${q.expired_batch}`}`,
        title: q.earlier.map((a) => `before: batch ${a.activated_batch} to ${a.expired_batch}`).join("\n"),
      }),
      make("td", { text: complete || "–" }),
      make("td", { text: when(q.expires_at) || "never" }),
      definition(q),
    );
  }
}
