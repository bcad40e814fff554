// The held plan: its differences from the running plan, and buttons to approve or refuse it.

import { act } from "../actions.js";
import { read, submit } from "../access.js";
import { breakable, facts, make, some } from "../dom.js";
import { moment } from "../times.js";
import { listOf } from "./lists.js";
import * as view from "./view.js";

const PATH = "/v1/plan/held";
const at = (id) => document.getElementById(id);
/** The shown held plan. */
let plan = null;

function show() {
  const { change } = plan;
  const waiting = plan.state === "waiting";
  at("held").hidden = false;
  at("held-title").textContent = waiting ? "A plan waits for approval" : plan.state === "approved" ? "A plan has been approved" : "A plan was refused";
  at("held-said").textContent = waiting ? plan.note : plan.state === "approved" ? "It is published at the next epoch boundary." : "It is not proposed again until queries, streams or settings change.";
  at("held-buttons").classList.toggle("gone", !waiting);
  at("held-since").replaceChildren("since ", moment(plan.since), `, for epoch ${plan.epoch}`);
  const pairs = [...(plan.waiting.length ? [["waiting queries", some(plan.waiting), "long"]] : []), ...view.figures(change)];
  facts(at("held-figures"), pairs.map(([name, text, kind]) => [name, make("span", {}, ...breakable(text)), kind]));
  at("held-lists").replaceChildren(...(change.diff ? view.lists(change.diff).map(listOf) : [make("p", { className: "muted", text: change.diff_reason })]));
}

async function refresh() {
  const found = await read(PATH);
  const open = [...at("held-lists").querySelectorAll("details")].map((one) => one.open);
  if (found === null || (plan && JSON.stringify(found) === JSON.stringify(plan))) return;
  const same = plan?.version === found.version;
  plan = found;
  show();
  if (same) [...at("held-lists").querySelectorAll("details")].forEach((one, i) => (one.open = open[i] ?? one.open));
}

function button(word) {
  at(word).addEventListener("click", async () => {
    const work = async () => {
      plan = await submit(`${PATH}:${word}`, "POST", undefined, { "if-match": plan.version });
      show();
    };
    if (await act(at("held-refusal"), work, async () => {})) at("held-title").focus();
    // Refused, perhaps since another plan is held by now: show that one.
    else await refresh().catch(() => {});
  });
}

/** Show the held plan, if any; the outcome of the last decision stays until the page is left. */
export function followHeld() {
  button("approve");
  button("refuse");
  document.addEventListener("held", ({ detail: waits }) => {
    if (waits) refresh().catch(() => {});
    else if (plan?.state === "waiting") {
      plan = null;
      at("held").hidden = true;
    }
  });
}
