// Measurements page: streams, stores and probes of the last complete epoch, and the last minutes.

import { read, readEpochs } from "../access.js";
import { breakable, bytes, element, make, percent, say, stack } from "../dom.js";
import { short } from "../graph.js";
import { course, edges, rates, retentionOf, sent, span, steps, stores, streams } from "../measured.js";
import { Names } from "../names.js";
import { planNames } from "../plan/newest.js";
import { poll } from "../poll.js";
import { clock } from "../times.js";

const POLL_MS = 3000;
/** Size of a time series' chart in pixels. */
const COURSE = { width: 180, height: 26 };

const at = (id) => document.getElementById(id);
/** Statistics of the shown epoch, which never change once it has ended. */
const kept = { epoch: -1, statistics: null };

at("epoch").addEventListener("change", () => refresh());

/** State of a stream's source for its table row: red if unreadable; since when, if no tuple has arrived. */
function sourceOf(stream) {
  const { state, error, since } = stream.source_status;
  const none = state === "reading" && !stream.input_tuples ? `, 0 tuples since ${clock(since)}` : "";
  const badge = make("span", { className: `badge ${state.replace(" ", "-")}`, text: state, title: error ?? "" });
  return make("td", {}, badge, none);
}

/** Statistics of an ended epoch; null: none. */
async function readStatistics(epoch) {
  if (epoch < 0) return null;
  if (kept.epoch !== epoch) {
    const found = await read(`/v1/epochs/${epoch}/statistics`);
    if (found === null) return null;
    Object.assign(kept, { epoch, statistics: found });
  }
  return kept.statistics;
}

/** Fill the list of epochs, if it has changed: it may be open. */
function offerEpochs(epochs) {
  const choice = at("epoch");
  const numbers = epochs.map(({ epoch }) => String(epoch));
  const [newest, ...known] = [...choice.options];
  if (known.map(({ value }) => value).join() === numbers.join()) return;
  const chosen = choice.value;
  choice.replaceChildren(newest, ...numbers.map((number) => make("option", { value: number, text: number })));
  choice.value = numbers.includes(chosen) ? chosen : "";
}

function meter(name, part, ...figures) {
  const fill = make("div", { className: "fill" });
  fill.style.width = `${part * 100}%`;
  return make(
    "li",
    {},
    make("span", { className: "what" }, ...breakable(name)),
    make("div", { className: "track", "aria-hidden": "true" }, fill),
    make("span", { className: "muted number", text: figures.join(" · ") }),
  );
}

function delays(stream) {
  const picture = make("span", {
    className: "delays",
    role: "img",
    "aria-label": stream.bars.map((b) => `${b.label}: ${(b.part * 100).toFixed(1)} %`).join(", "),
  });
  for (const bar of stream.bars) {
    const made = make("span", { title: `${bar.label}: ${bar.tuples.toLocaleString("en")}` });
    made.style.height = `${bar.tuples ? Math.max(bar.part * 100, 12) : 0}%`;
    picture.append(made);
  }
  return picture;
}

