// Table rows for the measurements of an epoch: streams with their delays, stores, probes.

const MAX_STORES = 12;
/** Number of delay classes (powers of two) per bar. */
const CLASSES = 3;

/** Streams in order of their rates; a delay bar has the share (0 to 1) of all tuples. */
export function streams(statistics) {
  const found = Object.entries(statistics?.streams ?? {});
  found.sort(([, a], [, b]) => (b.tuples_per_second ?? 0) - (a.tuples_per_second ?? 0));
  return found.map(([name, one]) => ({ name, ...one, bars: bars(one.delays) }));
}

/** The largest stores, and the number of omitted ones. */
export function stores(statistics) {
  const found = Object.entries(statistics?.stores ?? {}).map(([name, one]) => ({ name, ...one }));
  found.sort((a, b) => b.bytes - a.bytes || a.name.localeCompare(b.name));
  const most = Math.max(1, ...found.map((s) => s.bytes));
  return {
    rows: found.slice(0, MAX_STORES).map((s) => ({ ...s, part: s.bytes / most })),
    omitted: Math.max(found.length - MAX_STORES, 0),
  };
}

/** The edges (probes) with the most CPU time in the epoch. */
export function edges(statistics, count = 8) {
  const found = Object.entries(statistics?.edges ?? {}).map(([name, one]) => ({ name, ...one }));
  found.sort((a, b) => b.nanoseconds - a.nanoseconds);
  const most = Math.max(1, ...found.map((e) => e.nanoseconds));
  return found.slice(0, count).map((e) => ({ ...e, part: e.nanoseconds / most }));
}

/** The edges with the most bytes sent between hosts in the epoch; none with a single host. */
export function sent(statistics, count = 8) {
  const found = Object.entries(statistics?.edges ?? {}).map(([name, one]) => ({ name, ...one }));
  const most = Math.max(1, ...found.map((e) => e.sent_bytes));
  return found
    .filter((e) => e.sent_bytes > 0)
    .sort((a, b) => b.sent_bytes - a.sent_bytes || a.name.localeCompare(b.name))
    .slice(0, count)
    .map((e) => ({ ...e, part: e.sent_bytes / most }));
}

const MOST_COURSES = 8;

/** Relations, highest rate first; `values` has one rate per period, null: not measured. */
export function rates(series) {
  const found = Object.entries(series?.relations ?? {}).map(([name, values]) => ({ name, values, now: newest(values) }));
  found.sort((a, b) => (b.now ?? -1) - (a.now ?? -1) || a.name.localeCompare(b.name));
  return { rows: found.slice(0, MOST_COURSES), omitted: Math.max(found.length - MOST_COURSES, 0) };
}

/** Steps in descending order of their CPU time in all periods. */
export function steps(series) {
  const found = (series?.steps ?? []).map((step) => ({
    name: `${step.head.join(", ")} → ${step.target.join(", ")}${step.part ? ` (${step.part})` : ""}`,
    values: step.hit_ratio,
    now: newest(step.hit_ratio),
    matches: newest(step.matches_per_hit),
    cost: step.cpu_microseconds.reduce((sum, each, i) => sum + (each ?? 0) * (step.probes[i] ?? 0), 0),
  }));
  found.sort((a, b) => b.cost - a.cost || a.name.localeCompare(b.name));
  return { rows: found.slice(0, MOST_COURSES), omitted: Math.max(found.length - MOST_COURSES, 0) };
}

/**
 * SVG path of a line through equidistant values, scaled from 0 to `top` (or the greatest), with gaps for
 * null. A value between two gaps is a dot.
 */
export function course(values, { width, height, top = null }) {
  const most = top ?? Math.max(0, ...values.filter((v) => v !== null));
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  const at = (value, i) => `${(i * step).toFixed(1)} ${(height - (most ? value / most : 0) * height).toFixed(1)}`;
  return values
    .map((value, i) => {
      if (value === null) return "";
      const joined = i > 0 && values[i - 1] !== null;
      return joined ? `L${at(value, i)}` : `M${at(value, i)}h0.1`;
    })
    .join("");
}

function newest(values) {
  return values.findLast((value) => value !== null) ?? null;
}

function bars(delays) {
  const total = delays.reduce((sum, d) => sum + d.tuples, 0);
  if (total === 0) return [];
  const [onTime, ...behind] = delays;
  const groups = [{ label: "in order", tuples: onTime.tuples }];
  for (let first = 0; first < behind.length; first += CLASSES) {
    const part = behind.slice(first, first + CLASSES);
    groups.push({
      label: `less than ${span(part[part.length - 1].below_us)}`,
      tuples: part.reduce((sum, d) => sum + d.tuples, 0),
    });
  }
  return groups.map((g) => ({ ...g, part: g.tuples / total }));
}

/** Format microseconds in the largest suitable unit. */
export function span(micros) {
  if (micros === undefined || micros === null) return "–";
  const units = [[3.6e9, "h"], [6e7, "min"], [1e6, "s"], [1e3, "ms"]];
  for (const [size, unit] of units) {
    if (micros >= size) return `${Number((micros / size).toPrecision(2))} ${unit}`;
  }
  return micros ? `${micros} µs` : "0";
}

/** A stream's retention as text; null: all tuples. */
export function retentionOf(stream) {
  const { ttl, latest } = stream.retention ?? {};
  return [ttl, latest && `latest of ${latest.join(", ")}`].filter(Boolean).join(", ") || null;
}
