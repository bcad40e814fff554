// Prices of maintained tables in words. Pure functions.

import { bytes } from "./dom.js";
import { short } from "./graph.js";

/** Grouping and aggregates of a table. */
export function content({ grouped, grouping, aggregates }) {
  if (!grouped) return "ordered rows";
  return [grouping ? `GROUP BY ${grouping}` : "one group", aggregates.join(", ")].filter(Boolean).join("; ");
}

/** A table's estimated cost, and one query's share of it. */
export function estimate(table, share) {
  const whole = `${short(table.seconds)} CPU s, ${short(table.rows)} rows, ${bytes(Math.round(table.bytes))}`;
  return `${whole}; this query ${short(share.seconds)} CPU s, alone ${short(share.alone_seconds)}`;
}
