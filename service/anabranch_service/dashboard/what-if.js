// What an epoch says of cost shares and of changes against the epoch before, as lines to show.

const MAX_SHARES = 12;
const MAX_CHANGES = 10;

/** The dearest queries with their shares, and a note on what is left out or unknown. */
export function shares(epoch) {
  const found = epoch?.shares;
  if (!found) return { rows: [], note: epoch ? "Published by a version that did not split costs." : "" };
  const omitted = found.omitted + Math.max(found.queries.length - MAX_SHARES, 0);
  const notes = [];
  if (omitted) notes.push(`${omitted} more queries cost less.`);
  if (found.note) notes.push(`${found.note}.`);
  return { rows: found.queries.slice(0, MAX_SHARES), note: notes.join(" ") };
}

/** What is new and what is gone, stores before steps, dearest first. */
export function changes(epoch) {
  const diff = epoch?.diff;
  if (!diff) return { title: "What changed", cost: "", count: epoch?.diff_reason ?? "", lines: [] };
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
      (total > shown.length ? ` The dearest ${shown.length} of ${total}:` : "");
  const before = diff.cost_before === null ? "unknown" : round(diff.cost_before);
  return {
    title: `What changed since epoch ${diff.epoch}`,
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
