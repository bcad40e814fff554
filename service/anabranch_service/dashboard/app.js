// The dashboard: polls the REST API and shows the answers. Its only state is the selection.

import { read, readQueries } from "./access.js";
import { act } from "./actions.js";
import { bytes, element, facts, make, percent, say, some } from "./dom.js";
import { drawTree, forest, highlight, short } from "./graph.js";
import { PlanMap } from "./map/map.js";
import { course, edges, rates, retentionOf, sent, span, steps, stores, streams } from "./measured.js";
import { stores as stored, totals } from "./state-view.js";
import { Names, registered } from "./names.js";
import { beginSample } from "./sample.js";
import { showFamilies } from "./query_list/families.js";
import { QueryList } from "./query_list/list.js";
import { showCost } from "./cost.js";
import { Tail } from "./tail.js";
import { changes, shares, showRevisions } from "./comments.js";

const POLL_MS = 1000;
/** Milliseconds between two requests for time series, which change every few seconds only. */
const SERIES_MS = 3000;
/** Beyond this number of queries, the time between two requests is a multiple of a request's duration. */
const [FEW, SHARE] = [100, 20];
/** Most hot values that are named. */
const MOST_DEALT = 5;
/** Size of a time series' chart in pixels. */
const COURSE = { width: 180, height: 26 };
const PALETTE = [
  [202, 78], [158, 64], [336, 66], [28, 84], [266, 58], [92, 55], [358, 66], [182, 70], [48, 80], [300, 48],
];

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const selected = { epoch: null, query: asked() };
const cache = new Map();
const known = { queries: [], until: 0 };
let drawn = "";
let order = [];
/** Names of the queries with a view. */
let views = new Set();

const at = (id) => document.getElementById(id);
const map = new PlanMap((name) => {
  location.hash = name === null ? "" : `query=${encodeURIComponent(name)}`;
});
const list = new QueryList(dot);
showFamilies();
const tail = new Tail(at("tail"), at("tail-note"));
at("tail-query").addEventListener("change", ({ target }) => tail.follow(target.value || null, views.has(target.value)));

at("sample").addEventListener("click", async ({ target }) => {
  target.disabled = true;
  await act(at("sample-refusal"), beginSample, refresh);
  target.disabled = false;
});

/** The query named in the page's address. */
function asked() {
  const name = new URLSearchParams(location.hash.slice(1)).get("query");
  return name || null;
}

/** A colour per query, stable for as long as the page is open. */
function colour(name) {
  let index = order.indexOf(name);
  if (index < 0) index = order.push(name) - 1;
  const [hue, saturation] = PALETTE[index % PALETTE.length];
  return `hsl(${hue} ${saturation}% ${dark.matches ? 64 : 40}%)`;
}

function dot(name) {
  const made = make("span", { className: "dot", "aria-hidden": "true" });
  made.style.background = colour(name);
  return made;
}

function when(text) {
  return text ? text.replace("T", " ").replace(/(\.\d+)?Z$/, "") : "";
}

async function readEpoch(number) {
  if (!cache.has(number)) cache.set(number, await read(`/v1/epochs/${number}`));
  return cache.get(number);
}

/** The runtime's state as text; without a heartbeat the reported state is outdated. */
function runtimeState(runtime) {
  const ended = ["stopped", "failed"].includes(runtime.state);
  const state = runtime.stale && !ended ? `no heartbeat (it was ${runtime.state})` : runtime.state;
  return runtime.standby ? `${state}, with a standby` : state;
}

/** Header text: number of streams that can't be read. The list below it has the reasons. */
function notRead(errors) {
  const count = Object.keys(errors).length;
  if (!count) return [];
  return [["sources", make("span", { className: "bad", text: `${count} not read` })]];
}

/** List the streams whose sources can't be read, with the reasons. */
function showUnread(streamsOf) {
  const failed = streamsOf.filter((s) => s.source_status.state === "failed");
  at("unread").hidden = failed.length === 0;
  at("unread").replaceChildren(
    ...failed.map((s) =>
      make(
        "li",
        {},
        make("strong", {}, make("a", { href: `/dashboard/stream/${encodeURIComponent(s.name)}`, text: s.name }), " is not read"),
        ` since ${when(s.source_status.since)}: ${s.source_status.error ?? "no reason is known"}`,
      ),
    ),
  );
}

