// Texts and numbers about a hypothetical plan. Pure functions.

import { some } from "../dom.js";
import { short } from "../graph.js";
import { readable } from "../names.js";
import { content, estimate } from "../tables.js";

/** Most queries in the table of effects. */
export const MOST = 30;

/** The post-join parts of a query (its view and outer join), as pairs of name and text. */
function above({ view, outer, branches }) {
  if (outer) {
    if (outer.look_ups?.length) return outer.look_ups.map(({ kind, partner }) => [`${kind} join with`, partner]);
    return [
      [`${outer.kind} join with`, outer.partner],
      ["partners until", outer.deadline],
    ];
  }
  const union = ["union of", branches?.map((some) => some.join(", ")).join("; ")];
  if (!view) return union[1] ? [union] : [];
  return [
    union,
    ["view of", view.aggregates.join(", ") || "joined rows"],
    ["while", view.limits.join(" and ")],
    ["grouped by", view.keys.join(", ")],
    ["grouping sets", view.sets.map((one) => `(${one.join(", ")})`).join(", ")],
    ["ranked by", view.ranking && `${view.ranking}() ${view.partition.length ? `of each ${view.partition.join(", ")}` : ""}`],
    ["having", view.having],
    ["copies", view.copies],
    ["ordered by", view.order.join(", ")],
    ["limit", view.limit],
  ].filter(([, text]) => text !== undefined && text !== null && text !== "");
}

/** The maintained table of the statement, with its share: it is in no plan so far. */
function tableOf({ table }, base) {
  const share = table?.queries.find(({ query }) => !base.queries.includes(query));
  if (!share) return [];
  const others = table.queries.filter((one) => one !== share).map(({ query }) => query);
  return [
    ["its table", content(table), "long"],
    ["table as estimated", estimate(table, share), "long"],
    ["table shared with", some(others) || "no other query", "long"],
  ];
}

/**
 * Cost of a statement, as pairs of name and text. `explained`: its explanation. `planned`, `base`: dry runs
 * with and without it. `names`: user-facing names of relations.
 */
export function figures(explained, planned, base, names) {
  const { cost_range: range, assumed } = planned;
  const alone = planned.individual_cost;
  return [
    ["adds to the cost", short(explained.added_cost)],
    ["cost of the joint plan", `${short(base.cost)} → ${short(planned.cost)}`],
    ["standalone", short(alone)],
    ...(range.low < range.high ? [["cost if assumed figures are wrong by a factor of 10", `${short(range.low)} to ${short(range.high)}`]] : []),
    ["stores probed", explained.stores.length],
    ...(planned.gap ? [["gap", `${(100 * planned.gap).toFixed(2)} %`]] : []),
    ["shares them with", some(explained.shared_with) || "no other query", "long"],
    ...tableOf(explained, base),
    ...above(explained.normalised).map((pair) => [...pair, "long"]),
    ...(assumed.length ? [["assumed, not measured yet", some(assumed.map((id) => readable(id, names))), "long"]] : []),
  ];
}

/** Least change of a query's share, as a part of it, that counts as one. */
const LEAST = 0.001;

/**
 * The changes of other queries' shares, the greatest first; `own` is the id of the added query, `left` has the
 * queries that are left out. If the plans have the shares of the costliest queries only, shares in both plans are
 * compared. `known`: number of compared queries; `changed`: number of changes; `all`: no further queries. With many
 * queries `rows` has changes only.
 */
export function effects(base, planned, own, left) {
  const shares = (plan) => new Map((plan.shares?.queries ?? []).map((share) => [share.query, share.shapley]));
  const [before, after] = [shares(base), shares(planned)];
  const kept = new Map((planned.effects?.queries ?? []).map((effect) => [effect.query, effect]));
  const all = !base.shares?.omitted && !planned.shares?.omitted;
  const names = new Set([...before.keys(), ...after.keys(), ...kept.keys()]);
  names.delete(own);
  const gone = (query) => left.includes(query.split("~", 1)[0]);
  const compared = [...names]
    .filter((query) => all || gone(query) || kept.has(query) || (before.has(query) && after.has(query)))
    .map((query) => {
      const [was, is] = [before.get(query) ?? null, after.get(query) ?? null];
      const change = (is ?? 0) - (was ?? 0);
      const effect = kept.get(query) ?? null;
      return { query, was, is, change, changed: Math.abs(change) > LEAST * Math.max(was ?? 0, is ?? 0), kept: effect };
    })
    .sort((a, b) => Math.abs(b.change) - Math.abs(a.change) || a.query.localeCompare(b.query));
  const rows = compared.length > MOST ? compared.filter(({ changed, kept }) => changed || kept) : compared;
  return { rows, known: compared.length, changed: compared.filter(({ changed }) => changed).length, all };
}

/** The body that replaces the statement of the query `before`. `past`: its results of stored rows. */
export function replacement(before, { sql, dialect, window, past, cutover }) {
  const kept = Object.fromEntries(["sink", "priority", "slo", "title", "owner", "tags", "expires_at"].map((name) => [name, before[name]]));
  const limit = window ?? (typeof before.window === "object" ? before.window : null);
  return { ...kept, sql, dialect, past, cutover, ...(limit ? { window: limit } : {}) };
}

/** The rows of streams that a preview has read, as text. */
export function sampled(samples) {
  const number = (count) => count.toLocaleString("en");
  const of = ({ stream, rows, seen }) => {
    if (!rows) return `no rows of ${stream} yet`;
    if (rows === seen) return `all rows of ${stream}: ${number(rows)}`;
    return `${number(rows)} of the latest rows of ${stream}${seen === null ? "" : ` (${number(seen)} so far)`}`;
  };
  return samples.map(of).join(", ") || "no stream";
}
