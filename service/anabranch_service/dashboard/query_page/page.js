// The page of one query: polls its state, follows its results, and changes it.

import { ask, read, readEpochs, submit } from "../access.js";
import { act, deleteAfterQuestion } from "../actions.js";
import { noExpiry } from "../activation.js";
import { Changing } from "../changing.js";
import { breakable, bytes, bytesLike, facts, make, percent, say } from "../dom.js";
import { History, interruptions } from "../history.js";
import { rate } from "../map/view.js";
import { poll } from "../poll.js";
import { Tail } from "../query_list/tail.js";
import { clock, length, moment } from "../times.js";
import { replacement } from "../what_if/view.js";
import * as view from "./view.js";

const POLL_MS = 2000;
/** Milliseconds between two requests for the query's plan, which are expensive with many queries. */
const PLAN_MS = 6000;
const ENDED = new Set(["expired", "rejected", "failed"]);

const at = (id) => document.getElementById(id);
const name = decodeURIComponent(location.pathname.split("/").pop());
const path = `/v1/queries/${encodeURIComponent(name)}`;
const tail = new Tail(at("tail"), at("tail-note"));

/** Histories of the present run in the last hours: results and freshness. */
let hours = null;

function historyOf(run) {
  const path = `/v1/history?query=${encodeURIComponent(run)}`;
  const fresh = new History(at("freshness"), at("freshness-note"), {
    path,
    value: ({ freshness_p99: found }) => found,
    also: ({ freshness_p50: found }) => found,
    write: length,
    what: "Freshness",
    shown: (found) => at("interruptions").replaceChildren(...view.interrupted(interruptions(found)).map((text) => make("li", { text }))),
  });
  const what = `${view.counted(query) === "results" ? "Results" : "Joined rows"} per second`;
  at("hours-title").textContent = `${what}, last hours`;
  const results = new History(at("hours"), at("hours-note"), {
    path,
    value: ({ rate: found }) => found,
    write: (found) => rate(found),
    what,
  });
  return { run, charts: [fresh, results] };
}

let query = null;
let tag = null;
let plan = null;
let plannedAt = 0;
/** The run that waits for the query's place, and the most stored rows that it has had to process; null: none. */
let successor = null;
let most = 0;
/** Epoch -> time of its publication. */
const published = new Map();

/** Time of an epoch's publication, from the list of epochs, whose entries are short. */
async function publication(epoch) {
  if (epoch === null || epoch === undefined) return null;
  if (!published.has(epoch)) {
    const found = await readEpochs(1, `&cursor=${epoch + 1}`);
    if (found?.items[0]?.epoch === epoch) published.set(epoch, found.items[0].published_at);
  }
  return published.get(epoch) ?? null;
}

/** The beginning of the query's present status, as an element. */
async function since({ status, first_epoch: first, last_epoch: last, created_at: created, failure }) {
  if (failure) return `batch ${failure.batch}`;
  if (status === "pending" || status === "rejected") return moment(created);
  if (status === "expired" || status === "expiring") return last === null ? "–" : `epoch ${last + 1}`;
  return moment((await publication(first)) ?? created);
}