/** State of a stream's source for its table row: red if unreadable; since when, if no tuple has arrived. */
function sourceOf(stream) {
  const { state, error, since } = stream.source_status;
  const none = state === "reading" && !stream.input_tuples ? `, 0 tuples since ${when(since)}` : "";
  const badge = make("span", { className: `badge ${state.replace(" ", "-")}`, text: state, title: error ?? "" });
  return make("td", {}, badge, none);
}

function showRuntime(current, names) {
  const runtime = current?.runtime;
  if (!runtime) {
    facts(at("facts"), [["runtime", "not started"]]);
    return;
  }
  const rate = runtime.batch_seconds > 0 ? `${runtime.batch_seconds.toFixed(2)} s` : "–";
  facts(at("facts"), [
    ["runtime", runtimeState(runtime)],
    ["batches", runtime.committed.toLocaleString("en")],
    ["last batch", rate],
    ["input tuples", runtime.input_tuples.toLocaleString("en")],
    ["late", runtime.late_tuples.toLocaleString("en")],
    ...(runtime.ahead_tuples ? [["ahead", runtime.ahead_tuples.toLocaleString("en")]] : []),
    ["state", bytes(runtime.state_bytes)],
    [
      "private memory",
      runtime.memory_limit
        ? `${bytes(runtime.private_bytes)} of ${bytes(runtime.memory_limit)}`
        : bytes(runtime.private_bytes),
    ],
    ...(runtime.row_limit
      ? [
          ["waiting", runtime.waiting_tuples.toLocaleString("en")],
          ["most per batch", runtime.row_limit.toLocaleString("en")],
        ]
      : []),
    ...Object.entries(runtime.unread_pieces ?? {}).map(([stream, pieces]) => [
      `unread of ${stream}`,
      pieces.toLocaleString("en"),
    ]),
    ...notRead(runtime.source_errors ?? {}),
    ...Object.entries(runtime.backfill ?? {}).map(([store, done]) => [
      `backfill of ${names.text(store)}`,
      `${(done * 100).toFixed(0)} %`,
    ]),
  ]);
}

/** Hot values, whose new rows are spread over several hosts. */
function dealt(hot) {
  if (!hot) return [];
  const named = hot.values.slice(0, MOST_DEALT).map(({ attribute, value }) => `${attribute} = ${value || "?"}`);
  const more = hot.values.length - named.length;
  return [
    ["spread over several hosts", named.join(", ") + (more ? ` and ${more} more` : "")],
    ["busiest host", `${hot.after.toFixed(2)} × the mean; ${hot.before.toFixed(2)} × without spreading`],
  ];
}

function showEpoch(epoch, running) {
  const title = at("epoch-title");
  at("follow").hidden = selected.epoch === null;
  if (!epoch) {
    title.textContent = "Epoch";
    facts(at("epoch"), [["published", "none yet"]]);
    return;
  }
  title.textContent =
    selected.epoch === null ? `Epoch ${epoch.epoch} · current` : `Epoch ${epoch.epoch}`;
  facts(at("epoch"), [
    ["running", running < 0 ? "not yet" : running],
    ["first batch", epoch.first_batch ?? "not yet"],
    ["optimizer", epoch.optimizer],
    ["objective", epoch.objective],
    ["queries", epoch.queries.length],
    ["partitions", epoch.parallelism],
    ...(epoch.switching_cost ? [["charge for new steps and stores", short(epoch.switching_cost)]] : []),
    ["gap", epoch.gap === null ? "unknown" : `${(epoch.gap * 100).toFixed(2)} %`],
    ["solved in", `${epoch.solve_ms.toFixed(epoch.solve_ms < 10 ? 1 : 0)} ms`],
    ["found by", epoch.method],
    ...(epoch.explain.backfill ?? []).map((past) => [
      `past of ${past.label.replaceAll("⋈", " ⋈ ")}`,
      past.chosen ? "computed in the background" : "answered from base stores",
    ]),
    ...dealt(epoch.explain.hot_keys),
    ["shared steps", `${epoch.explain.totals?.shared_steps ?? 0} of ${epoch.explain.totals?.steps ?? 0}`],
  ]);
  const notes = [];
  if (epoch.fallback) notes.push(epoch.fallback);
  for (const [name, share] of Object.entries(epoch.estimated ?? {})) {
    notes.push(`${name} is new: by a sample, ${(share * 100).toFixed(1)} % of its stream's tuples pass its filter.`);
  }
  if (epoch.ahead) {
    const periods = epoch.ahead.periods;
    const names = Object.keys(epoch.ahead.arrivals).join(", ");
    if (names) notes.push(`Priced for the next epoch, with arrivals forecast from the last ${periods} periods of ${names}.`);
  }
  if (epoch.costs) {
    const { error, measurements } = epoch.costs;
    const by =
      error === null
        ? "default constants, not measured yet"
        : `constants fitted to ${measurements} measurements, error ${(error * 100).toFixed(0)} %`;
    notes.push(`Costs are CPU seconds per epoch, by ${by}.`);
  }
  if (epoch.assumed.length) {
    notes.push(`Assumed, not measured yet: arrivals of ${epoch.assumed.join(", ")}.`);
  }
  const rejected = Object.entries(epoch.rejected);
  if (rejected.length) {
    notes.push(`Rejected: ${rejected.map(([name, p]) => `${name} (${p.message})`).join("; ")}`);
  }
  at("epoch-note").hidden = notes.length === 0;
  at("epoch-note").textContent = notes.join(" ");
}

