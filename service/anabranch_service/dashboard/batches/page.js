// The page of batches: polls the newest ones, and draws them as stacks of phases.

import { read } from "../access.js";
import { element, facts, make, percent, say } from "../dom.js";
import { History } from "../history.js";
import { poll } from "../poll.js";
import { length, moment } from "../times.js";
import { refreshProfile } from "./profile.js";
import { longest, means, milliseconds, ordered, quantile, stacks } from "./view.js";

const POLL_MS = 2000;
/** Turns between two requests for the profile, which is long with many queries. */
const PROFILE = 3;
const HEIGHT = 220;
const AXIS = 54;
const TOP = 22;
/** Least distance between two epoch labels in pixels. */
const NAME = 46;
const ROWS = 50;

const at = (id) => document.getElementById(id);
let batches = [];
let turn = 0;
let drawn = "";

function draw() {
  const width = Math.max(at("chart").clientWidth, 200);
  const { rectangles, marks, most } = stacks(batches, { width: width - AXIS, height: HEIGHT });
  const median = quantile(batches.map((b) => b.milliseconds), 0.5);
  const svg = element("svg", {
    viewBox: `0 0 ${width} ${HEIGHT + TOP + 6}`,
    width,
    height: HEIGHT + TOP + 6,
    role: "img",
    "aria-label": `${batches.length} batches of ${milliseconds(median)} as a median, ${milliseconds(most)} at most; the list below has them`,
  });
  for (const share of [0, 0.5, 1]) {
    const y = TOP + HEIGHT * (1 - share);
    svg.append(
      element("line", { class: "axis", x1: AXIS, x2: width, y1: y, y2: y }),
      element("text", { class: "small", x: AXIS - 8, y: y + 4, "text-anchor": "end" }, milliseconds(most * share, most)),
    );
  }
  const group = element("g", { transform: `translate(${AXIS} ${TOP})` });
  for (const one of rectangles) {
    const rect = element("rect", { class: `phase-${one.phase}`, x: one.x.toFixed(2), y: one.y.toFixed(2), width: one.width.toFixed(2), height: one.height.toFixed(2) });
    rect.append(element("title", {}, `batch ${one.batch.batch}, epoch ${one.batch.epoch}: ${one.phase} ${milliseconds(one.batch.phases.find(({ name }) => name === one.phase).milliseconds)} of ${milliseconds(one.batch.milliseconds)}`));
    group.append(rect);
  }
  let named = -NAME;
  for (const mark of marks) {
    group.append(element("line", { class: mark.epoch === null ? "mark revised" : "mark", x1: mark.x, x2: mark.x, y1: -4, y2: HEIGHT }));
    if (mark.epoch !== null && mark.x - named >= NAME && mark.x < width - AXIS - 24) {
      group.append(element("text", { class: "small", x: mark.x, y: -8, "text-anchor": "middle" }, `#${mark.epoch}`));
      named = mark.x;
    }
  }
  svg.append(group);
  at("chart").replaceChildren(svg);
}

function show() {
  const text = JSON.stringify([batches, at("order").value, at("chart").clientWidth]);
  if (text === drawn) return;
  drawn = text;
  const times = batches.map((b) => b.milliseconds);
  const seconds = batches.length > 1 ? (Date.parse(batches.at(-1).committed_at) - Date.parse(batches[0].committed_at)) / 1000 : 0;
  const rows = batches.slice(1).reduce((sum, batch) => sum + batch.tuples, 0);
  const skewed = ordered(batches, "skew")[0];
  at("note").textContent = batches.length ? `batches ${batches[0].batch} to ${batches.at(-1).batch}` : "No batch has been committed yet.";
  facts(
    at("figures"),
    batches.length
      ? [
          ["median", milliseconds(quantile(times, 0.5))],
          ["99th percentile", milliseconds(quantile(times, 0.99))],
          ["slowest", milliseconds(Math.max(...times))],
          ["rows per second", seconds ? Math.round(rows / seconds).toLocaleString("en") : "–"],
          ["tasks", batches.at(-1).tasks],
          ["greatest skew", skewed.skew ? `${skewed.skew.toFixed(2)} (batch ${skewed.batch})` : "–"],
          ["newest", moment(batches.at(-1).committed_at)],
        ]
      : [],
  );
  draw();
  at("legend").replaceChildren(
    ...means(batches).map(({ name, text: what, mean }) => make("li", {}, make("span", { className: `key phase-${name}`, "aria-hidden": "true" }), `${name}: ${what}, `, make("span", { className: "number", text: milliseconds(mean) }))),
    ...(batches.length ? [make("li", {}, make("span", { className: "key mark", "aria-hidden": "true" }), "an epoch begins; dashed: revised rules")] : []),
  );
  const none = make("td", { className: "empty", text: "Nothing yet." });
  none.colSpan = 9;
  const slowest = Math.max(0, ...times);
  const number = (label, value) => make("td", { className: "number", "data-label": label, text: value });
  at("list").tBodies[0].replaceChildren(
    ...(batches.length
      ? ordered(batches, at("order").value)
          .slice(0, ROWS)
          .map((batch) => {
            const { name, share } = longest(batch) ?? {};
            return make(
              "tr",
              {},
              make("td", { "data-label": "Batch", text: batch.batch.toLocaleString("en") }),
              make("td", { "data-label": "Committed" }, moment(batch.committed_at)),
              make("td", { "data-label": "Rules" }, make("a", { href: `/dashboard/epochs?to=${batch.epoch}`, text: batch.ruleset })),
              number("Rows read", batch.tuples.toLocaleString("en")),
              number("Results", batch.results.toLocaleString("en")),
              number("Time", milliseconds(batch.milliseconds, slowest)),
              make("td", { "data-label": "Longest phase", text: name ? `${name}, ${percent(share)}` : "–" }),
              number("Skew", batch.skew === null ? "–" : batch.skew.toFixed(2)),
              number("Slowest task", batch.tasks ? `${batch.slowest} of ${batch.tasks}` : "–"),
            );
          })
      : [make("tr", {}, none)]),
  );
}

const hours = new History(at("hours"), at("hours-note"), {
  path: "/v1/history",
  value: ({ batch_seconds: seconds }) => seconds,
  write: length,
  what: "Time of a batch",
});

async function refresh() {
  try {
    const found = (await read("/v1/batches?last=200")).items;
    // A batch may be listed twice, if a run was interrupted after reporting it.
    batches = [...new Map(found.map((batch) => [batch.batch, batch])).values()];
    show();
    await hours.refresh();
    // The second answer is the first with a difference.
    if (turn < 2 || turn % PROFILE === 0) await refreshProfile();
    turn += 1;
    say(null);
  } catch (error) {
    say(error);
  }
}

at("order").addEventListener("change", show);
new ResizeObserver(() => batches.length && show()).observe(at("chart"));
poll(refresh, POLL_MS);