function showMeasured(found, streamsOf, names) {
  const measured = new Map(streams(found).map((s) => [s.name, s]));
  const known = new Map(streamsOf.map((s) => [s.name, s]));
  const every = [...new Set([...measured.keys(), ...known.keys()])];
  const rows = every.map((name) => {
    const s = measured.get(name);
    const stream = known.get(name);
    return make(
      "tr",
      {},
      make("td", { className: "name" }, make("a", { href: `/dashboard/stream/${encodeURIComponent(name)}` }, ...breakable(name))),
      stream ? sourceOf(stream) : make("td", { text: "–" }),
      make("td", { className: "number", text: s ? short(s.tuples_per_second) : "–" }),
      make("td", { className: "number", text: s ? short(s.tuples_per_event_second) : "–" }),
      make("td", { className: "number", text: s ? s.late.toLocaleString("en") : "–" }),
      make("td", {}, s?.bars.length ? delays(s) : "–"),
      make("td", { className: "number", text: s ? span(s.delay_us.p99) : "–" }),
      make("td", { text: (stream && retentionOf(stream)) ?? "–" }),
    );
  });
  const none = make("td", { className: "empty", text: "No streams yet: register one in Streams." });
  none.colSpan = 8;
  at("measured").tBodies[0].replaceChildren(...(rows.length ? rows : [make("tr", {}, none)]));
  stack(at("measured"));
  const sizes = stores(found);
  at("measured-note").textContent = found
    ? `in epoch ${found.epoch}, ${found.batches} batches${sizes.omitted ? `; ${sizes.omitted} smaller ${sizes.omitted === 1 ? "store" : "stores"} not shown` : ""}`
    : "";
  at("sizes").replaceChildren(
    ...sizes.rows.map((s) => meter(names.text(s.name), s.part, `${s.tuples.toLocaleString("en")} tuples`, bytes(s.bytes))),
  );
  at("dearest").replaceChildren(
    ...edges(found).map((e) =>
      meter(names.text(e.name), e.part, `${e.probes.toLocaleString("en")} probes`, `${(e.nanoseconds / 1e6).toFixed(1)} ms`),
    ),
  );
  const crossing = sent(found);
  at("exchange").hidden = !crossing.length;
  at("sent-title").textContent = `Sent between ${found?.hosts} hosts`;
  at("sent").replaceChildren(
    ...crossing.map((e) =>
      meter(names.text(e.name), e.part, bytes(e.sent_bytes), e.predicted_sent_bytes === null ? "not predicted" : `${bytes(e.predicted_sent_bytes)} predicted`),
    ),
  );
}

/** A table row of a time series: name, chart, newest values. */
function courseRow({ name, values }, top, text, ...figures) {
  const path = element("path", { d: course(values, { ...COURSE, top }), class: "line" });
  const picture = element(
    "svg",
    { viewBox: `-1 -2 ${COURSE.width + 2} ${COURSE.height + 4}`, class: "course", role: "img", "aria-label": `${name}: ${text}` },
    "",
    path,
  );
  return make(
    "li",
    {},
    make("span", { className: "what" }, ...breakable(name)),
    picture,
    make("span", { className: "muted number", text: [text, ...figures].join(" · ") }),
  );
}

/** Show rates and hit ratios of the last minutes. */
async function showSeries(names) {
  const series = names.series(await read("/v1/series?last=120"));
  const [relations, dearest] = [rates(series), steps(series)];
  const seconds = series.periods.reduce((sum, period) => sum + period.seconds, 0);
  const omitted = [
    relations.omitted ? `${relations.omitted} slower relations` : "",
    dearest.omitted ? `${dearest.omitted} cheaper steps` : "",
  ].filter(Boolean);
  at("series-note").textContent = series.periods.length
    ? `${series.periods.length} ${series.periods.length === 1 ? "period" : "periods"}, ${span(seconds * 1e6)}${omitted.length ? `; ${omitted.join(" and ")} not shown` : ""}`
    : "No figures yet: the first follow a few seconds after the first batch.";
  at("rates").replaceChildren(...relations.rows.map((r) => courseRow(r, null, `${short(r.now ?? 0)} per second`)));
  at("ratios").replaceChildren(
    ...dearest.rows.map((s) =>
      courseRow(s, 1, percent(s.now), ...(s.matches === null ? [] : [`${short(s.matches)} ${short(s.matches) === "1" ? "match" : "matches"} each`])),
    ),
  );
}

async function refresh() {
  try {
    const [current, registered, epochs] = await Promise.all([
      read("/v1/epochs/current?detail=summary"),
      read("/v1/streams"),
      readEpochs(200),
    ]);
    offerEpochs(epochs.items);
    const names = new Names(await planNames(current?.epoch));
    const chosen = at("epoch").value;
    const epoch = chosen === "" ? (current?.running ?? 0) - 1 : Number(chosen);
    showMeasured(await readStatistics(epoch), registered.items, names);
    await showSeries(names);
    say(null);
  } catch (error) {
    say(error);
  }
}

poll(refresh, POLL_MS);
