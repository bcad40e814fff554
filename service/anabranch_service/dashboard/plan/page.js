// Plan page: the joint plan of the newest epoch, or of an earlier one that is chosen in the list.

import { read, readEpochs } from "../access.js";
import { colour, dark, dot } from "../colours.js";
import { breakable, bytes, facts, make, percent, say, some, stack } from "../dom.js";
import { drawTree, forest, highlight, short } from "../graph.js";
import { PlanMap } from "../map/map.js";
import { Names } from "../names.js";
import { poll } from "../poll.js";
import { knownQueries } from "../query_list/known.js";
import { changes, shares, showRevisions, tablesOf } from "./comments.js";
import { showCost, unit } from "./cost.js";
import { MOST_WHOLE, planNames, recordOf } from "./newest.js";

const POLL_MS = 1000;
/** Most hot values that are named. */
const MOST_DEALT = 5;
/** Most epochs listed. */
const MOST_EPOCHS = 200;
/** Pixels of a column of trees beside the trees: half of the gap, padding and borders. */
const COLUMN_EDGES = 27;

const selected = { epoch: null, query: asked() };
/** The summary of the chosen epoch, and its number. */
let pinned = { epoch: null, summary: null };
let drawn = "";

const at = (id) => document.getElementById(id);
// Owners, tags and titles are requested for a search: they are in the records of all queries.
const map = new PlanMap((name) => {
  location.hash = name === null ? "" : `query=${encodeURIComponent(name)}`;
}, knownQueries);

/** The query named in the page's address. */
function asked() {
  const name = new URLSearchParams(location.hash.slice(1)).get("query");
  return name || null;
}

/** The summary of a published epoch, which has its queries' names. */
async function readSummary(number) {
  if (pinned.epoch !== number) pinned = { epoch: number, summary: await read(`/v1/epochs/${number}?detail=summary`) };
  return pinned.summary;
}

/** Hot values, whose new rows are spread over several hosts. */
function dealt(hot) {
  if (!hot) return [];
  const named = hot.values.slice(0, MOST_DEALT).map(({ attribute, value }) => `${attribute} = ${value || "?"}`);
  const more = hot.values.length - named.length;
  return [
    ["spread over several hosts", named.join(", ") + (more ? ` and ${more} more` : ""), "long"],
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
      "long",
    ]),
    ...dealt(epoch.explain.hot_keys),
    ["shared steps", `${epoch.explain.totals?.shared_steps ?? 0} of ${epoch.explain.totals?.steps ?? 0}`],
  ]);
  const notes = [];
  if (epoch.fallback) notes.push(epoch.fallback);
  const estimated = Object.entries(epoch.estimated ?? {}).map(([name, share]) => `${name} (${percent(share)})`);
  if (estimated.length) notes.push(`New, with the share of its stream's tuples that pass its filter by a sample: ${some(estimated)}.`);
  if (epoch.ahead) {
    const periods = epoch.ahead.periods;
    const names = some(Object.keys(epoch.ahead.arrivals));
    if (names) notes.push(`Priced for the next epoch, with arrivals forecast from the last ${periods === 1 ? "period" : `${periods} periods`} of ${names}.`);
  }
  if (epoch.costs) {
    const { error, measurements } = epoch.costs;
    const by =
      error === null
        ? "default constants, not measured yet"
        : `constants fitted to ${measurements} ${measurements === 1 ? "measurement" : "measurements"}, error ${(error * 100).toFixed(0)} %`;
    notes.push(`Costs are CPU seconds per epoch, by ${by}.`);
  }
  if (epoch.assumed.length) {
    notes.push(`Assumed, not measured yet: arrivals of ${some(epoch.assumed)}.`);
  }
  const rejected = Object.entries(epoch.rejected).map(([name, p]) => `${name} (${p.message})`);
  if (rejected.length) notes.push(`Rejected: ${some(rejected)}.`);
  at("epoch-note").hidden = notes.length === 0;
  at("epoch-note").textContent = notes.join(" ");
}

