// Texts about a query's activation: completeness and batches. Pure functions.

import { clock } from "./times.js";

/** The event time from which on results are complete; a dash until it is known. */
export function completeFrom({ complete, complete_from: from }) {
  return { always: "first result", never: "never" }[complete] ?? (from ? clock(from) : "–");
}

/** The batches of an activation, the last one included; the first batch after it is not one of them. */
export function batches({ activated_batch: first, expired_batch: after }) {
  if (first === null) return "–";
  if (after === null) return `from ${first} on`;
  return after > first ? `${first} to ${after - 1}` : "none";
}

/** The expiry of a query without a time of expiry: it has ended, as if deleted, or never expires. */
export function noExpiry({ status }) {
  return ["expired", "expiring"].includes(status) ? "–" : "never";
}
