// What was measured in an epoch: streams with their delays, stores by size, as rows to show.

const MAX_STORES = 12;
/** Classes of delay that are drawn as one bar: powers of two, by factors of eight. */
const CLASSES = 3;

/** Streams in order of their rates; every delay bar is a part of all tuples, 0 to 1. */
export function streams(statistics) {
  const found = Object.entries(statistics?.streams ?? {});
  found.sort(([, a], [, b]) => (b.tuples_per_second ?? 0) - (a.tuples_per_second ?? 0));
  return found.map(([name, one]) => ({ name, ...one, bars: bars(one.delays) }));
}

/** Largest stores first, and how many are left out. */
export function stores(statistics) {
  const found = Object.entries(statistics?.stores ?? {}).map(([name, one]) => ({ name, ...one }));
  found.sort((a, b) => b.bytes - a.bytes || a.name.localeCompare(b.name));
  const most = Math.max(1, ...found.map((s) => s.bytes));
  return {
    rows: found.slice(0, MAX_STORES).map((s) => ({ ...s, part: s.bytes / most })),
    omitted: Math.max(found.length - MAX_STORES, 0),
  };
}

/** Probes of the epoch by what they cost: the dearest edges. */
export function edges(statistics, count = 8) {
  const found = Object.entries(statistics?.edges ?? {}).map(([name, one]) => ({ name, ...one }));
  found.sort((a, b) => b.nanoseconds - a.nanoseconds);
  const most = Math.max(1, ...found.map((e) => e.nanoseconds));
  return found.slice(0, count).map((e) => ({ ...e, part: e.nanoseconds / most }));
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

/** Microseconds in their largest unit. */
export function span(micros) {
  if (micros === undefined || micros === null) return "–";
  const units = [[3.6e9, "h"], [6e7, "min"], [1e6, "s"], [1e3, "ms"]];
  for (const [size, unit] of units) {
    if (micros >= size) return `${Number((micros / size).toPrecision(2))} ${unit}`;
  }
  return micros ? `${micros} µs` : "0";
}

/** Which tuples of a stream are of use, in words; null: all. */
export function retentionOf(stream) {
  const { ttl, latest } = stream.retention ?? {};
  return [ttl, latest && `latest of ${latest.join(", ")}`].filter(Boolean).join(", ") || null;
}
