// Health page: every component with its state, the beginning of the state, and a remedy.

import { read } from "../access.js";
import { breakable, make, say } from "../dom.js";
import { poll } from "../poll.js";
import { moment } from "../times.js";
import { pageOf } from "./view.js";

const POLL_MS = 3000;
/** Most components listed, the most urgent first. */
const MOST = 200;
const BADGES = { ok: "active", warning: "expiring", failed: "failed" };

const at = (id) => document.getElementById(id);

function nameOf(component) {
  const page = pageOf(component);
  const text = breakable(component.name);
  return page ? [make("span", { className: "muted", text: `${component.kind} ` }), make("a", { href: page }, ...text)] : text;
}

function show(components) {
  const bad = components.filter(({ state }) => state !== "ok").length;
  at("note").textContent = `${bad ? `${bad} of ${components.length} need attention` : `all ${components.length} are well`}${components.length > MOST ? `; the first ${MOST} are shown` : ""}`;
  at("components").tBodies[0].replaceChildren(
    ...components.slice(0, MOST).map((one) =>
      make(
        "tr",
        {},
        make("td", { className: "name" }, ...nameOf(one)),
        make("td", { "data-label": "State" }, make("span", { className: `badge ${BADGES[one.state] ?? "expired"}`, text: one.state })),
        make("td", { className: "whole-line", "data-label": "Since" }, moment(one.since)),
        make("td", { className: "sampled" }, ...(one.message ? [make("span", { className: one.state === "failed" ? "bad" : "" }, ...breakable(one.message)), make("div", { className: "muted", text: one.remedy })] : [])),
      ),
    ),
  );
}

async function refresh() {
  try {
    show((await read("/v1/health")).components);
    say(null);
  } catch (error) {
    say(error);
  }
}

poll(refresh, POLL_MS);
