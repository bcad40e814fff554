// Charts and figures of batches as stacks of phases. Pure functions.

/** Phases of a batch with their descriptions, in stacking order from the bottom. */
export const PHASES = [
  ["begin", "before Spark's job"],
  ["spark", "Spark: starting tasks, taking reports"],
  ["read", "reading arrivals"],
  ["store", "storing"],
  ["wait", "waiting for other tasks"],
  ["probe", "probing"],
  ["catch-up", "catching up on withheld results"],
  ["write", "writing results"],
  ["backfill", "backfilling"],
  ["upload", "uploading"],
  ["commit", "committing"],
];

/** Format milliseconds, in the unit of the `greatest` value of a column or axis. */
export function milliseconds(count, greatest = count) {
  return greatest >= 1000 ? `${Number((count / 1000).toPrecision(3))} s` : `${Math.round(count)} ms`;
}

const took = (batch, phase) => batch.phases.find(({ name }) => name === phase)?.milliseconds ?? 0;

/** Phases with a time above 0, with their means over all batches. */
export function means(batches) {
  return PHASES.map(([name, text]) => ({
    name,
    text,
    mean: batches.reduce((sum, batch) => sum + took(batch, name), 0) / Math.max(batches.length, 1),
  })).filter(({ mean }) => mean > 0);
}

/** Quantile of values: the value below which the given share of them lies. */
export function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(Math.floor(share * sorted.length), sorted.length - 1)] : 0;
}

/**
 * Rectangles and marks of a chart of `width` by `height` pixels: a stack per batch, the oldest on the left;
 * a mark where an epoch or a ruleset begins.
 */
export function stacks(batches, { width, height }) {
  const most = Math.max(1, ...batches.map((batch) => batch.milliseconds));
  const step = width / Math.max(batches.length, 20);
  const first = width - step * batches.length;
  const rectangles = [];
  const marks = [];
  batches.forEach((batch, at) => {
    const x = first + at * step;
    let y = height;
    for (const [name] of PHASES) {
      const high = (took(batch, name) / most) * height;
      if (!high) continue;
      y -= high;
      rectangles.push({ x, y, width: Math.max(step - (step > 4 ? 1.5 : 0), 0.5), height: high, phase: name, batch });
    }
    const before = batches[at - 1];
    if (before && (before.epoch !== batch.epoch || before.ruleset !== batch.ruleset)) {
      marks.push({ x: x - (step > 4 ? 0.75 : 0), epoch: before.epoch !== batch.epoch ? batch.epoch : null, ruleset: batch.ruleset });
    }
  });
  return { rectangles, marks, most };
}

/** The longest phase of a batch, with its share of the time. */
export function longest(batch) {
  const found = batch.phases.reduce((best, phase) => (phase.milliseconds > (best?.milliseconds ?? -1) ? phase : best), null);
  return found && { name: found.name, share: batch.milliseconds ? found.milliseconds / batch.milliseconds : 0 };
}

/** Sort batches by the selected order. */
export function ordered(batches, order) {
  const newest = [...batches].reverse();
  if (order === "slowest") return newest.sort((a, b) => b.milliseconds - a.milliseconds);
  if (order === "skew") return newest.sort((a, b) => (b.skew ?? 0) - (a.skew ?? 0));
  return newest;
}