async function showQuery() {
  document.title = `${query.id} · anabranch`;
  at("name").replaceChildren(...breakable(query.id));
  at("status").textContent = query.status;
  at("status").className = `badge ${query.status}`;
  at("in-map").href = `/dashboard/plan#query=${encodeURIComponent(query.run)}`;
  showLabels();
  const ending = ENDED.has(query.status) || query.status === "expiring";
  at("change").querySelector("button").disabled = ENDED.has(query.status);
  at("delete").hidden = ending;
  at("pause").hidden = ending;
  at("pause").textContent = query.status === "paused" ? "Resume" : "Pause";
  at("replace").hidden = ending || query.status === "paused" || query.sql === null;
  at("replace").href = `/dashboard/what-if?replace=${encodeURIComponent(query.id)}`;
  const problems = view.problems(query);
  at("problems").hidden = !problems.length;
  at("problems").replaceChildren(...problems.map((text) => make("li", { text })));
  facts(at("figures"), [
    [`${query.status} since`, await since(query)],
    ...(query.waits_because === null ? [] : [["waits", make("a", { href: "/dashboard/epochs#held", text: query.waits_because })]]),
    ["results", query.results.toLocaleString("en")],
    ["results per second", view.results(plan, query)],
    ...(query.joined_rows === null ? [] : [["joined rows", query.joined_rows.toLocaleString("en")]]),
    ["its share of CPU time", view.cpu(plan)],
    ["its share of the state", plan ? view.part(plan.state_bytes, plan.state_of_plan, (n) => bytes(Math.round(n))) : "–"],
    ...view.table(plan),
    ["arrival to commit", view.latency(plan)],
    ["complete", view.completeness(query)],
    ...(view.past(query) ? [["results of the past", view.past(query)]] : []),
    ["expires", query.expires_at ? moment(query.expires_at) : noExpiry(query)],
    ["objectives", Object.entries(query.slo).filter(([, value]) => value !== null && Object.keys(Object(value)).length !== 0).map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ") || "none"],
    ["priority", query.priority],
  ]);
  at("sql").textContent = query.sql ?? JSON.stringify(query.query, null, 2);
  facts(at("meaning"), view.meaning(query));
  at("notes").replaceChildren(...query.normalised.notes.map((text) => make("li", { text })));
  showSink();
  showActivations();
}

/** Title, owner and tags; owner and tags link to the other queries with them. */
function showLabels() {
  const links = [...(query.owner ? [["owner", query.owner]] : []), ...query.tags.map((one) => ["tag", one])];
  at("labels").hidden = !links.length && !query.title;
  at("labels").replaceChildren(
    ...(query.title ? [`${query.title} `] : []),
    ...links.map(([kind, text]) => make("a", { className: `label ${kind}`, href: `/dashboard/queries?${kind}=${encodeURIComponent(text)}#queries-title`, title: `Queries of this ${kind}` }, ...breakable(text))),
  );
}

function showSink() {
  const { format, options, commit_interval: interval } = query.sink;
  facts(at("sink"), [
    ["format", format],
    ["place", make("span", {}, ...breakable(query.results_at ?? "none: results are only counted"))],
    ...Object.entries(options).map(([key, value]) => [key, value]),
    ...(interval ? [["commit interval", interval]] : []),
    ["holds", `${query.results.toLocaleString("en")} ${query.normalised.view ? "rows" : "results"}`],
    [
      "state",
      query.sink_problem
        ? make("span", { className: "bad", text: `results wait: ${query.sink_problem}` })
        : ENDED.has(query.status)
          ? "nothing more is written"
          : "accepts results; none wait for it",
    ],
  ]);
}

/** The query's runs, if it has several. */
async function showRuns() {
  at("runs-part").hidden = query.run === query.id && !query.replacement;
  if (at("runs-part").hidden) return;
  const { items } = await read(`${path}/runs`);
  at("runs").replaceChildren(...items.map((run) => make("li", {}, ...breakable(view.run(run)))));
}

/** The run that waits for the query's place, and what it lacks. */
async function showSuccessor() {
  const found = query.replacement;
  at("replacement").hidden = !found;
  if (successor?.run !== found?.run) most = 0;
  successor = found && (await read(`/v1/queries/${encodeURIComponent(found.run)}`));
  if (!successor) return;
  at("new-run").replaceChildren(...breakable(found.run));
  at("new-status").textContent = found.status;
  at("new-status").className = `badge ${found.status}`;
  at("catching-up").textContent = found.waits_because === null ? "The new run takes the place of the present one with the next epoch." : `The present run goes on: ${found.waits_because}.`;
  at("never").hidden = !found.remedy;
  at("never").textContent = found.remedy;
  at("switch").hidden = found.sql === null || found.waits_because === null;
  const left = successor.past_results?.rows ?? null;
  most = Math.max(most, left ?? 0);
  at("caught-up").hidden = left === null || found.waits_because === null;
  Object.assign(at("caught-up"), { max: most || 1, value: most - (left ?? 0) });
  facts(at("new-figures"), [
    ["results", successor.results.toLocaleString("en")],
    ...(successor.past_results ? [["results of the past", view.past(successor), "long"]] : []),
    ...(successor.complete_from ? [["complete from", `${clock(successor.complete_from)} UTC`]] : []),
  ]);
  at("new-sql").textContent = found.sql ?? JSON.stringify(successor.query, null, 2);
}

/** End the wait: the new run takes the place with the next epoch. */
function switchNow() {
  const { sql, window, past } = successor;
  return submit(path, "PUT", replacement(successor, { sql, dialect: "spark", window, past, cutover: "at-once" }), { "if-match": tag });
}

function showActivations() {
  const found = view.activations(query);
  const none = make("td", { className: "empty", text: "The query has not been active yet." });
  none.colSpan = 4;
  at("activations").tBodies[0].replaceChildren(
    ...(found.length
      ? found.map((one) =>
          make(
            "tr",
            {},
            make("td", { "data-label": "Batches", text: one.batches }),
            make("td", { "data-label": "Complete", text: one.complete }),
            make("td", { "data-label": "Sees stored tuples from" }, ...one.visible.map((text) => make("div", { text }))),
            make("td", { className: "number", "data-label": "Results", text: one.results }),
          ),
        )
      : [make("tr", {}, none)]),
  );
}

function hop(className, title, detail, ...lines) {
  return make(
    "span",
    { className: `hop ${className}` },
    make("strong", {}, ...breakable(title)),
    ...(detail ? [make("span", { className: "muted", text: detail })] : []),
    ...lines.filter(Boolean).map((text) => make("span", { className: "muted" }, ...breakable(text))),
  );
}

/** A relation's name, with the query's aliases of it if they differ from the name. */
function named(label, aliases) {
  const own = aliases.filter((alias) => alias && !label.split(" ⋈ ").includes(alias));
  return own.length ? `${label} (${own.join(", ")})` : label;
}

function pathOf(one) {
  const measured = (tuples) => (plan.measured ? rate(tuples) : "");
  const steps = one.steps.map((step) => {
    const others = step.shared.length;
    const shared = others ? `shared with ${others === 1 ? step.shared[0] : `${others} others`}` : "";
    const asks = step.asks?.length ? `only tuples with a match in ${step.asks.join(", ")}` : "";
    const detail = [step.detail === "all tuples" ? "" : step.detail, asks].filter(Boolean).join("; ");
    const made = hop(step.kept ? "kept" : "", named(step.label, step.aliases), detail, measured(step.tuples_per_second), shared);
    if (others) made.title = step.shared.join(", ");
    return make("li", { className: others ? "shared" : "" }, make("span", { className: "arrow", "aria-hidden": "true", text: "→" }), make("span", { className: "unseen", text: "probes " }), made);
  });
  const whose = view.whose(plan, one);
  const goal = one.keeps ? `keeps ${one.keeps}` : one.left ? "left rows" : "results";
  return make(
    "li",
    {},
    make(
      "ol",
      {},
      make("li", {}, hop("start", named(one.label, [one.alias]), one.detail === "all tuples" ? "" : one.detail, whose, whose ? "" : measured(one.tuples_per_second))),
      ...steps,
      make("li", {}, make("span", { className: "arrow", "aria-hidden": "true", text: "→" }), hop("goal", goal, "")),
    ),
  );
}

function showPlan() {
  at("plan-note").hidden = Boolean(plan);
  at("plan-note").textContent = ENDED.has(query.status)
    ? "The query has ended: no plan includes it."
    : query.status === "paused"
      ? "The query is paused: no plan includes it until it is resumed."
      : "Not in the running plan yet: it becomes active with the next epoch.";
  const reasons = view.silence(plan, query);
  at("no-results").hidden = !reasons.length;
  at("no-results").replaceChildren(...reasons.map((text) => make("li", {}, ...breakable(text))));
  at("paths-note").textContent = plan ? `epoch ${plan.epoch}${plan.revision ? `, revision ${plan.revision}` : ""}: probes of the tuple that arrives last${plan.measured ? "" : "; nothing is measured yet"}` : "";
  at("paths-card").hidden = !plan;
  at("paths").replaceChildren(...(plan?.paths ?? []).map(pathOf));
  const divided = view.divided(plan);
  at("divided").hidden = !divided.length;
  at("divided").querySelector("tbody").replaceChildren(
    ...divided.map((row) =>
      make(
        "tr",
        {},
        make("td", { className: "name" }, ...breakable(row.alias)),
        make("td", { "data-label": "Tuples" }, ...breakable(row.tuples)),
        make("td", { className: "number", "data-label": "Expected share", text: percent(row.share) }),
        make("td", { className: "number", "data-label": "Cost saved by separate probe paths", text: row.saved }),
      ),
    ),
  );
  const stores = plan?.stores ?? [];
  at("stores-note").textContent = stores.length ? "shared stores are split equally among their queries" : "";
  const size = bytesLike(stores.map((store) => store.bytes));
  const none = make("td", { className: "empty", text: "Nothing reported yet." });
  none.colSpan = 5;
  at("stores").tBodies[0].replaceChildren(
    ...(stores.length
      ? stores.map((store) =>
          make(
            "tr",
            {},
            make("td", { className: "name" }, make("a", { href: `/dashboard/state#store=${encodeURIComponent(store.store)}`, text: store.label }), ...(store.detail === "all tuples" ? [] : [make("div", { className: "muted", text: store.detail })])),
            make("td", { className: "number", "data-label": "Rows", text: store.rows.toLocaleString("en") }),
            make("td", { className: "number", "data-label": "Bytes", text: size(store.bytes) }),
            make("td", { className: "number", "data-label": "Queries that need it", text: store.queries }),
            make("td", { className: "number", "data-label": "This query's share", text: percent(1 / store.queries) }),
          ),
        )
      : [make("tr", {}, none)]),
  );
}

/** Write the query's values into the form. */
function write({ expires_at: expires, priority, slo, title, owner, tags }) {
  at("ttl").value = "";
  at("forever").checked = expires === null;
  at("priority").value = priority;
  at("slo-latency").value = slo.latency ?? "";
  at("slo-completeness").value = slo.completeness ?? "";
  at("title").value = title ?? "";
  at("owner").value = owner ?? "";
  at("tags").value = tags.join(", ");
}

/** The values of the form's fields. */
function given() {
  const texts = { ttl: "ttl", priority: "priority", latency: "slo-latency", completeness: "slo-completeness", title: "title", owner: "owner", tags: "tags" };
  const found = Object.fromEntries(Object.entries(texts).map(([field, id]) => [field, at(id).value.trim()]));
  return { ...found, forever: at("forever").checked };
}

const changing = new Changing({ path, write, changes: (shown) => view.changes(shown, given()), refresh });

async function refresh() {
  try {
    const response = await ask(path);
    at("missing").hidden = response.status !== 404;
    if (response.status === 404) {
      at("found").hidden = true;
      say(null);
      return;
    }
    if (!response.ok) throw new Error(`${path} answered ${response.status}`);
    [query, tag] = [await response.json(), response.headers.get("etag")];
    changing.offer(query, tag);
    at("found").hidden = false;
    if (performance.now() - plannedAt > PLAN_MS || !plannedAt) {
      plan = await read(`${path}/plan`);
      plannedAt = performance.now();
      showPlan();
      await showRuns();
    }
    await showQuery();
    await showSuccessor();
    if (hours?.run !== query.run) hours = historyOf(query.run);
    for (const chart of hours.charts) await chart.refresh();
    if (query.sink.format === "count") at("tail-note").textContent = "The sink count keeps no rows.";
    else tail.follow(query.run === query.id ? `${query.run}~1` : query.run, Boolean(query.normalised.view));
    say(null);
  } catch (error) {
    say(error);
  }
}

at("switch").addEventListener("click", () => act(at("replacement-refusal"), switchNow, refresh));
at("withdraw").addEventListener("click", () => act(at("replacement-refusal"), () => submit(`/v1/queries/${encodeURIComponent(successor.run)}`, "DELETE"), refresh));
deleteAfterQuestion(() => submit(path, "DELETE"), refresh);
at("pause").addEventListener("click", () => act(at("delete-refusal"), () => submit(`${path}:${query.status === "paused" ? "resume" : "pause"}`, "POST", undefined, { "if-match": tag }), refresh));

poll(refresh, POLL_MS);
