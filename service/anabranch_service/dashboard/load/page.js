// Load page: polls the REST API for the state of load shedding.

import { read } from "../access.js";
import { breakable, facts, make, percent, say, stack } from "../dom.js";
import { poll } from "../poll.js";
import { knownQueries } from "../query_list/known.js";
import { MOST_ROWS, left, levers, listed, share, verdict } from "./view.js";

const POLL_MS = 1000;

const at = (id) => document.getElementById(id);
let runtime = null;
let settings = null;
let queries = [];

function showLoad() {
  const rationing = runtime?.rationing;
  at("load-note").textContent = verdict(runtime);
  const known = rationing && rationing.needed > 0;
  facts(at("load"), [
    ["time needed", known ? percent(rationing.needed) : "–"],
    ["budget of probes", rationing && rationing.policy !== "wait" ? share(rationing.budget) : "–"],
    ["last batch took", runtime?.batch_seconds ? `${runtime.batch_seconds.toFixed(2)} s` : "–"],
    ["waiting rows", runtime ? runtime.waiting_tuples.toLocaleString("en") : "–"],
    ["batches to catch up", rationing ? rationing.owed.toLocaleString("en") : "–"],
  ]);
  facts(at("policy"), [
    ["policy", settings?.overload ?? "–"],
    ["allocation", settings?.allocation ?? "–"],
    ["latency goal", rationing?.latency ? `${rationing.latency} s` : settings ? `${settings.latency_goal} s` : "–"],
    ["capacity", settings?.capacity ? share(settings.capacity) : "as the load allows"],
  ]);
  at("levers").replaceChildren(
    ...levers(runtime).map(({ name, on, why }) =>
      make(
        "li",
        {},
        make("span", { className: on ? "badge expiring" : "badge expired", text: on ? "in force" : "not in force" }),
        make("strong", { text: ` ${name} ` }),
        make("span", { className: "muted", text: why }),
      ),
    ),
  );
}

function showQueries() {
  const { rows, matching, all } = listed(queries, at("filter").value);
  const more = matching - rows.length;
  at("queries-note").textContent = `${matching === all ? all : `${matching} of ${all}`}${more ? `; the first ${MOST_ROWS} are shown` : ""}`;
  const number = (value) => make("td", { className: "number", text: value });
  const lines = rows.map((q) =>
    make(
      "tr",
      {},
      make("td", { className: "name" }, make("a", { href: `/dashboard/query/${encodeURIComponent(q.id)}` }, ...breakable(q.id))),
      number(String(q.priority)),
      number(left(q)),
      make("td", { className: q.broken ? "number bad" : "number", text: q.floor === null ? "–" : `${share(q.floor)}${q.broken ? ", broken" : ""}` }),
      number(Math.round(q.withheld).toLocaleString("en")),
      number(Math.round(q.owed).toLocaleString("en")),
      number(q.late.toLocaleString("en")),
      make("td", { text: q.shares || "all" }),
      make("td", { text: q.since }),
    ),
  );
  const none = make("td", { className: "empty", text: all ? "No matching query." : "No query is registered." });
  none.colSpan = 9;
  at("queries").tBodies[0].replaceChildren(...(lines.length ? lines : [make("tr", {}, none)]));
  stack(at("queries"));
}

async function refresh() {
  try {
    // null before the first epoch.
    const [now, options, all] = await Promise.all([
      read("/v1/epochs/current?detail=summary"),
      read("/v1/settings"),
      knownQueries(),
    ]);
    [runtime, settings] = [now?.runtime ?? null, options];
    queries = all.filter((q) => q.status !== "expired");
    showLoad();
    showQueries();
    say(null);
  } catch (error) {
    say(error);
  }
}

at("filter").addEventListener("input", showQueries);
poll(refresh, POLL_MS);
