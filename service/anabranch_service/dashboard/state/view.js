// Texts, numbers and charts of stores. Pure functions.

import { Names } from "../names.js";

/** Most rows of the table of stores. */
export const MOST_ROWS = 100;
/** Most partitions drawn as separate rows. */
const MOST_PARTITIONS = 32;
/** A picture of fewer pixels has room for the first and the last time only. */
const NARROW = 600;
/** Number of colours for levels of segments; the last one is for all higher levels. */
export const LEVELS = 5;

/** Sort keys of stores: a number (null: unknown) or a text. */
const KEYS = {
  store: (s) => s.store,
  rows: (s) => s.rows,
  bytes: (s) => s.bytes,
  segments: (s) => s.segments,
  probes: (s) => s.reads?.probes ?? null,
  hits: (s) => s.reads?.hit_rate ?? null,
  looked: (s) => s.reads?.read_amplification ?? null,
};

/** Stores with all words of `filter` in their names, streams or queries. */
export function list(state, { filter, by, descending }) {
  const all = state?.stores ?? [];
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = all
    .filter((s) => {
      if (words.length === 0) return true;
      const text = [s.store, s.mir, ...s.streams, ...s.filter, ...s.queries].join("\n").toLowerCase();
      return words.every((w) => text.includes(w));
    })
    .sort((a, b) => order(KEYS[by](a), KEYS[by](b), descending) || a.store.localeCompare(b.store));
  return {
    rows: matching.slice(0, MOST_ROWS).map((s) => ({ ...s, ...described(s) })),
    matching: matching.length,
    all: all.length,
  };
}

/** Unknown values come last in every order. */
function order(a, b, descending) {
  if (a === null || b === null) return (a === null) - (b === null);
  const sign = descending ? -1 : 1;
  return sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
}

const COUNTS = ["probes", "found", "matches", "by_batch", "by_partition", "by_time", "filtered", "looked"];

/** Reads of all stores together in the last complete epoch; null before the first. */
export function asked(state) {
  const known = (state?.stores ?? []).map((s) => s.reads).filter(Boolean);
  if (known.length === 0) return null;
  const sum = Object.fromEntries(COUNTS.map((c) => [c, known.reduce((n, r) => n + r[c], 0)]));
  const passed = sum.by_batch + sum.by_partition + sum.by_time;
  const share = (part, whole) => (whole ? part / whole : null);
  return {
    ...sum,
    hit_rate: share(sum.found, sum.probes),
    read_amplification: share(sum.looked, sum.probes),
    filtered_share: share(sum.filtered, sum.filtered + sum.looked),
    passed_share: share(passed, passed + sum.filtered + sum.looked),
  };
}

/**
 * Segments as bars, one row per partition: from the first to the last batch (or event time), with the
 * bytes as height.
 */
export function picture(parts, axis, { width, left, height }) {
  const spans = parts.map((p) => (axis === "batches" ? [p.batches[0], p.batches[1] + 1] : p.event_time));
  const drawn = parts.map((part, i) => ({ part, span: spans[i] })).filter((d) => d.span !== null);
  const partitions = [...new Set(drawn.map((d) => d.part.partition))].sort((a, b) => a - b);
  const shown = partitions.slice(0, MOST_PARTITIONS);
  if (shown.length === 0) return null;
  const first = drawn.reduce((least, d) => Math.min(least, d.span[0]), Infinity);
  const last = Math.max(drawn.reduce((most, d) => Math.max(most, d.span[1]), -Infinity), first + 1);
  const most = drawn.reduce((n, d) => Math.max(n, d.part.bytes), 1);
  const gap = 6;
  const row = Math.max(height / shown.length - gap, 16);
  const place = (value) => left + ((value - first) / (last - first)) * (width - left);
  const lines = shown.map((partition, line) => {
    const bottom = line * (row + gap) + row;
    const bars = drawn
      .filter((d) => d.part.partition === partition)
      .map(({ part, span: [from, to] }) => {
        const high = Math.max((part.bytes / most) * row, 2);
        return {
          part,
          x: place(from),
          width: Math.max(place(to) - place(from) - 1, 1.5),
          y: bottom - high,
          height: high,
          level: Math.min(part.level, LEVELS - 1),
        };
      });
    return { partition, bottom, bars };
  });
  const ticks = (width < NARROW ? [0, 1] : [0, 0.25, 0.5, 0.75, 1]).map((share) => {
    const value = first + share * (last - first);
    return { x: left + share * (width - left), text: axis === "batches" ? `${Math.round(value)}` : moment(value) };
  });
  return {
    lines,
    ticks: ticks.filter((t, i) => i === 0 || t.text !== ticks[i - 1].text),
    bottom: lines.at(-1).bottom,
    undated: parts.length - drawn.length,
    omitted: partitions.length - shown.length,
  };
}

