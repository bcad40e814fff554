// Load, countermeasures, and results withheld from queries, as texts and numbers. Pure functions.

import { completeFrom } from "../activation.js";
import { percent } from "../dom.js";

/** Most rows of the table of queries. */
export const MOST_ROWS = 100;

/** Countermeasures against overload, in order: a name, and whether it is in force. */
export function levers(runtime) {
  const rationing = runtime?.rationing;
  const rations = rationing && rationing.policy !== "wait";
  const later = Math.max((runtime?.waiting_tuples ?? 0) - (runtime?.row_limit ?? Infinity), 0);
  const withholding = Boolean(rations && rationing.overloaded);
  const longer = Boolean(rations) && rationing.latency !== null;
  const filling = Object.keys(runtime?.backfill ?? {}).length > 0;
  return [
    {
      name: "longer batches",
      on: longer,
      why: longer ? `up to ${rationing.latency / 2} s, half of the latency goal` : rations ? "a replay has no latency goal" : "the policy is to wait",
    },
    {
      name: "backfills pause",
      on: withholding,
      why: withholding ? "until every probe fits the budget" : filling ? "a backfill is running" : "no backfill is running",
    },
    {
      name: "rations",
      on: withholding,
      why: rations ? `${share(rationing.budget)} of rationed probes' CPU time` : "the policy is to wait",
    },
    {
      name: "input waits",
      on: later > 0,
      why: later > 0 ? `about ${later.toLocaleString("en")} rows do not fit the next batch` : "all waiting rows fit the next batch",
    },
  ];
}

/** State of the load as a short text. */
export function verdict(runtime) {
  const rationing = runtime?.rationing;
  if (!rationing) return "not known yet";
  if (rationing.overloaded) return "overloaded: probes are rationed";
  if (rationing.owed) return `withheld results of ${rationing.owed} batches are still to be computed`;
  if (rationing.policy === "wait") return "probes are never rationed: input waits";
  return rationing.needed > 1 ? "input exceeds the capacity of the machine" : "within capacity";
}

/** Queries that match `filter`, lowest completeness first. */
export function listed(queries, filter) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = queries
    .filter((q) => words.every((w) => q.id.toLowerCase().includes(w)))
    .map(row)
    // Queries without an estimate (an alias had the ration 0) precede complete ones.
    .sort(
      (a, b) =>
        (a.kept ?? 1) - (b.kept ?? 1) ||
        (b.blind > 0) - (a.blind > 0) ||
        b.broken - a.broken ||
        a.id.localeCompare(b.id),
    );
  return { rows: matching.slice(0, MOST_ROWS), matching: matching.length, all: queries.length };
}

function row(query) {
  const kept = query.rationed;
  const shares = Object.entries(kept?.shares ?? {}).sort(([a], [b]) => a.localeCompare(b));
  return {
    id: query.id,
    priority: query.priority,
    since: completeFrom(query),
    // Before activation a query has no completeness.
    kept: query.activated_batch === null ? null : (kept?.completeness ?? 1),
    withheld: kept?.withheld ?? 0,
    owed: kept?.owed ?? 0,
    late: kept?.caught_up ?? 0,
    blind: kept?.blind ?? 0,
    floor: kept?.floor ?? query.slo?.completeness ?? null,
    broken: Boolean(kept?.floor_broken),
    shares: shares.map(([alias, part]) => `${alias} ${share(part)}`).join(", "),
  };
}

/** Format the share of a query's results that is kept. */
export function left({ kept, blind }) {
  if (kept === null) return "–";
  return kept >= 1 && !blind ? "all" : `${blind ? "below " : ""}${percent(kept)}`;
}

/** Format a share as a whole percentage. */
export function share(part) {
  return `${Math.round(100 * part)} %`;
}
