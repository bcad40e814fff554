// What-if page: explains a statement, estimates its cost beside all queries, and registers it.

import { ask, Problem, read, readQueries, submit } from "../access.js";
import { breakable, facts, make, percent, refuse, say, showRows } from "../dom.js";
import { drawTree, forest, short } from "../graph.js";
import { Names, readableOrders, relationNames } from "../names.js";
import { drawPlan } from "../plan-tree.js";
import { unit } from "../plan/cost.js";
import { Completion } from "./completion.js";
import { Editor } from "./editor.js";
import { effects, figures, MOST, replacement, sampled } from "./view.js";

/** Most rows that a statement over tables of queries shows. */
const ROWS = 100;
/** Temporary id of the query in dry runs; no registered query has it. */
const DRAFT = `draft-${Math.random().toString(36).slice(2, 10)}`;

const at = (id) => document.getElementById(id);
const editor = new Editor(at("statement"), at("gutter"));
/** Words that the statement can use. */
const known = { streams: [], functions: [] };
/** Most queries listed to be left out; more are found by name. */
const MOST_TICKS = 30;
/** Queries that a dry run can leave out, and the names of those that it does. */
let droppable = [];
const dropped = new Set();
/** Names of relations in plans. */
let relations = new Map();
/** The last explained statement, which Register sends. */
let understood = null;
/** The query whose statement will be replaced, and its version; null: register a new query. */
const replaced = new URLSearchParams(location.search).get("replace");
let before = null;
let version = null;

/** The statement in the form. */
function statement() {
  const body = { sql: editor.text, dialect: at("dialect").value.trim() || "spark" };
  const limit = at("window").value.trim();
  return limit ? { ...body, window: limit } : body;
}

/** The form's assumptions about other queries and streams, as fields of a dry run. */
function assumed() {
  const drop = before ? [...new Set([...dropped, before.id])] : [...dropped];
  const rates = [...at("rates").querySelectorAll("input")].filter((field) => field.value).map((field) => [field.name, Number(field.value)]);
  return { drop, statistics: Object.fromEntries(rates) };
}

/** `left`: queries that the dry run leaves out. */
function showAnswer(explained, planned, base, left) {
  const { refused, multijoins } = explained;
  const names = new Map([...relations, ...relationNames(explained.normalised ? [explained.normalised] : [])]);
  at("answer").hidden = false;
  at("runs-note").textContent = refused ? "does not run continuously" : `could run with the registered queries; costs in ${unit(planned.objective)}`;
  at("why-not").hidden = !refused;
  at("why-not").textContent = refused ? `${refused.message} (${refused.remedy})` : "";
  for (const part of ["others-card", "orders-card"]) at(part).hidden = Boolean(refused);
  at("register").hidden = Boolean(refused);
  at("registered").hidden = true;
  refuse(at("register-refusal"), null, at("register"));
  facts(at("cost"), refused ? [] : figures(explained, planned, base, names).map(([name, text, kind]) => [name, make("span", {}, ...breakable(text)), kind]));
  at("meant").replaceChildren(...(explained.normalised?.notes ?? []).map((note) => make("li", { text: note })));
  const own = { queries: [{ id: "this", orders: readableOrders(explained.orders, names) }], maintenance: [] };
  at("orders").replaceChildren(...(refused ? [] : forest(own).map((tree) => drawTree(tree, () => "var(--accent)"))));
  if (!refused) showEffects(base, planned, left);
  const count = multijoins.length;
  at("after-note").textContent = count
    ? `${count} multi-way ${count === 1 ? "join" : "joins"}, of ${multijoins.map((j) => j.inputs.length).join(", ")} inputs`
    : "no three inputs are joined directly";
  at("replaced").replaceChildren(...multijoins.flatMap((j) => j.replaces).map((text) => make("li", { text })));
  for (const side of ["after", "before"]) {
    at(side).replaceChildren(drawPlan(explained[side]));
  }
}

function showEffects(base, planned, left) {
  const { rows: found, known, changed, all } = effects(base, planned, DRAFT, left);
  at("others-note").textContent = known
    ? `costs in ${unit(planned.objective)}; ${changed} of ${all ? "" : "the costliest "}${known} change${planned.effects ? "" : "; without load shedding, so all results are kept"}${found.length > MOST ? `; the ${MOST} with the greatest change are shown` : ""}`
    : "";
  const none = make("td", { className: "empty", text: known ? "No share changes by 0.1 % or more." : "There is no other query." });
  none.colSpan = 5;
  const signed = (number) => `${number > 0 ? "+" : "−"}${short(Math.abs(number))}`;
  at("others").tBodies[0].replaceChildren(
    ...(found.length
      ? found.slice(0, MOST).map(({ query, was, is, change, changed: changes, kept }) =>
          make(
            "tr",
            {},
            make("td", { className: "name" }, make("a", { href: `/dashboard/query/${encodeURIComponent(query)}` }, ...breakable(query))),
            make("td", { className: "number", "data-label": "Share of the cost", text: short(was) }),
            make("td", { className: "number", "data-label": "With the statement", text: is === null ? "left out" : short(is) }),
            make("td", { className: "number", "data-label": "Change", text: changes ? signed(change) : "none" }),
            make("td", {
              className: kept?.floor_broken ? "number bad" : "number",
              "data-label": "Results kept",
              text: kept ? `${percent(kept.before)} → ${percent(kept.after)}${kept.floor_broken ? ", below its floor" : ""}` : planned.effects ? "–" : "all",
            }),
          ),
        )
      : [make("tr", {}, none)]),
  );
}

