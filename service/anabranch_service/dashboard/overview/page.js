// Overview page: health, freshness, throughput, cost and saving, and the newest changes of the plan.

import { read, readEpochs } from "../access.js";
import { act } from "../actions.js";
import { Answers } from "../batches/uses.js";
import { breakable, make, say } from "../dom.js";
import { changes, folded, numbers } from "../epochs/view.js";
import { short } from "../graph.js";
import { pageOf } from "../health/view.js";
import { History } from "../history.js";
import { Names } from "../names.js";
import { savingText } from "../plan/cost.js";
import { poll } from "../poll.js";
import { length, moment } from "../times.js";
import { showRuntime, showUnread } from "./runtime.js";
import { beginSample } from "./sample.js";
import { figure, freshness, healthText, moneyText } from "./view.js";

const POLL_MS = 2000;
/** Most components and changes listed, and most lines of a change. */
const [MOST_ALERTS, MOST_CHANGES, MOST_LINES] = [3, 5, 3];
const PRICE = "anabranch.cpu-hour";

const at = (id) => document.getElementById(id);
const answers = new Answers();
const charts = [
  new History(at("batch-times"), at("batch-times-note"), { path: "/v1/history", value: (point) => point.batch_seconds, write: length, what: "Time of a batch" }),
  new History(at("rows"), at("rows-note"), { path: "/v1/history", value: (point) => point.rate, write: (value) => `${short(value)} per second`, what: "Rows per second" }),
];
let saving = null;
/** Whether the sample is being registered: leaving the page would end that. */
let beginning = false;

if (new URLSearchParams(location.hash.slice(1)).has("query")) location.replace(`/dashboard/plan${location.hash}`);
if (location.search) location.replace(`/dashboard/queries${location.search}`);

function showHealth(components) {
  const bad = components.filter(({ state }) => state !== "ok");
  at("health").textContent = healthText(components);
  at("health").classList.toggle("bad", bad.some(({ state }) => state === "failed"));
  const more = bad.length - MOST_ALERTS;
  at("alerts").replaceChildren(
    ...bad.slice(0, MOST_ALERTS).map((component) =>
      make(
        "li",
        {},
        make(
          "div",
          { className: "message", title: component.message },
          make("strong", {}, make("a", { href: pageOf(component) ?? "/dashboard/health" }, ...breakable(component.name))),
          make("span", {}, ...breakable(`: ${component.message}`)),
        ),
        make("div", { className: "muted remedy", text: component.remedy, title: component.remedy }),
      ),
    ),
    ...(more > 0 ? [make("li", { className: "muted", text: `and ${more} more` })] : []),
  );
}

function showThroughput(runtime, streams) {
  const rates = streams.map(({ statistics }) => statistics?.tuples_per_second ?? null).filter((rate) => rate !== null);
  at("through").textContent = rates.length ? `${figure(rates.reduce((sum, rate) => sum + rate, 0))} rows per second` : "Not measured yet";
  const busy = rates.filter((rate) => rate > 0).length;
  const read = runtime ? `${runtime.input_tuples.toLocaleString("en")} rows read in ${runtime.committed.toLocaleString("en")} batches` : "";
  at("through-why").textContent = rates.length ? `in the last complete epoch, from ${busy} of ${streams.length} streams; ${read}` : read;
}

function showCosts(current) {
  const { measured } = answers;
  const cores = measured ? measured.uses.reduce((sum, { seconds }) => sum + seconds, 0) / measured.length : null;
  at("cpu").textContent = cores === null ? "CPU time is being measured" : `${figure(cores)} CPU cores in use`;
  saving = current?.saving ?? null;
  at("saving").textContent = savingText(current?.epoch, saving);
  showMoney();
}

function showMoney() {
  at("money").textContent = moneyText(saving, Number(at("price").value));
}

function showChanges(epochs) {
  const entries = folded(epochs).slice(0, MOST_CHANGES);
  at("changed").replaceChildren(
    ...(entries.length
      ? entries.map((entry) => {
          const { first, before } = entry;
          const texts = changes(entry);
          const from = before ? `from=${before.epoch}&` : "";
          return make(
            "li",
            {},
            make("div", { className: "when" }, make("a", { href: `/dashboard/epochs?${from}to=${first.epoch}`, text: numbers(entry) })),
            make("div", { className: "muted" }, moment(first.published_at)),
            make("ul", {}, ...(texts.length ? texts : ["the same steps and stores"]).slice(0, MOST_LINES).map((text) => make("li", {}, ...breakable(text)))),
          );
        })
      : [make("li", { className: "empty", text: "No epoch published yet: the first follows when the runtime starts." })]),
  );
}

async function refresh() {
  try {
    const [current, streams, health, epochs, profile, queries] = await Promise.all([
      read("/v1/epochs/current?detail=summary"),
      read("/v1/streams"),
      read("/v1/health"),
      readEpochs(50),
      read("/v1/profile?detail=summary"),
      read("/v1/queries?limit=1"),
    ]);
    answers.add(profile);
    const runtime = current?.runtime ?? null;
    showRuntime(current, new Names(null));
    showUnread(streams.items);
    at("begin").hidden = !beginning && (streams.items.length > 0 || queries.items.length > 0);
    showHealth(health.components);
    const { text, why } = freshness(runtime, streams.items);
    at("fresh").textContent = text;
    at("fresh-why").textContent = why;
    showThroughput(runtime, streams.items);
    showCosts(current);
    showChanges(epochs.items);
    for (const chart of charts) await chart.refresh();
    say(null);
  } catch (error) {
    say(error);
  }
}

at("sample").addEventListener("click", async ({ target }) => {
  target.disabled = beginning = true;
  const begin = () => beginSample().finally(() => (beginning = false));
  await act(at("sample-refusal"), begin, refresh);
  target.disabled = false;
});
at("price").value = localStorage.getItem(PRICE) ?? "";
at("price").addEventListener("input", ({ target }) => {
  localStorage.setItem(PRICE, target.value);
  showMoney();
});
poll(refresh, POLL_MS);