function showShares(epoch) {
  const { rows, empty, note } = shares(epoch);
  const none = make("td", { className: "empty", text: empty });
  none.colSpan = 5;
  at("shares").tBodies[0].replaceChildren(
    ...(rows.length
      ? rows.map((row) =>
          make(
            "tr",
            {},
            make("td", { className: "name" }, dot(row.query), ...breakable(row.query)),
            ...[row.shapley, row.marginal, row.standalone].map((value) =>
              make("td", { className: "number", text: short(value), title: String(value ?? "unknown") }),
            ),
            make("td", { className: "number", ...tablesOf(epoch, row.query) }),
          ),
        )
      : [make("tr", {}, none)]),
  );
  stack(at("shares"));
  at("shares-note").textContent = note;
  for (const place of document.querySelectorAll(".cost-unit, [data-unit=cost]")) if (epoch) place.textContent = unit(epoch.objective);
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

/** Show the names of the queries as buttons, or in a list if they are many. */
function showChoice(epoch, many) {
  const names = epoch ? epoch.queries : [];
  if (selected.query !== null && !names.includes(selected.query)) selected.query = null;
  at("trees-of").hidden = !many;
  at("chips").hidden = many;
  if (many) {
    at("trees-query").replaceChildren(...names.map((name) => make("option", { value: name, text: name })));
    at("trees-query").value = selected.query ?? names[0];
    at("chips").replaceChildren();
    return;
  }
  at("chips").replaceChildren(
    ...names.map((name) => {
      const chip = make(
        "button",
        { type: "button", className: "chip", "aria-pressed": String(selected.query === name) },
        dot(name),
        make("span", {}, ...breakable(name)),
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
  const many = (epoch?.queries.length ?? 0) > MOST_WHOLE;
  const key = epoch ? `${epoch.epoch} ${epoch.ruleset_digest} ${dark.matches} ${many && selected.query}` : "none";
  if (key === drawn) return;
  drawn = key;
  showChoice(epoch, many);
  showTrees(epoch);
  showStores(epoch);
}

function showTrees(epoch) {
  const trees = epoch ? forest(epoch.explain) : [];
  at("plan-title").textContent = epoch ? `Probe trees of epoch ${epoch.epoch}` : "Probe trees";
  at("trees").replaceChildren(
    ...(trees.length
      ? trees.map((tree) => drawTree(tree, colour))
      : [make("p", { className: "empty", text: "No probes: no query is planned." })]),
  );
  // Two columns only if no tree would have to be scrolled in them.
  const half = at("trees").clientWidth / 2 - COLUMN_EDGES;
  at("trees").classList.toggle("single", [...at("trees").querySelectorAll("svg")].some((svg) => parseFloat(svg.style.minWidth) > half));
  highlight(at("trees"), selected.query);
  showSteps(trees);
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
          make("td", { className: "users" }, ...breakable(some(step.shared_by))),
        ),
      );
      visit(root, child, [...path, step.store]);
    }
  };
  for (const tree of trees) visit(tree, tree, []);
  const table = at("steps").querySelector("table");
  table.tBodies[0].replaceChildren(...rows);
  stack(table);
}

function showStores(epoch) {
  const stores = epoch?.explain.stores ?? [];
  const more = (epoch?.explain.totals?.stores ?? 0) - stores.length;
  at("stores-note").hidden = more <= 0;
  at("stores-note").textContent = `${more.toLocaleString("en")} stores with cheaper inserts are not shown: see Stored state.`;
  at("stores").replaceChildren(
    ...stores.map((store) =>
      make(
        "li",
        {},
        make("span", { className: store.label.includes("⋈") ? "what mir" : "what", text: store.label }),
        make("span", { className: "muted" }, ...breakable(store.used_by.length ? `probed by ${someOf(store.used_by, store.users)}` : "stored, not probed")),
        make("span", { className: "muted number", text: `inserts ${short(store.insert_cost)}` }),
      ),
    ),
  );
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
          "aria-label": `Show epoch ${e.epoch}: ${e.query_count} queries, cost ${e.cost} by ${e.optimizer}`,
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

/** The first names as text; `count`: number of all, if only some are known. */
function someOf(names, count = names.length) {
  const more = count - names.length;
  return more ? `${names.join(", ")} and ${more} more` : some(names);
}

/** The revisions of an epoch, oldest first; null without an epoch. */
async function readRevisions(epoch) {
  return epoch ? (await read(`/v1/epochs/${epoch.epoch}/revisions`)).items : null;
}

async function refresh() {
  try {
    const [current, epochs] = await Promise.all([read("/v1/epochs/current?detail=summary"), readEpochs(MOST_EPOCHS)]);
    const chosen = selected.epoch === null ? null : await readSummary(selected.epoch);
    const summary = chosen ?? current?.epoch ?? null;
    const [published, known] = await Promise.all([summary && recordOf(summary, selected.query), planNames(current?.epoch)]);
    const names = new Names(known, published?.explain.steps);
    const line = epochs.items.find((e) => e.epoch === summary?.epoch);
    const epoch = names.epoch(published && { ...published, first_batch: (line ?? summary).first_batch });
    for (const query of epoch?.queries ?? []) colour(query);
    showEpoch(epoch, current?.running ?? -1);
    showCost(at("bars"), at("saving"), epoch, chosen ? null : current?.saving);
    showShares(epoch);
    showChanges(epoch);
    showPlan(epoch);
    const [revised, settings] = await Promise.all([readRevisions(epoch), read("/v1/settings")]);
    showRevisions(at("revisions"), at("revisions-note"), revised, settings.revision_gain);
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

at("trees-query").addEventListener("change", ({ target }) => {
  location.hash = `query=${encodeURIComponent(target.value)}`;
});
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

poll(refresh, POLL_MS);
