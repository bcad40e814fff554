// Formatting of times, in UTC as in all pages and answers.

import { make } from "./dom.js";

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** Format seconds in the largest suitable unit: 5400 -> "1.5 h". */
export function length(seconds) {
  for (const [size, unit] of UNITS) {
    if (seconds >= size) return `${Number((seconds / size).toPrecision(2))} ${unit}`;
  }
  return seconds ? `${Math.max(1, Math.round(seconds * 1000))} ms` : "0 s";
}

/** "2026-11-24T07:22:56.123Z" -> "2026-11-24 07:22:56". */
export function clock(text) {
  return text.replace("T", " ").replace(/(\.\d+)?(Z|\+00:00)$/, "");
}

/** A time with its distance from now, as an element; a dash for null. */
export function moment(text) {
  if (!text) return make("span", { text: "–" });
  const seconds = (Date.now() - Date.parse(text)) / 1000;
  const distance = seconds < 0 ? `in ${length(-seconds)}` : `${length(seconds)} ago`;
  return make("time", { dateTime: text, title: `${clock(text)} UTC` }, `${clock(text)} `, make("span", { className: "muted", text: `(${distance})` }));
}
