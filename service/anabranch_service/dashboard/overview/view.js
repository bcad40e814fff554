// Texts of the overview. Pure functions.

import { percent } from "../dom.js";
import { length } from "../times.js";

/** Seconds of a month of thirty days, and of an hour. */
const [MONTH, HOUR] = [30 * 86400, 3600];

/** Health in words: number of components that need attention. */
export function healthText(components) {
  const bad = components.filter(({ state }) => state !== "ok").length;
  return bad ? `${bad} of ${components.length} components need attention` : `All ${components.length} components are well`;
}

/**
 * Time from a row's arrival to its results, and where it passes: the longest wait of a stream's oldest
 * unread row, and a batch. Spark's own sources don't report their waiting rows.
 */
export function freshness(runtime, streams) {
  if (!runtime?.batch_seconds) return { text: "Not known before the first batch", why: "" };
  const known = streams.filter((stream) => stream.waiting_seconds !== null);
  const slowest = known.sort((a, b) => b.waiting_seconds - a.waiting_seconds)[0];
  const waits = slowest?.waiting_seconds ?? 0;
  const where = waits ? `the oldest unread row, of ${slowest.name}, has waited ${length(waits)}; ` : known.length ? "no row waits; " : "";
  return {
    text: `Results come about ${length(waits + runtime.batch_seconds)} after their rows`,
    why: `${where}a batch takes ${length(runtime.batch_seconds)}`,
  };
}

/** Format a number of rows or cores with three digits. */
export function figure(value) {
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 3 });
}

const money = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : 0 });

/** Saved money per month at a price of a CPU hour, with the range over epochs; empty: unknown. */
export function moneyText(saving, price) {
  if (!saving || !(price > 0) || !saving.seconds) return "";
  const perMonth = (share) => ((share * saving.individual_cpu_seconds) / saving.seconds / HOUR) * MONTH * price;
  const [lowest, highest] = [saving.lowest, saving.highest].map((share) => money(perMonth(share)));
  const range = saving.epochs > 1 && lowest !== highest ? ` (${lowest} to ${highest} by epoch)` : "";
  const word = saving.share < 0 ? "costs" : "saves";
  return `At this load the joint plan ${word} ${money(Math.abs(perMonth(saving.share)))}${range} in a month of 30 days, ${percent(Math.abs(saving.share))} of ${money(perMonth(1))}.`;
}
