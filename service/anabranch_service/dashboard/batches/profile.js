// The card of CPU time in the last minute: a bar by kind of work (group), and a table by use (step, store,
// stream or sink) or by query.

import { read } from "../access.js";
import { breakable, element, make, percent } from "../dom.js";
import { Names } from "../names.js";
import { Answers, byGroup, byQuery, byUse } from "./uses.js";

const HEIGHT = 34;

const at = (id) => document.getElementById(id);
const answers = new Answers();
let names = null;

const seconds = (value) => `${value.toFixed(2)} s`;

function draw(groups, total) {
  const width = Math.max(at("cpu").clientWidth, 200);
  const label = groups.map(({ name, share }) => `${name} ${percent(share)}`).join(", ");
  const svg = element("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": `CPU time by group: ${label}` });
  let x = 0;
  for (const { name, colour, share, seconds: spent } of groups) {
    const rect = element("rect", { class: `phase-${colour}`, x: x.toFixed(2), y: 0, width: Math.max(share * width - 1, 0.5).toFixed(2), height: HEIGHT });
    rect.append(element("title", {}, `${name}: ${seconds(spent)} of ${seconds(total)}`));
    svg.append(rect);
    x += share * width;
  }
  at("cpu").replaceChildren(svg);
}

function show() {
  const { measured } = answers;
  if (!measured) {
    at("cpu-note").textContent = answers.kept.at(-1)?.at ? "Measuring: the measured period ends at the end of a batch." : "The runtime has reported no CPU time yet.";
    return;
  }
  const { uses, length } = measured;
  const groups = byGroup(uses);
  const total = groups.reduce((sum, group) => sum + group.seconds, 0);
  at("cpu-note").textContent = `${seconds(total)} in ${length.toFixed(0)} s: ${(total / length).toFixed(2)} cores`;
  draw(groups, total);
  at("cpu-legend").replaceChildren(
    ...groups.map(({ name, text, colour, seconds: spent, share }) => make("li", {}, make("span", { className: `key phase-${colour}`, "aria-hidden": "true" }), name === "unattributed" ? `${text}, ` : `${name}: ${text}, `, make("span", { className: "number", text: `${seconds(spent)}, ${percent(share)}` }))),
  );
  const rows = at("cpu-by").value === "query" ? byQuery(uses) : byUse(uses, (name) => names.text(name, { brief: true }));
  at("cpu-list").tBodies[0].replaceChildren(
    ...rows.map((row) =>
      make("tr", {}, make("td", { "data-label": "Work" }, ...breakable(row.text)), make("td", { className: "number", "data-label": "CPU time", text: seconds(row.seconds) }), make("td", { className: "number", "data-label": "Share", text: percent(row.seconds / total) })),
    ),
  );
}

/** Read the counters, and show their growth in the last minute. */
export async function refreshProfile() {
  names ??= new Names(await read("/v1/plan/names"));
  answers.add(await read("/v1/profile"));
  show();
}

at("cpu-by").addEventListener("change", show);
new ResizeObserver(() => answers.kept.length && show()).observe(at("cpu"));
