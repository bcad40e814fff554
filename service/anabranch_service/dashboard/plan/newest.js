// What pages read of the newest epoch: its record, with many queries in parts, and the names in its plan.

import { read } from "../access.js";

/** Most queries with whose epoch the whole plan is requested: 120 KB with a thousand. */
export const MOST_WHOLE = 30;

const kept = { record: { key: "" }, names: { key: "" } };

/** Request `path` unless its answer is kept under the same `key`. */
async function once(kind, key, path) {
  if (kept[kind].key !== key) kept[kind] = { key, answer: await read(path) };
  return kept[kind].answer;
}

const keyOf = (summary) => [summary.epoch, summary.ruleset_digest, summary.explained].join(" ");

/** The meanings of ids in plans and statistics; `summary`: the newest epoch, or null. */
export function planNames(summary) {
  return once("names", summary ? keyOf(summary) : "none", "/v1/plan/names");
}

/**
 * The record of an epoch with a known `summary`; requested again when it has been explained. With many
 * queries it has the part of `query` only, and short lists.
 */
export async function recordOf(summary, query) {
  const many = summary.queries.length > MOST_WHOLE;
  const chosen = summary.queries.find((name) => name === query) ?? summary.queries[0];
  const part = many ? `?detail=summary&query=${encodeURIComponent(chosen.split("+", 1)[0])}` : "";
  const path = `/v1/epochs/${summary.epoch}${part}`;
  return once("record", `${keyOf(summary)} ${path}`, path);
}