/** Format microseconds since 1970 as a time, to the second. */
export function moment(micros) {
  const date = new Date(micros / 1000);
  if (Number.isNaN(date.getTime())) return `${micros} µs`;
  return date.toISOString().replace("T", " ").replace(/\.\d+Z$/, "");
}

/** Description of a segment in one line. */
export function told(part, bytes) {
  const where = `partition ${part.partition}, level ${part.level}, batches ${range(part.batches)}`;
  const size = `${part.rows.toLocaleString("en")} rows, ${bytes(part.bytes)}`;
  const time = part.event_time ? `, ${moment(part.event_time[0])} to ${moment(part.event_time[1])}` : "";
  return `${where}: ${size}${time}`;
}

/**
 * Chart of a value over epochs as a line with gaps for unknown values, scaled from 0 to `top` or to the
 * greatest value.
 */
export function line(history, value, { width, height, top = null }) {
  const points = history.map((e) => ({ epoch: e.epoch, value: value(e) })).filter((p) => p.value !== null);
  if (points.length === 0) return null;
  const most = top ?? (Math.max(...points.map((p) => p.value)) || 1);
  const [from, to] = [history[0].epoch, history.at(-1).epoch];
  const placed = points.map((p) => ({
    ...p,
    x: to === from ? width / 2 : ((p.epoch - from) / (to - from)) * width,
    y: height - (p.value / most) * height,
  }));
  const known = new Set(points.map((p) => p.epoch));
  const before = new Map(history.map((e, i) => [e.epoch, history[i - 1]?.epoch]));
  const path = placed
    .map((p) => `${known.has(before.get(p.epoch)) ? "L" : "M"}${p.x.toFixed(1)} ${p.y.toFixed(1)}`)
    .join("");
  const values = points.map((p) => p.value);
  return {
    path,
    points: placed,
    most,
    from,
    to,
    last: values.at(-1),
    least: Math.min(...values),
    greatest: Math.max(...values),
  };
}

/** Totals of all stores, as pairs of name and text. */
export function totals(state, bytes) {
  if (!state) return [["stored", "nothing yet"]];
  const segments = state.stores.reduce((sum, s) => sum + s.segments, 0);
  const indexes = state.stores.reduce((sum, s) => sum + s.index_bytes, 0);
  return [
    ["stores", state.stores.length],
    ["segments", segments],
    ["bytes", bytes(state.bytes)],
    ["indexes among these", bytes(indexes)],
    ["space amplification", state.space_amplification?.toFixed(2) ?? "–"],
    ["written by batches", bytes(state.inserted_bytes)],
    ["by merges", bytes(state.merged_bytes)],
    ["write amplification", state.write_amplification?.toFixed(2) ?? "–"],
  ];
}

/** Description of a store: streams, filters, key, partitions. */
export function described(store) {
  return {
    of: store.members.length ? new Names(null).text(store.members.join("⋈")) : store.streams.join(", "),
    where: store.filter.join(" AND "),
    split: store.partitions === 1 ? "1" : `${store.partitions}${store.partition ? ` by ${store.partition}` : ""}`,
    span: store.batches.map(range).join(", "),
  };
}

/** Format a range; a single number if both ends are equal. */
export function range([first, last]) {
  return first === last ? `${first}` : `${first}–${last}`;
}
