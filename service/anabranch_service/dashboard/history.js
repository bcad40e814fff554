// Chart of the last hours with a point per minute, the greatest value, the times and the interruptions.

import { read } from "./access.js";
import { element, make } from "./dom.js";
import { course } from "./measured.js";
import { length } from "./times.js";

/** Milliseconds between two requests: there is a new point every minute. */
const EVERY_MS = 30_000;
const HEIGHT = 110;
/** Path -> the newest request and its time: charts of one page share an answer. */
const requests = new Map();

function latest(path) {
  const known = requests.get(path);
  if (known && performance.now() - known.sent < EVERY_MS / 2) return known.answer;
  const answer = read(path);
  requests.set(path, { sent: performance.now(), answer });
  answer.catch(() => requests.delete(path));
  return answer;
}

const EDGE = 16;

/** One value per minute from the first point to the last; null: no point. */
export function series({ seconds, items }, value) {
  if (!items.length) return { values: [], first: null, last: null };
  const times = items.map(({ at }) => Math.round(Date.parse(at) / 1000));
  const values = new Array(Math.round((times.at(-1) - times[0]) / seconds) + 1).fill(null);
  items.forEach((item, i) => {
    values[Math.round((times[i] - times[0]) / seconds)] = value(item);
  });
  return { values, first: times[0], last: times.at(-1) };
}

const day = (seconds) => new Date(seconds * 1000).toISOString().slice(5, 10);
const hour = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 16);

/** Values without neighbours, between which there is no line, as dots. */
function alone(values, most, { width, height }) {
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  const lonely = (i) => values[i] !== null && (values[i - 1] ?? null) === null && (values[i + 1] ?? null) === null;
  return values.flatMap((value, i) => (lonely(i) ? [element("circle", { class: "alone", r: 3, cx: 3 + i * step * (1 - 3 / width), cy: 4 + height - (most ? value / most : 0) * height })] : []));
}

/** Runs of minutes without a point, or with the same interruption, oldest first: times in seconds and the reason. */
export function interruptions(found) {
  const { values, first } = series(found, ({ interruption }) => interruption ?? "");
  const runs = [];
  values.forEach((value, i) => {
    const reason = value ?? "no record";
    const until = first + i * found.seconds;
    if (reason && values[i - 1] === value) runs.at(-1).until = until;
    else if (reason) runs.push({ since: until - found.seconds, until, reason });
  });
  return runs;
}

/** A chart in `figure` with a summary in `note`; `write` formats a value, `also` has a second, lower line, `shown` gets the answer. */
export class History {
  constructor(figure, note, { path, value, write, what, also = null, shown = () => {} }) {
    Object.assign(this, { figure, note, path, value, write, what, also, shown, looked: null, space: 0 });
  }

  async refresh() {
    const space = this.figure.clientWidth;
    if (this.looked !== null && performance.now() - this.looked < EVERY_MS && space === this.space) return;
    Object.assign(this, { looked: performance.now(), space });
    const found = await latest(this.path);
    this.shown(found);
    const { values, first, last } = series(found, this.value);
    const known = values.filter((value) => value !== null);
    if (!known.length) {
      this.note.textContent = found.items.length ? "" : "a point comes every minute while the service runs";
      this.figure.replaceChildren(make("p", { className: "empty", text: found.items.length ? "No values in the recorded minutes." : "No minute has been recorded yet." }));
      return;
    }
    const most = Math.max(...known);
    const span = length(last - first + 60);
    this.note.textContent = `${span} in points of a minute, at most ${this.write(most)}`;
    const width = Math.max(this.figure.clientWidth, 200);
    const across = { width: width - 4, height: HEIGHT - EDGE - 4 };
    const step = values.length > 1 ? across.width / (values.length - 1) : 0;
    const left = (seconds) => 2 + Math.max((seconds - first) / found.seconds, 0) * step;
    const days = new Set([first, last].map(day));
    const text = (x, at, anchor) => element("text", { class: "small", x, y: HEIGHT - 3, "text-anchor": anchor }, `${days.size > 1 ? `${day(at)} ` : ""}${hour(at)} UTC`);
    this.figure.replaceChildren(
      element(
        "svg",
        { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": `${this.what} over ${span}: ${this.write(known.at(-1))} at last, ${this.write(most)} at most` },
        "",
        ...interruptions(found).map(({ since, until }) => element("rect", { class: "interruption", x: left(since), y: 2, width: Math.max(left(until) - left(since), 1), height: across.height + 2 })),
        element("path", { class: "axis", d: `M0 ${HEIGHT - EDGE}H${width}` }),
        ...(this.also ? [element("path", { class: "line also", d: course(series(found, this.also).values, { ...across, top: most }), transform: "translate(2 2)" })] : []),
        ...alone(values, most, across),
        element("path", { class: "line", d: course(values, across), transform: "translate(2 2)" }),
        ...(last > first ? [text(2, first, "start")] : []),
        text(width - 2, last, "end"),
      ),
    );
  }
}
