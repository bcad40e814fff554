// Epochs as a timeline of changes, and differences of plans as texts. Pure functions.

import { some } from "../dom.js";
import { short } from "../graph.js";

/**
 * Group epochs (newest first) into entries (newest first): consecutive epochs with the same known plan are
 * one entry. `before`: the epoch before the first one of the entry.
 */
export function folded(epochs) {
  const entries = [];
  for (const [at, epoch] of epochs.entries()) {
    const entry = entries.at(-1);
    if (entry && epoch.plan !== null && entry.plan === epoch.plan) {
      entry.first = epoch;
      entry.count += 1;
      entry.revisions += epoch.revisions;
    } else {
      entries.push({ plan: epoch.plan, first: epoch, last: epoch, count: 1, revisions: epoch.revisions, before: null });
    }
    entries.at(-1).before = epochs[at + 1] ?? null;
  }
  return entries;
}

/** Range of epoch numbers of an entry, as text. */
export function numbers({ first, last }) {
  return first.epoch === last.epoch ? `Epoch ${first.epoch}` : `Epochs ${first.epoch}–${last.epoch}, one plan`;
}

/** The changes of an entry, as texts. */
export function changes({ first, before, revisions }) {
  const found = [];
  const list = (names, word) => {
    if (!names.length) return;
    const shown = names.slice(0, 3).join(", ");
    found.push(`${word} ${shown}${names.length > 3 ? ` and ${names.length - 3} more` : ""}`);
  };
  list(first.queries_added, first.queries_added.length === first.query_count ? "queries:" : "new:");
  list(first.queries_removed, "gone:");
  if (before) {
    for (const name of ["optimizer", "objective", "parallelism"]) {
      if (first[name] !== before[name]) found.push(`${name} ${before[name]} → ${first[name]}`);
    }
  }
  const counts = first.changes;
  if (counts) {
    const part = (word, added, removed) => (added || removed ? [`${word}: ${[added && `${added} new`, removed && `${removed} gone`].filter(Boolean).join(", ")}`] : []);
    found.push(...part("steps", counts.steps_added, counts.steps_removed), ...part("stores", counts.stores_built, counts.stores_dropped));
  }
  if (revisions) found.push(`rules revised ${revisions === 1 ? "once" : `${revisions} times`}`);
  if (first.fallback) found.push(first.fallback);
  return found;
}

/** The lists of a difference: title, sign, entries with their price. */
export function lists({ steps, stores }) {
  return [
    { title: "New stores", sign: "+", entries: stores.built },
    { title: "New steps", sign: "+", entries: steps.added },
    { title: "Removed stores", sign: "−", entries: stores.dropped },
    { title: "Removed steps", sign: "−", entries: steps.removed },
    { title: "Common stores", sign: "", entries: stores.retained },
    { title: "Common steps", sign: "", entries: steps.kept },
  ].filter(({ entries }) => entries.length);
}

/** A cost with the digits by which two similar plans differ. */
function figure(cost) {
  return cost === null ? "unknown" : cost.toLocaleString("en", { maximumSignificantDigits: 4 });
}

/** The figures of a difference. */
export function figures({ queries_added: added, queries_removed: removed, settings, diff }) {
  const pairs = [
    ...(added.length ? [["new queries", some(added), "long"]] : []),
    ...(removed.length ? [["removed queries", some(removed), "long"]] : []),
    ...Object.entries(settings).map(([name, [before, after]]) => [name, `${before} → ${after}`]),
  ];
  if (!diff) return pairs;
  const { totals } = diff;
  const of = (word, plus, minus, both) => [word, `${totals[plus].count} new, ${totals[minus].count} gone, ${totals[both].count} kept`];
  return [
    ...pairs,
    ["cost", `${figure(diff.cost_before)} → ${figure(diff.cost_after)}`],
    of("steps", "added", "removed", "kept"),
    of("stores", "built", "dropped", "retained"),
  ];
}

/** Reasons for shared steps and kept results, greatest savings first. */
export function reasons(found) {
  if (!found) return [];
  return [
    ...found.kept.map((one) => ({
      what: one.label,
      why: `kept: without it probes would cost ${short(one.detours)} more, its upkeep costs ${short(one.upkeep)}`,
      saves: one.saved,
      users: one.users,
    })),
    ...found.shared.map((one) => ({
      what: one.kind === "store" ? `store ${one.label}` : one.label,
      why: `shared: paid once (${short(one.cost)}) instead of ${one.users.length} times`,
      saves: one.saved,
      users: one.users,
    })),
  ].sort((a, b) => b.saves - a.saves);
}
