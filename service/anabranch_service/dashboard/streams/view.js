// Texts of the list of streams, a registration as form fields, the outcome of a test. Pure functions.

import { clock } from "../times.js";

/** Fields of a registration that the form has. */
const FIELDS = ["name", "columns", "event_time", "lateness", "source"];

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

/** Parse columns, one per line: "id bigint" or "id: bigint". */
export function columnsOf(text) {
  return lines(text).map((line) => {
    const [, name, type] = /^(\S+?)[\s:]+(.+?),?$/.exec(line) ?? [];
    if (!name) throw new Error(`“${line}” is not a column: write a name and a type`);
    return { name, type };
  });
}

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

/** The body of a registration: the fields of the form, and other `pasted` fields. */
export function bodyOf(form, pasted) {
  const more = Object.fromEntries(Object.entries(pasted).filter(([name]) => !FIELDS.includes(name)));
  const optional = { event_time: form.eventTime, lateness: form.lateness };
  const given = Object.fromEntries(Object.entries(optional).filter(([, value]) => value));
  const options = optionsOf(form.options);
  return {
    ...more,
    name: form.name,
    columns: columnsOf(form.columns),
    ...given,
    source: {
      format: form.format,
      ...(form.path ? { path: form.path } : {}),
      ...(form.rows ? { rows_per_batch: Number(form.rows) } : {}),
      ...(Object.keys(options).length ? { options } : {}),
    },
  };
}

/** A registration as values of form fields, and the names of its fields that the form lacks. */
export function formOf(body) {
  const { source = {}, columns = {} } = body;
  const pairs = Array.isArray(columns) ? columns.map(({ name, type }) => [name, type]) : Object.entries(columns);
  return {
    form: {
      name: body.name ?? "",
      columns: pairs.map((pair) => pair.join(" ")).join("\n"),
      eventTime: body.event_time ?? "",
      lateness: body.lateness ?? "",
      format: source.format ?? "recorded",
      path: source.path ?? "",
      rows: source.rows_per_batch ?? "",
      options: Object.entries(source.options ?? {}).map((pair) => pair.join("=")).join("\n"),
    },
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
  const { rows, invalid, places } = found;
  return [
    ["source", OUTCOMES[found.outcome] ?? found.outcome],
    ...(found.found === null ? [] : [[found.unit, found.found.toLocaleString("en")]]),
    ...(rows.length ? [["rows tested", rows.length.toLocaleString("en")], ["do not fit", invalid.toLocaleString("en"), invalid ? "bad" : ""]] : []),
    ...(found.first_event_time ? [["event times", `${clock(found.first_event_time)} to ${clock(found.last_event_time)}`, "long"]] : []),
    ...(found.disorder ? [["out of order", `by up to ${found.disorder}; a lateness of ${found.proposed_lateness} covers that`, "long"]] : []),
    ...(places.length ? [["from", places.join(", "), "long"]] : []),
  ];
}

/** Values that do not fit their columns, as texts. */
export function misfits(found) {
  return found.misfits.map(({ row, column, value, expected }) => {
    const what = column === null ? "the row" : column;
    return `Row ${row + 1}: ${what} is ${value === null ? "null" : `“${value}”`}, not ${expected}.`;
  });
}