function showShares(epoch) {
  const { rows, empty, note } = shares(epoch);
  const none = make("td", { className: "empty", text: empty });
  none.colSpan = 4;
  at("shares").tBodies[0].replaceChildren(
    ...(rows.length
      ? rows.map((row) =>
          make(
            "tr",
            {},
            make("td", { className: "name" }, dot(row.query), row.query),
            ...[row.shapley, row.marginal, row.standalone].map((value) =>
              make("td", { className: "number", text: short(value), title: String(value ?? "unknown") }),
            ),
          ),
        )
      : [make("tr", {}, none)]),
  );
  at("shares-note").textContent = note;
}

function showChanges(epoch) {
  const { title, cost, count, lines } = changes(epoch);
  at("changes-title").textContent = title;
  at("changes-cost").textContent = cost;
  at("changes-count").textContent = count;
  at("changes").replaceChildren(
    ...lines.map((line) =>
      make(
        "li",
        { className: line.gone ? "gone" : "new" },
        make("span", { className: "sign", "aria-hidden": "true", text: line.gone ? "−" : "+" }),
        make("span", { text: `${line.gone ? "gone" : "new"}: ${line.text}` }),
        make("span", { className: "muted number", text: line.amount(short, bytes) }),
      ),
    ),
  );
}

function showQueries(queries) {
  for (const query of queries) colour(query.id);
  list.know(queries);
  map.named(queries);
  views = new Set(queries.filter((q) => q.normalised.view).map((q) => q.id));
  offerTails(queries.filter((q) => q.sink.format !== "count").map((q) => q.id));
}

/** Fill the list of queries whose results can be followed, if it has changed: it may be open. */
function offerTails(names) {
  const choice = at("tail-query");
  const known = [...choice.options].slice(1).map((option) => option.value);
  if (known.join("\n") === names.join("\n")) return;
  const chosen = names.includes(choice.value) ? choice.value : "";
  const options = names.map((name) => make("option", { value: name, text: name }));
  choice.replaceChildren(choice.options[0], ...options);
  choice.value = chosen;
  tail.follow(chosen || null, views.has(chosen));
}

function showChips(epoch) {
  const names = epoch ? epoch.queries : [];
  if (selected.query !== null && !names.includes(selected.query)) selected.query = null;
  at("chips").replaceChildren(
    ...names.map((name) => {
      const chip = make(
        "button",
        { type: "button", className: "chip", "aria-pressed": String(selected.query === name) },
        dot(name),
        name,
      );
      chip.addEventListener("click", () => {
        selected.query = selected.query === name ? null : name;
        for (const other of at("chips").children) other.setAttribute("aria-pressed", "false");
        chip.setAttribute("aria-pressed", String(selected.query === name));
        highlight(at("trees"), selected.query);
      });
      chip.addEventListener("mouseenter", () => highlight(at("trees"), name));
      chip.addEventListener("mouseleave", () => highlight(at("trees"), selected.query));
      return chip;
    }),
  );
}

function showPlan(epoch) {
  const key = epoch ? `${epoch.epoch} ${epoch.ruleset_digest} ${dark.matches}` : "none";
  if (key === drawn) return;
  drawn = key;
  showChips(epoch);
  const trees = epoch ? forest(epoch.explain) : [];
  at("plan-title").textContent = epoch ? `Probe trees of epoch ${epoch.epoch}` : "Probe trees";
  at("trees").replaceChildren(
    ...(trees.length
      ? trees.map((tree) => drawTree(tree, colour))
      : [make("p", { className: "empty", text: "No probes: no query is planned." })]),
  );
  highlight(at("trees"), selected.query);
  showSteps(trees);
  showStores(epoch);
}

