// Explanation of an epoch: cost shares, changes since the previous epoch, and revisions.

import { make, percent, stack } from "../dom.js";
import { short } from "../graph.js";
import { length } from "../times.js";

const MAX_SHARES = 12;
const MAX_CHANGES = 10;
/** Most revisions listed: an epoch of hours may have hundreds. */
const MAX_REVISIONS = 20;

const LATER =
  "For many queries, costs are split after publication, unless another epoch follows meanwhile.";

/** The costliest queries with their shares, a text if there are none, and a note on omitted ones. */
export function shares(epoch) {
  const found = epoch?.shares;
  if (!found) return epoch ? { rows: [], empty: "Not split yet.", note: LATER } : { rows: [], empty: "No epoch so far.", note: "" };
  const omitted = found.omitted + Math.max(found.queries.length - MAX_SHARES, 0);
  const notes = [];
  if (omitted) notes.push(`${omitted} more queries cost less.`);
  if (found.note) notes.push(`${found.note[0].toUpperCase()}${found.note.slice(1)}.`);
  const empty = found.note ? "Not known." : "No query is planned.";
  return { rows: found.queries.slice(0, MAX_SHARES), empty, note: notes.join(" ") };
}

/** Text and title of a query's part of the maintained tables' CPU time, and of that of tables of its own. */
export function tablesOf(epoch, query) {
  if (!epoch.tables) return { text: "–", title: "unknown" };
  const own = epoch.tables.tables.flatMap(({ queries }) => queries.filter((one) => one.query === query));
  if (!own.length) return { text: "none", title: "The query has no maintained table." };
  const sum = (name) => own.reduce((total, one) => total + one[name], 0);
  return { text: length(sum("seconds")), title: `${sum("seconds")} s; alone ${sum("alone_seconds")} s` };
}

/** Added and removed parts, stores before steps, costliest first. */
export function changes(epoch) {
  const diff = epoch?.diff;
  if (!diff) return { title: "Changes", cost: "", count: epoch?.diff_reason ?? "", lines: [] };
  const all = [
    ...lines(diff.stores.built, "store ", false),
    ...lines(diff.steps.added, "", false),
    ...lines(diff.stores.dropped, "store ", true),
    ...lines(diff.steps.removed, "", true),
  ];
  const { added, removed, kept, built, dropped, retained } = diff.totals;
  const total = added.count + removed.count + built.count + dropped.count;
  const shown = all.slice(0, MAX_CHANGES);
  const count = diff.unchanged
    ? "Nothing: the same steps and stores."
    : `Steps: ${added.count} new, ${removed.count} gone, ${kept.count} kept. ` +
      `Stores: ${built.count} new, ${dropped.count} gone, ${retained.count} kept.` +
      (total > shown.length ? ` The costliest ${shown.length} of ${total}:` : "");
  const before = diff.cost_before === null ? "unknown" : round(diff.cost_before);
  return {
    title: `Changes since epoch ${diff.epoch}`,
    cost: `cost ${before} → ${round(diff.cost_after)} by the same statistics`,
    count,
    lines: shown,
  };
}

function lines(entries, kind, gone) {
  return entries.map((entry) => ({
    gone,
    text: kind + entry.label,
    amount(short, bytes) {
      if (entry.tuples === null) return "no estimate";
      const size = entry.bytes === undefined ? "" : `, ${bytes(Math.round(entry.bytes))}`;
      return `${short(entry.tuples)} tuples${size}`;
    },
  }));
}

function round(value) {
  return value.toLocaleString("en", { maximumSignificantDigits: 4 });
}

const REASONS = {
  cheaper: "another plan costs less",
  "carried-over": "another plan costs less since the epoch was planned",
  "taken-back": "taken back: it cost more",
};

/** The newest revisions first, and the number of omitted ones. */
export function revisions(items) {
  const found = [...items].reverse().map((one) => ({
    name: `${one.epoch}.${one.revision}`,
    batch: one.next_batch,
    why: REASONS[one.reason] ?? one.reason,
    drifted: one.drifted,
    cost: one.cost,
    before: one.running_cost,
    predicted: one.predicted,
    measured: one.measured?.gain ?? null,
    older: older(one),
    undoes: one.undoes?.gain ?? null,
    closed: one.closed,
    unindexed: one.unindexed,
    ms: one.plan_ms,
  }));
  return { rows: found.slice(0, MAX_REVISIONS), omitted: Math.max(found.length - MAX_REVISIONS, 0) };
}

/** The baseline of the measured saving, if it is older than that of the predicted one. */
function older({ measured, baseline }) {
  if (!measured?.baseline || measured.baseline === baseline) return [];
  return [`of ${measured.baseline}, predicted ${percent(measured.predicted)}`];
}

/** Show revisions in a table; `gain`: least relative saving of a revision, null: no revisions. */
export function showRevisions(table, note, items, gain) {
  const { rows, omitted } = revisions(items ?? []);
  note.textContent = omitted ? `the newest ${rows.length} of ${rows.length + omitted}` : "";
  const none = make("td", { className: "empty", text: empty(items, gain) });
  none.colSpan = 6;
  table.tBodies[0].replaceChildren(...(rows.length ? rows.map(line) : [make("tr", {}, none)]));
  stack(table);
}

function empty(items, gain) {
  if (items === null) return "No epoch so far.";
  if (gain === null) return "The rules of an epoch are not revised (settings: revision_gain).";
  return `No revisions in this epoch. Rules are revised where that saves ${percent(gain)} or more.`;
}

function line(row) {
  const kept = [
    ...row.closed.map((store) => `drops store ${store}`),
    ...row.unindexed.map((key) => `indexes ${key} in memory`),
  ];
  return make(
    "tr",
    {},
    make("td", { text: row.name }),
    make("td", { className: "number", text: row.batch.toLocaleString("en") }),
    make(
      "td",
      { className: "why", title: [...row.drifted, ...kept].join("\n") },
      make("span", { text: row.why }),
      ...row.drifted.slice(0, 1).map((text) => make("span", { className: "muted", text })),
      ...(row.undoes === null ? [] : [make("span", { className: "muted", text: `a row cost ${percent(-row.undoes)} more` })]),
    ),
    make("td", { className: "number", text: `${short(row.before)} → ${short(row.cost)}` }),
    make("td", {}, bar("predicted", row.predicted)),
    make("td", {}, bar("measured", row.measured), ...row.older.map((text) => make("span", { className: "muted", text }))),
  );
}

/** Table cell with a relative saving: red if negative, a dash if unknown. */
function bar(name, share) {
  const text = percent(share);
  const fill = make("span", { className: share < 0 ? "fill lost" : "fill" });
  fill.style.width = `${Math.min(Math.abs(share ?? 0), 1) * 100}%`;
  return make(
    "span",
    { className: "gain", role: "img", "aria-label": share === null ? `not ${name} yet` : `${name}: ${text}` },
    make("span", { className: "track", "aria-hidden": "true" }, fill),
    make("span", { className: "number", text }),
  );
}
