// Texts of the list of streams, a registration as form fields, the outcome of a test. Pure functions.

import { some } from "../dom.js";
import { clock } from "../times.js";

/** Fields of a registration that the form has. */
const FIELDS = ["name", "columns", "event_time", "lateness", "kind", "key", "source"];

/** Counts of rejected rows that no operator has accepted, as text; "": none. */
export function rejects({ late_tuples: late, invalid_tuples: invalid, ahead_tuples: ahead, accepted_rejects: accepted }) {
  const counts = Object.entries({ late, invalid, ahead }).filter(([, number]) => number);
  const sum = counts.reduce((total, [, number]) => total + number, 0);
  return sum > accepted ? counts.map(([kind, number]) => `${number.toLocaleString("en")} ${kind}`).join(", ") : "";
}

const lines = (text) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);

/** Parse options, one name=value per line. */
export function optionsOf(text) {
  return Object.fromEntries(
    lines(text).map((line) => {
      const at = line.indexOf("=");
      if (at < 1) throw new Error(`“${line}” is not an option: write name=value`);
      return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    }),
  );
}

const path = (example) => ({ at: "path", label: "Path", example, needed: true });
const option = (name, label, example, needed = true) => ({ at: `options.${name}`, label, example, needed });

/**
 * Kinds of sources: their format (default: the kind) and fields, each with its place in a registration's source.
 * `named`: the field that names the stream. `declared`: why the service reads no rows of it.
 */
export const KINDS = [
  { kind: "files", label: "Files in a folder", fields: [path("/data/orders or s3://bucket/orders")], named: "path" },
  { kind: "kafka", label: "Kafka topic", fields: [option("topics", "Topic", "orders"), option("brokers", "Brokers", "broker:9092")], named: "options.topics" },
  {
    kind: "postgres",
    label: "PostgreSQL table",
    fields: [option("table", "Table", "public.orders"), option("url", "Address", "postgresql://etl@db.example:5432/shop"), option("password", "Password, as a reference", "${ANABRANCH_SOURCE_SHOP}", false)],
    named: "options.table",
  },
  { kind: "redis-stream", label: "Redis Stream", fields: [option("keys", "Keys", "by the stream's name", false), option("url", "Address", "the pipeline's own", false)], named: "options.keys" },
  { kind: "http", format: "redis-stream", label: "Rows by HTTP", fields: [], declared: "Rows are sent to POST /v1/streams/NAME/rows once the stream is registered." },
  { kind: "delta", label: "Delta table", fields: [path("/lake/orders")], named: "path" },
  { kind: "iceberg", label: "Iceberg table", fields: [option("table", "Table", "catalog.database.orders")], named: "options.table" },
  { kind: "recorded", label: "Recorded Parquet files", fields: [path("/data/orders.parquet"), { at: "rows_per_batch", label: "Rows per batch", example: "10000", needed: true }], named: "path" },
  { kind: "other", label: "Another source of Spark", fields: [{ at: "format", label: "Format", example: "parquet", needed: true }, { ...path(""), needed: false }], named: "path" },
];

/** The kind of a registration's source. */
const kindOf = ({ format = "recorded" }) => KINDS.find(({ kind }) => kind === format) ?? KINDS.at(-1);

/** A name for a stream, of the name of its source; "": it has none. */
export function nameOf(place) {
  const last = place.replace(/\/+$/, "").split(/[/.]/).at(-1);
  const made = last.replace(/[^A-Za-z0-9_]+/g, "_").replace(/^_+|_+$/g, "");
  return (/^\d/.test(made) ? `s_${made}` : made).slice(0, 128);
}

/** The `source` of a registration. `values`: texts of the kind's fields by place. `options`: further ones, as text. */
export function sourceOf({ kind, format = kind }, values, options, pasted) {
  const { path: _path, rows_per_batch: rows, options: _options, ...kept } = pasted.source ?? {};
  const source = { ...kept, ...(rows ? { rows_per_batch: rows } : {}), format, options: optionsOf(options) };
  for (const [place, text] of Object.entries(values)) {
    const [within, name] = place.startsWith("options.") ? [source.options, place.slice(8)] : [source, place];
    if (text) within[name] = name === "rows_per_batch" ? Number(text) : text;
  }
  return source;
}

/** The body of a registration. `columns`: of `{ name, type, time, key }`. `pasted`: further fields. */
export function bodyOf({ name, lateness, kind }, columns, source, pasted) {
  const key = columns.filter((one) => one.key).map((one) => one.name);
  const time = columns.find((one) => one.time);
  return {
    ...Object.fromEntries(Object.entries(pasted).filter(([field]) => !FIELDS.includes(field))),
    name,
    columns: columns.map((one) => ({ name: one.name, type: one.type })),
    ...(time ? { event_time: time.name } : {}),
    ...(lateness ? { lateness } : {}),
    ...(kind === "stream" ? {} : { kind }),
    ...(key.length ? { key } : {}),
    source,
  };
}

/** A registration as values of form fields, and the names of its fields that the form lacks. */
export function formOf(body) {
  const { source = {}, columns = {} } = body;
  const pairs = Array.isArray(columns) ? columns.map(({ name, type }) => [name, type]) : Object.entries(columns);
  const kind = kindOf(source);
  const places = kind.fields.map(({ at }) => at);
  const options = Object.entries(source.options ?? {});
  return {
    kind,
    values: { ...source, ...Object.fromEntries(options.map(([name, value]) => [`options.${name}`, value])) },
    options: options.filter(([name]) => !places.includes(`options.${name}`)).map((pair) => pair.join("=")).join("\n"),
    name: body.name ?? "",
    lateness: body.lateness ?? "",
    stream: body.kind ?? "stream",
    columns: pairs.map(([name, type]) => ({ name, type, time: name === body.event_time, key: (body.key ?? []).includes(name) })),
    more: Object.keys(body).filter((name) => !FIELDS.includes(name)),
  };
}

const OUTCOMES = {
  read: "readable",
  empty: "readable, but empty",
  failed: "cannot be read",
  "not tested": "rows not tested",
};

/** Outcome of a source test, as pairs of name and text. */
export function figures(found) {
  const { rows, invalid, places, event_times: times, keys } = found;
  return [
    ["source", OUTCOMES[found.outcome] ?? found.outcome],
    ...(found.found === null ? [] : [[found.unit, found.found.toLocaleString("en")]]),
    ...(rows.length ? [["rows tested", found.sampled.toLocaleString("en")], ["do not fit", invalid.toLocaleString("en"), invalid ? "bad" : ""]] : []),
    ...(found.first_event_time ? [["event times", `${clock(found.first_event_time)} to ${clock(found.last_event_time)}`, "long"]] : []),
    ...(found.disorder ? [["out of order", `by up to ${found.disorder}; a lateness of ${found.proposed_lateness} covers that`, "long"]] : []),
    ...(times.length ? [["could be the event time", some(times.map(({ column, disorder }) => `${column} (out of order by up to ${disorder})`)), "long"]] : []),
    ...(keys.length ? [["could be the key", some(keys.map((names) => names.join(" with "))), "long"]] : []),
    ...(places.length ? [["from", places.join(", "), "long"]] : []),
  ];
}

/** Values that do not fit their columns, as texts. */
export function misfits(found) {
  return found.misfits.map(({ row, column, value, expected, place }) => {
    const what = column === null ? "the row" : column;
    return `Row ${row + 1}: ${what} is ${value === null ? "null" : `“${value}”`}, not ${expected}${place ? ` (${place})` : ""}.`;
  });
}