function showSteps(trees) {
  const rows = [];
  const visit = (root, node, path) => {
    for (const child of node.children) {
      const { step } = child;
      rows.push(
        make(
          "tr",
          {},
          make("td", { text: root.owner ? `${root.start} (${root.owner})` : root.start }),
          make("td", { text: path.join(" → ") || "–" }),
          make("td", { className: "name", text: step.store }),
          make("td", { text: `${step.partition ?? "–"}${step.broadcast ? " (to all)" : ""}` }),
          make("td", { className: "number", text: short(step.cost) }),
          make("td", { className: "number", text: short(step.cardinality) }),
          make("td", { text: step.shared_by.join(", ") }),
        ),
      );
      visit(root, child, [...path, step.store]);
    }
  };
  for (const tree of trees) visit(tree, tree, []);
  at("steps").querySelector("tbody").replaceChildren(...rows);
}

function showStores(epoch) {
  const stores = epoch?.explain.stores ?? [];
  at("stores").replaceChildren(
    ...stores.map((store) =>
      make(
        "li",
        {},
        make("span", { className: store.label.includes("⋈") ? "what mir" : "what", text: store.label }),
        make("span", {
          className: "muted",
          text: store.used_by.length ? `probed by ${store.used_by.join(", ")}` : "stored, not probed",
        }),
        make("span", { className: "muted number", text: `inserts ${short(store.insert_cost)}` }),
      ),
    ),
  );
}

/** Cached statistics of ended epochs, which never change. */
async function readStatistics(number) {
  const key = `statistics ${number}`;
  if (number < 0) return null;
  if (!cache.has(key)) {
    const found = await read(`/v1/epochs/${number}/statistics`);
    if (found === null) return null;
    cache.set(key, found);
  }
  return cache.get(key);
}

function meter(name, part, ...figures) {
  const fill = make("div", { className: "fill" });
  fill.style.width = `${part * 100}%`;
  return make(
    "li",
    {},
    make("span", { className: "what", text: name }),
    make("div", { className: "track", "aria-hidden": "true" }, fill),
    make("span", { className: "muted number", text: figures.join(" · ") }),
  );
}

function delays(stream) {
  const picture = make("span", {
    className: "delays",
    role: "img",
    "aria-label": stream.bars.map((b) => `${b.label}: ${(b.part * 100).toFixed(1)} %`).join(", "),
  });
  for (const bar of stream.bars) {
    const made = make("span", { title: `${bar.label}: ${bar.tuples.toLocaleString("en")}` });
    made.style.height = `${bar.tuples ? Math.max(bar.part * 100, 12) : 0}%`;
    picture.append(made);
  }
  return picture;
}

function showMeasured(found, streamsOf, names) {
  const measured = new Map(streams(found).map((s) => [s.name, s]));
  const known = new Map(streamsOf.map((s) => [s.name, s]));
  const every = [...new Set([...measured.keys(), ...known.keys()])];
  const rows = every.map((name) => {
    const s = measured.get(name);
    const stream = known.get(name);
    return make(
      "tr",
      {},
      make("td", { className: "name" }, make("a", { href: `/dashboard/stream/${encodeURIComponent(name)}`, text: name })),
      stream ? sourceOf(stream) : make("td", { text: "–" }),
      make("td", { className: "number", text: s ? short(s.tuples_per_second) : "–" }),
      make("td", { className: "number", text: s ? short(s.tuples_per_event_second) : "–" }),
      make("td", { className: "number", text: s ? s.late.toLocaleString("en") : "–" }),
      make("td", {}, s?.bars.length ? delays(s) : "–"),
      make("td", { className: "number", text: s ? span(s.delay_us.p99) : "–" }),
      make("td", { text: (stream && retentionOf(stream)) ?? "–" }),
    );
  });
  const none = make("td", { className: "empty", text: "No streams yet: register one in Streams." });
  none.colSpan = 8;
  at("measured").tBodies[0].replaceChildren(...(rows.length ? rows : [make("tr", {}, none)]));
  const sizes = stores(found);
  at("measured-note").textContent = found
    ? `in epoch ${found.epoch}, ${found.batches} batches${sizes.omitted ? `; ${sizes.omitted} smaller stores not shown` : ""}`
    : "";
  at("sizes").replaceChildren(
    ...sizes.rows.map((s) => meter(names.text(s.name), s.part, `${s.tuples.toLocaleString("en")} tuples`, bytes(s.bytes))),
  );
  at("dearest").replaceChildren(
    ...edges(found).map((e) =>
      meter(names.text(e.name), e.part, `${e.probes.toLocaleString("en")} probes`, `${(e.nanoseconds / 1e6).toFixed(1)} ms`),
    ),
  );
  const crossing = sent(found);
  at("exchange").hidden = !crossing.length;
  at("sent-title").textContent = `Sent between ${found?.hosts} hosts`;
  at("sent").replaceChildren(
    ...crossing.map((e) =>
      meter(names.text(e.name), e.part, bytes(e.sent_bytes), e.predicted_sent_bytes === null ? "not predicted" : `${bytes(e.predicted_sent_bytes)} predicted`),
    ),
  );
}