/** Show an error of the statement at its position. */
function complain(problem) {
  refuse(at("refusal"), new Problem(problem), at("form"));
  const [place, ...others] = problem.errors ?? [problem];
  if (place.line || !place.field || place.field === "sql" || place.field.endsWith(".sql")) editor.pointAt(place, ...others);
}

/** Run `work` on the statement, and show how long it took or its refusal. */
async function timed(saying, work) {
  const started = performance.now();
  at("working").textContent = saying;
  for (const id of ["explain", "preview", "now"]) at(id).disabled = true;
  refuse(at("refusal"), null, at("form"));
  at("now-card").hidden = true;
  try {
    await work();
    at("working").textContent = `in ${Math.round(performance.now() - started)} ms`;
    say(null);
  } catch (error) {
    for (const id of ["answer", "now-card"]) at(id).hidden = true;
    at("working").textContent = "";
    say(error instanceof Problem ? null : error);
    if (error instanceof Problem) complain(error.problem);
  } finally {
    for (const id of ["explain", "preview", "now"]) at(id).disabled = false;
  }
}

/** Read the statement once, over the present rows of queries. */
async function readNow() {
  const { batch, columns, rows, truncated } = await submit("/v1/queries:sql", "POST", { sql: editor.text, limit: ROWS });
  showTable(`as of batch ${batch}, by DuckDB${truncated ? `; the first ${ROWS}` : ""}${rows.length ? "" : "; none"}`, columns, rows);
}

/** Read the statement once, over some of the latest rows of its streams. */
async function preview() {
  const { sql, dialect } = statement();
  const { columns, rows, truncated, samples } = await submit("/v1/queries:preview", "POST", { sql, dialect, limit: ROWS });
  const none = samples.length > 1 ? "; none: partners may be among rows that were not read" : "; none";
  showTable(`${sampled(samples)}, by DuckDB${truncated ? `; the first ${ROWS}` : ""}${rows.length ? "" : none}`, columns, rows);
}

function showTable(note, columns, rows) {
  at("now-card").hidden = false;
  at("now-note").textContent = note;
  showRows(at("now-rows"), columns, rows);
  at("now-title").focus();
}

async function explain() {
  const body = statement();
  const others = assumed();
  const explained = await submit("/v1/queries:explain", "POST", { ...body, detail: "summary" });
  let planned = null;
  let base = null;
  if (!explained.refused) {
    const run = (more) => submit("/v1/plans:dry-run", "POST", { ...others, ...more, detail: "summary" });
    [base, planned] = await Promise.all([run({ drop: [] }), run({ add: [{ ...body, id: DRAFT }] })]);
  }
  understood = explained.refused ? null : body;
  showAnswer(explained, planned, base, others.drop);
  if (explained.refused) editor.pointAt(explained.refused);
}

function add() {
  const [id, ttl] = [at("id").value.trim(), at("ttl").value.trim()];
  return submit("/v1/queries", "POST", { ...understood, ...(id ? { id } : {}), ...(ttl ? { ttl } : {}) });
}

/** Replace the query's statement, unless the query has been changed meanwhile. */
async function replace() {
  const body = replacement(before, { ...understood, past: at("past").value, cutover: at("cutover").value });
  const change = await submit(`/v1/queries/${encodeURIComponent(before.id)}`, "PUT", body, { "if-match": version });
  return change.query;
}

/** Load the statement of the query to be replaced. */
async function beginReplacing() {
  const response = await ask(`/v1/queries/${encodeURIComponent(replaced)}`);
  if (!response.ok) throw new Error(`there is no query ${replaced} to replace`);
  [before, version] = [await response.json(), response.headers.get("etag")];
  editor.text = before.sql ?? "";
  at("window").value = typeof before.window === "string" ? before.window : "";
  at("replacing").hidden = false;
  at("replacing").replaceChildren(
    "This is the statement of ",
    make("a", { href: `/dashboard/query/${encodeURIComponent(before.id)}` }, ...breakable(before.id)),
    ". The cost of the replacement is computed without it; the query itself runs unchanged until its new run takes over.",
    ...(before.replacement ? [` Replacing the query again withdraws the run ${before.replacement.run}, which waits to take over.`] : []),
  );
  for (const field of ["id", "ttl"]) at(field).closest("label").hidden = true;
  for (const field of ["past", "cutover"]) at(field).closest("label").hidden = false;
  at("past").value = before.past;
  at("register-button").textContent = "Replace";
}

