// Texts and numbers about a stream, from the service's answers. Pure functions.

import { some } from "../dom.js";
import { retentionOf, streams } from "../measured.js";
import { rejects } from "../streams/view.js";
import { clock, length } from "../times.js";

const count = (number) => (number === null ? "–" : number.toLocaleString("en"));

/** Number of remembered samples of the row counter: ten minutes. */
export const LOOKS = 300;

/** Add a sample of the row counter to `looks`, pairs of seconds and number of rows; start over if it has decreased. */
export function looked(looks, seconds, rows) {
  if (rows === null) return [];
  const last = looks.at(-1);
  if (last && (rows < last.rows || seconds - last.seconds > 60)) return [{ seconds, rows }];
  return [...looks, { seconds, rows }].slice(-LOOKS);
}

/** Rows per second between samples, and in the last ten seconds; null: not known yet. */
export function rates(looks) {
  const values = looks.slice(1).map((look, at) => (look.rows - looks[at].rows) / Math.max(look.seconds - looks[at].seconds, 1e-3));
  const last = looks.at(-1);
  const first = last && looks.find(({ seconds }) => last.seconds - seconds <= 10);
  const now = first && first !== last ? (last.rows - first.rows) / (last.seconds - first.seconds) : null;
  return { values, now };
}

/** Counts of a stream's rows, as pairs of name and text. */
export function figures(stream, now) {
  const waiting = stream.waiting_tuples;
  return [
    ["rows", stream.input_tuples === null ? "none read" : count(stream.input_tuples)],
    ["rows per second", now === null ? (stream.input_tuples === null ? "–" : "counting …") : Number(now.toPrecision(3)).toLocaleString("en")],
    ["waiting", waiting === null ? "not reported" : waiting ? `${waiting.toLocaleString("en")}, for ${length(stream.waiting_seconds ?? 0)}` : "nothing"],
    ...(stream.snapshot ? [["snapshot", `${count(stream.snapshot.read)} of ${count(stream.snapshot.rows)} rows read`]] : []),
    ["late", `${count(stream.late_tuples)}${stream.keep_late ? ", kept" : ""}`],
    ["invalid", count(stream.invalid_tuples)],
    ["ahead", count(stream.ahead_tuples)],
    ...(stream.site ? [["arrives at", stream.at_site === false ? `${stream.site}, which has no executor` : stream.site]] : []),
    ...(stream.kind === "table"
      ? [["kind", "table for look-ups"], ["key", stream.key?.join(", ") ?? "none"], ...table(stream.table)]
      : [...(stream.changes ? [["kind", `${stream.kind}${stream.key ? ` by ${stream.key.join(", ")}` : ""}`]] : []),
        ["event time", stream.event_time ?? "none"], ["lateness allowed", stream.lateness], ["idle timeout", stream.idle_timeout ?? "none"]]),
    ...(stream.query ? [["rows of query", stream.query]] : []),
    ["kept", kept(stream)],
  ];
}

/** Rows and version of a table, as pairs. */
export function table({ version, looked_up: looked, read_at: read, rows }) {
  const coming = looked === version ? "" : `; version ${version} is being read`;
  return [
    ["rows kept", count(rows)],
    ["version", looked === null ? `none complete${coming}` : `${looked}, complete since ${clock(read)} UTC${coming}`],
  ];
}

/** Retention of the stream's stored rows, as text. */
function kept(stream) {
  if (stream.kind === "table") return stream.key ? "the last row of each key" : "all rows";
  const own = { all: "all rows", none: "" }[stream.retain] ?? `rows of the last ${stream.retain}`;
  return [retentionOf(stream), own].filter(Boolean).join("; ") || "as queries require";
}

/** Names of the streams of a query. */
const streamsOf = ({ normalised }) => new Set(normalised.aliases.map(({ stream }) => stream));

/** Queries that wait for this stream, since its watermark is the least of their streams. */
export function held(stream, streams, readers) {
  const marks = new Map(streams.map(({ name, watermark }) => [name, watermark ? Date.parse(watermark) : null]));
  const own = Date.parse(stream.watermark);
  return readers.filter((query) => {
    const beside = [...streamsOf(query)].filter((name) => name !== stream.name && marks.get(name) != null);
    return beside.length > 0 && beside.every((name) => marks.get(name) > own);
  });
}

/** The stream's watermark, its delay behind the clock, and the queries that wait for it, as pairs. */
export function time(stream, streams, readers, now) {
  if (!stream.event_time) return [];
  if (stream.lateness === "unbounded") return [["watermark", "none: unbounded lateness accepts rows of any age"]];
  if (!stream.watermark) return [["watermark", "none before the first load has been read"]];
  const lag = (now - Date.parse(stream.watermark)) / 1000;
  const waiting = held(stream, streams, readers).map(({ id }) => id);
  return [
    ["watermark", `${clock(stream.watermark)} UTC`],
    ["behind the clock", lag < 0 ? `${length(-lag)} ahead of it` : length(lag)],
    ["behind its rows", `${stream.lateness} behind the greatest event time read; further ahead if the idle timeout has moved it`],
    ["holds back", waiting.length ? `${some(waiting)}: their slowest stream; its watermark decides when stored rows expire, and windows and outer joins close` : "no query"],
  ];
}

/** The stream's source, as pairs of name and text. */
export function source({ source: { format, path, options, ...rest }, source_status: status }) {
  const more = Object.entries(rest).filter(([, value]) => value !== null && typeof value !== "object");
  return [
    ["format", format],
    ["place", path],
    ...Object.entries(options),
    ...more,
    ["state", `${status.state}${status.since && status.state !== "stopped" ? ` since ${clock(status.since)}` : ""}`],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
}

/** Problems that prevent the reading of rows, as texts. */
export function problems(stream) {
  const { state, error, since } = stream.source_status;
  const found = [];
  if (state === "failed") found.push(`It is not read${since ? ` since ${clock(since)}` : ""}: ${error ?? "no reason is known"}. Retrying automatically.`);
  if (state === "stopped") found.push(`No runtime is running to read it${error ? `; last error: ${error}` : ""}. Start one with anabranch up.`);
  const rejected = rejects(stream);
  if (rejected) found.push(`Rows were rejected: ${rejected}. ${stream.keep_late ? `They are in .late/${stream.name} of the results. ` : ""}Health has the remedy; to accept them: anabranch stream set ${stream.name} --accept-rejects.`);
  if (stream.lost_entries) found.push(`${stream.lost_entries.toLocaleString("en")} entries were removed before they were read.`);
  return found;
}

/** Classes of delay, with their shares of all rows. */
export function delays(stream) {
  if (!stream.statistics) return [];
  return streams({ streams: { it: stream.statistics } })[0].bars;
}

/** Format a value of a sample; dates and timestamps are given as numbers. */
export function value(one, type) {
  if (one === null) return "NULL";
  if (type === "timestamp" && typeof one === "number") return clock(new Date(one / 1000).toISOString());
  if (type === "date" && typeof one === "number") return new Date(one * 86_400_000).toISOString().slice(0, 10);
  const text = String(one);
  return text.length > 40 ? `${text.slice(0, 39)}…` : text;
}

/** Skipped parts of the input that could not be read, as texts. */
export function unread({ last = [] }) {
  return last.map((piece) => `${piece.source}, ${piece.unit} ${piece.first} to ${piece.last ?? "the end"}: ${piece.reason} (batch ${piece.batch})`);
}