/** A table row of a time series: name, chart, newest values. */
function courseRow({ name, values }, top, text, ...figures) {
  const path = element("path", { d: course(values, { ...COURSE, top }), class: "line" });
  const picture = element(
    "svg",
    { viewBox: `-1 -2 ${COURSE.width + 2} ${COURSE.height + 4}`, class: "course", role: "img", "aria-label": `${name}: ${text}` },
    "",
    path,
  );
  return make(
    "li",
    {},
    make("span", { className: "what", text: name }),
    picture,
    make("span", { className: "muted number", text: [text, ...figures].join(" · ") }),
  );
}

let seriesAt = 0;

/** Show rates and hit ratios of the last minutes. */
async function showSeries(names) {
  if (Date.now() - seriesAt < SERIES_MS) return;
  seriesAt = Date.now();
  const series = names.series(await read("/v1/series?last=120"));
  const [relations, dearest] = [rates(series), steps(series)];
  const seconds = series.periods.reduce((sum, period) => sum + period.seconds, 0);
  const omitted = [
    relations.omitted ? `${relations.omitted} slower relations` : "",
    dearest.omitted ? `${dearest.omitted} cheaper steps` : "",
  ].filter(Boolean);
  at("series-note").textContent = series.periods.length
    ? `${series.periods.length} periods, ${span(seconds * 1e6)}${omitted.length ? `; ${omitted.join(" and ")} not shown` : ""}`
    : "No figures yet: the first follow a few seconds after the first batch.";
  at("rates").replaceChildren(...relations.rows.map((r) => courseRow(r, null, `${short(r.now ?? 0)} per second`)));
  at("ratios").replaceChildren(
    ...dearest.rows.map((s) =>
      courseRow(s, 1, percent(s.now), ...(s.matches === null ? [] : [`${short(s.matches)} matches each`])),
    ),
  );
}

function levels(store) {
  const text = store.levels.map((l) => `level ${l.level}: ${l.segments}`).join(", ");
  const picture = make("span", { className: "levels", role: "img", "aria-label": text || "none" });
  for (const level of store.levels) {
    const made = make("span", {
      className: `level-${Math.min(level.level, 4)}`,
      title: `level ${level.level}: ${level.segments} segments, ${level.rows.toLocaleString("en")} rows, ${bytes(level.bytes)}`,
      text: level.segments,
    });
    made.style.flexGrow = String(Math.max(level.part, 0.02));
    picture.append(made);
  }
  return picture;
}

function showState(state, names) {
  facts(at("state-facts"), totals(state, bytes));
  const { rows, omitted } = stored(state);
  at("state-note").textContent = state
    ? `before batch ${state.next_batch}${omitted ? `; ${omitted} smaller stores not shown` : ""}`
    : "";
  const none = make("td", { className: "empty", text: "Nothing is stored yet." });
  none.colSpan = 11;
  const lines = rows.map((s) =>
    make(
      "tr",
      {},
      make(
        "td",
        { className: s.kind === "stream" ? "name" : "name mir" },
        make("a", { href: `/dashboard/state#store=${encodeURIComponent(s.store)}`, text: names.text(s.store), title: s.store }),
      ),
      make("td", { text: s.of, title: s.where }),
      make("td", { className: "number", text: s.rows.toLocaleString("en") }),
      make("td", { className: "number", text: bytes(s.bytes) }),
      make("td", { className: "number", text: s.bytes ? `${((100 * s.index_bytes) / s.bytes).toFixed(0)} %` : "–" }),
      make("td", {}, levels(s)),
      make("td", { text: s.split }),
      make("td", { text: `${s.span || "–"}${s.growing ? "" : ", ended"}${s.backfill ? ", being completed" : ""}` }),
      make("td", { className: "number", text: s.probes === null ? "–" : s.probes.toLocaleString("en") }),
      make("td", { className: "number", text: s.found === null ? "–" : short(s.found) }),
      make("td", { text: some([...new Set(s.queries.map(registered))]) || "nobody" }),
    ),
  );
  at("state").tBodies[0].replaceChildren(...(lines.length ? lines : [make("tr", {}, none)]));
}