async function register() {
  try {
    const query = before ? await replace() : await add();
    refuse(at("register-refusal"), null, at("register"));
    const link = make("a", { href: `/dashboard/query/${encodeURIComponent(query.id)}` }, ...breakable(query.id));
    at("register").hidden = true;
    at("registered").hidden = false;
    const waits = before?.status === "active" && at("cutover").value === "when-complete";
    const when = waits ? "Its new run begins with the next epoch, and takes over once it has caught up: " : `${before ? "Replaced" : "Registered"}; it becomes active with the next epoch: `;
    at("registered").replaceChildren(when, link);
    link.focus();
  } catch (error) {
    if (!(error instanceof Problem)) say(error);
    refuse(at("register-refusal"), error, at("register"));
  }
}

function showSchema(streams) {
  at("schema").replaceChildren(
    ...(streams.length
      ? streams.map((stream) => {
          const { state, error } = stream.source_status;
          const pick = (name, text) => {
            const button = make("button", { type: "button", className: "pick" }, ...breakable(text));
            button.addEventListener("click", () => editor.insert(name));
            return button;
          };
          const kind = (column) => `${column.type}${column.name === stream.event_time ? ", event time" : ""}`;
          return make(
            "details",
            { open: streams.length <= 12 },
            make("summary", {}, make("strong", {}, ...breakable(stream.name)), ...(state === "failed" ? [" ", make("span", { className: "badge failed", text: "not read", title: error ?? "" })] : [])),
            make(
              "dl",
              {},
              make("div", {}, make("dt", {}, pick(stream.name, stream.name)), make("dd", { className: "muted", text: "the stream" })),
              ...stream.columns.map((column) => make("div", {}, make("dt", {}, pick(column.name, column.name)), make("dd", { className: "muted", text: kind(column) }))),
            ),
          );
        })
      : [make("p", { className: "empty", text: "No streams yet: POST one to /v1/streams." })]),
  );
  at("rates").replaceChildren(
    ...streams.map((stream) => make("label", {}, make("span", {}, ...breakable(stream.name)), make("input", { type: "number", min: "1", name: stream.name, placeholder: "as measured" }))),
  );
}

/** Request the queries that a dry run can leave out, when somebody opens their list. */
async function openOthers() {
  if (!at("assume").open) return;
  droppable = await readQueries("&status=active&status=pending");
  at("drop-find").hidden = droppable.length <= MOST_TICKS;
  showOthers();
}

/** The ticked queries, and the first others that are sought. */
function showOthers() {
  const sought = at("drop-find").value.trim().toLowerCase();
  const found = droppable.map(({ id }) => id).filter((id) => !dropped.has(id) && id.toLowerCase().includes(sought));
  const tick = (id) => {
    const box = make("input", { type: "checkbox", value: id, checked: dropped.has(id) });
    box.addEventListener("change", () => (box.checked ? dropped.add(id) : dropped.delete(id)));
    return make("label", { className: "tick" }, box, make("span", {}, ...breakable(id)));
  };
  const more = found.length - MOST_TICKS;
  const note = !droppable.length ? "No query is registered." : more > 0 ? `and ${more.toLocaleString("en")} more` : found.length ? "" : "No other query matches.";
  at("drop").replaceChildren(...[...dropped, ...found.slice(0, MOST_TICKS)].map(tick), ...(note ? [make("span", { className: "muted", text: note })] : []));
}

async function begin() {
  try {
    const [streams, functions] = await Promise.all([read("/v1/streams"), read("/v1/functions")]);
    known.streams = streams.items;
    known.functions = [...functions.items.map(({ name }) => name), ...functions.builtin];
    showSchema(streams.items);
    ({ relations } = new Names(await read("/v1/plan/names")));
    if (replaced) await beginReplacing();
    say(null);
  } catch (error) {
    say(error);
  }
}

new Completion(at("statement"), known);
at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  timed("planning …", explain);
});
at("preview").addEventListener("click", () => timed("reading …", preview));
at("now").addEventListener("click", () => timed("reading …", readNow));
at("register").addEventListener("submit", (event) => {
  event.preventDefault();
  register();
});
at("statement").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    at("form").requestSubmit();
  }
});
at("assume").addEventListener("toggle", () => openOthers().catch(say));
at("drop-find").addEventListener("input", showOthers);
begin();