function showHistory(epochs, shown, running) {
  const most = Math.max(1e-9, ...epochs.map((e) => Math.max(e.cost, e.individual_cost ?? 0)));
  at("history").replaceChildren(
    ...epochs.map((e) => {
      const own = make("span", { className: "own" });
      own.style.width = `${(e.cost / most) * 100}%`;
      const other = make("span", { className: "other" });
      other.style.width = `${((e.individual_cost ?? 0) / most) * 100}%`;
      const button = make(
        "button",
        {
          type: "button",
          "aria-current": String(e.epoch === shown),
          "aria-label": `Show epoch ${e.epoch}: ${e.queries.length} queries, cost ${e.cost} by ${e.optimizer}`,
        },
        make("span", { className: "epoch", text: `#${e.epoch}` }),
        make("span", { text: e.optimizer }),
        make("span", { className: "mini" }, other, own),
        make("span", { className: "number", text: short(e.cost) }),
        make("span", { className: "muted", text: e.first_batch !== null ? `batch ${e.first_batch}` : e.epoch > running ? "not started" : "–" }),
      );
      button.addEventListener("click", () => {
        selected.epoch = e.epoch;
        refresh();
      });
      return make("li", {}, button);
    }),
  );
}

/** All queries; with many of them a cached copy, some seconds old. */
async function knownQueries() {
  if (performance.now() < known.until) return known.queries;
  const began = performance.now();
  known.queries = await readQueries();
  const ended = performance.now();
  known.until = known.queries.length > FEW ? ended + SHARE * (ended - began) : 0;
  return known.queries;
}

/** The revisions of an epoch, oldest first; null without an epoch. */
async function readRevisions(epoch) {
  return epoch ? (await read(`/v1/epochs/${epoch.epoch}/revisions`)).items : null;
}

async function refresh() {
  try {
    const [current, queries, epochs, state, kept] = await Promise.all([
      read("/v1/epochs/current"),
      knownQueries(),
      read("/v1/epochs?limit=200"),
      read("/v1/state"),
      read("/v1/streams"),
      list.refresh(),
    ]);
    const pinned = selected.epoch === null ? null : await readEpoch(selected.epoch);
    const line = pinned && epochs.items.find((e) => e.epoch === pinned.epoch);
    const published = pinned
      ? { ...pinned, first_batch: line ? line.first_batch : pinned.first_batch }
      : (current?.epoch ?? null);
    const names = new Names(queries, [...(published?.explain.queries ?? []).flatMap(({ orders }) => orders.flatMap(({ steps: found }) => found)), ...(state?.stores ?? [])]);
    const epoch = names.epoch(published);
    showRuntime(current, names);
    showUnread(kept.items);
    at("begin").hidden = kept.items.length > 0 || queries.length > 0;
    showQueries(queries);
    showEpoch(epoch, current?.running ?? -1);
    showCost(at("bars"), at("saving"), epoch, pinned ? null : current?.saving);
    showShares(epoch);
    showChanges(epoch);
    showPlan(epoch);
    const [revised, settings] = await Promise.all([readRevisions(epoch), read("/v1/settings")]);
    showRevisions(at("revisions"), at("revisions-note"), revised, settings.revision_gain);
    const measured = await readStatistics(pinned ? pinned.epoch : (current?.running ?? 0) - 1);
    showMeasured(measured, kept.items, names);
    await showSeries(names);
    showState(state, names);
    const focused = document.activeElement?.closest("#history") ? document.activeElement : null;
    const label = focused?.getAttribute("aria-label");
    showHistory(epochs.items, epoch?.epoch, current?.running ?? -1);
    if (label) at("history").querySelector(`[aria-label="${CSS.escape(label)}"]`)?.focus();
    await map.refresh(selected.query);
    say(null);
  } catch (error) {
    say(error);
  }
}

at("follow").addEventListener("click", () => {
  selected.epoch = null;
  refresh();
});
window.addEventListener("hashchange", () => {
  selected.query = asked();
  drawn = "";
  refresh();
});
dark.addEventListener("change", () => {
  drawn = "";
  refresh();
});

async function follow() {
  if (!document.hidden) await refresh();
  setTimeout(follow, POLL_MS);
}
follow();
