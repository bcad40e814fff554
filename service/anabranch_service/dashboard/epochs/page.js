// The page of epochs: a timeline of changes, and the difference of any two epochs.

import { ask, Problem, read, readEpochs } from "../access.js";
import { breakable, facts, make, refuse, say, some } from "../dom.js";
import { short } from "../graph.js";
import { unit } from "../plan/cost.js";
import { poll } from "../poll.js";
import { moment } from "../times.js";
import { followHeld } from "./held.js";
import { listOf } from "./lists.js";
import * as view from "./view.js";

const POLL_MS = 3000;
const PAGE = 200;
/** Number of newest epochs that are requested again, since they may begin meanwhile. */
const NEWEST = 10;
/** Most reasons listed, and most queries named in each. */
const [MOST_REASONS, MOST_USERS] = [20, 2];
const NO_REASONS = "Not known: with many queries, reasons are computed after publication, unless another epoch follows meanwhile.";

const at = (id) => document.getElementById(id);
/** The epochs requested so far, newest first. */
let epochs = [];
let older = null;
let running = null;
let drawn = "";
let shown = "";

/** The two epochs named in the page's address. */
function asked() {
  const query = new URLSearchParams(location.search);
  const number = (name) => (/^\d+$/.test(query.get(name) ?? "") ? Number(query.get(name)) : null);
  return { from: number("from"), to: number("to") };
}

function hrefOf(from, to) {
  return `?${from === null ? "" : `from=${from}&`}to=${to}`;
}

function entryOf(entry) {
  const { first, last, before, count } = entry;
  const { from, to } = asked();
  const runs = running !== null && first.epoch <= running && running <= last.epoch;
  const link = make("a", { href: hrefOf(before?.epoch ?? null, first.epoch), text: view.numbers(entry) });
  if (to === first.epoch && (from === null || from === before?.epoch)) link.setAttribute("aria-current", "true");
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(before?.epoch ?? null, first.epoch);
  });
  const batch = first.first_batch === null ? "not started" : `from batch ${first.first_batch}`;
  const changed = view.changes(entry);
  return make(
    "li",
    {},
    make("div", { className: "when" }, link, ...(runs ? [make("span", { className: "badge active", text: "runs" })] : [])),
    make("div", { className: "muted" }, moment(first.published_at), `, ${batch}${count > 1 ? `, published ${count} times` : ""}`),
    make("ul", {}, ...(changed.length ? changed : ["the same steps and stores"]).map((text) => make("li", {}, ...breakable(text)))),
    make("div", { className: "muted", text: `${first.query_count} ${first.query_count === 1 ? "query" : "queries"}, cost ${short(last.cost)} by ${last.optimizer}` }),
  );
}

function showTimeline() {
  const entries = view.folded(epochs);
  // The oldest entry may continue in epochs not requested yet.
  const text = JSON.stringify([epochs, running, older, location.search]);
  if (text === drawn) return;
  drawn = text;
  at("timeline-note").textContent = epochs.length ? `${entries.length} ${entries.length === 1 ? "plan" : "plans"} in ${epochs.length} epochs${older ? ", older ones not shown" : ""}` : "";
  const focused = document.activeElement?.closest("#timeline a")?.textContent;
  at("timeline").replaceChildren(...(entries.length ? entries.map(entryOf) : [make("li", { className: "empty", text: "No epoch published yet: the first follows when the runtime starts." })]));
  if (focused) [...at("timeline").querySelectorAll("a")].find((link) => link.textContent === focused)?.focus();
  at("older").hidden = !older;
}

/** Put the epochs named in the address into the form; not while somebody may be typing there. */
function fill() {
  const { from, to } = asked();
  if (to !== null) [at("from").value, at("to").value] = [from ?? "", to];
}

function go(from, to) {
  history.pushState(null, "", hrefOf(from, to));
  fill();
  showTimeline();
  showDiff().then(() => at("diff-title").focus());
}

/** Show the difference of the epochs named in the address. */
async function showDiff() {
  const { from, to } = asked();
  if (to === null) return;
  const text = hrefOf(from, to);
  if (shown === text) return;
  shown = text;
  try {
    const response = await ask(`/v1/epochs/${to}/diff${from === null ? "" : `?from=${from}`}`);
    const answer = await response.json();
    // Another difference has been requested meanwhile.
    if (shown !== text) return;
    if (!response.ok) throw new Problem(answer);
    refuse(at("refusal"), null);
    show(answer);
  } catch (error) {
    if (shown !== text) return;
    shown = "";
    at("lists").replaceChildren();
    facts(at("figures"), []);
    at("diff-note").textContent = "";
    if (error instanceof Problem) refuse(at("refusal"), error);
    else say(error);
  }
}

/** The unit of an epoch's costs, if its objective is known. */
function unitOf(number) {
  const objective = epochs.find(({ epoch }) => epoch === number)?.objective;
  if (!objective) return "costs in the unit of its objective";
  return unit(objective);
}

function show(answer) {
  const { diff } = answer;
  // Not over what somebody types meanwhile.
  if (diff && at("from").value === "") at("from").value = diff.epoch;
  at("diff-note").textContent = diff
    ? diff.unchanged
      ? "The same steps and stores."
      : `Both plans priced by the newest statistics; ${unitOf(answer.epoch)}.`
    : answer.diff_reason;
  facts(at("figures"), view.figures(answer).map(([name, text, kind]) => [name, make("span", {}, ...breakable(text)), kind]));
  at("notes").replaceChildren(...(diff?.notes ?? []).map((note) => make("li", { text: note })));
  at("lists").replaceChildren(...(diff ? view.lists(diff).map(listOf) : []));
  if (diff?.omitted) at("lists").append(make("p", { className: "muted", text: `${diff.omitted} cheaper entries are not shown.` }));
  const why = view.reasons(answer.reasons);
  at("why-note").textContent = answer.reasons ? `in epoch ${answer.epoch}, when it was published; ${unitOf(answer.epoch)}${why.length > MOST_REASONS ? `; the ${MOST_REASONS} greatest of ${why.length + answer.reasons.omitted}` : ""}` : "";
  const none = make("td", { className: "empty", text: answer.reasons ? "No shared steps and no intermediate results." : NO_REASONS });
  none.colSpan = 4;
  at("why").tBodies[0].replaceChildren(
    ...(why.length
      ? why.slice(0, MOST_REASONS).map((one) =>
          make(
            "tr",
            {},
            make("td", { className: "name" }, ...breakable(one.what)),
            make("td", { "data-label": "Why", text: one.why }),
            make("td", { className: "number", "data-label": "Saves", text: short(one.saves) }),
            make("td", { "data-label": "For" }, ...breakable(some(one.users, MOST_USERS))),
          ),
        )
      : [make("tr", {}, none)]),
  );
}

/** Request the newest epochs and, with `more`, the page of older ones. */
async function refresh(more = false) {
  try {
    const [found, current] = await Promise.all([readEpochs(epochs.length ? NEWEST : PAGE), read("/v1/epochs/current?detail=summary")]);
    running = current?.running ?? null;
    const overlap = epochs.length && found.items.some((epoch) => epoch.epoch <= epochs[0].epoch);
    const newest = overlap || !epochs.length ? found : await readEpochs(PAGE);
    const known = new Map((overlap ? epochs : []).map((epoch) => [epoch.epoch, epoch]));
    if (!overlap) older = newest.next_cursor;
    for (const epoch of newest.items) known.set(epoch.epoch, epoch);
    if (more && older) {
      const page = await readEpochs(PAGE, `&cursor=${older}`);
      for (const epoch of page.items) known.set(epoch.epoch, epoch);
      older = page.next_cursor;
    }
    epochs = [...known.values()].sort((a, b) => b.epoch - a.epoch);
    showTimeline();
    const first = epochs[0];
    if (asked().to === null && first && !shown) {
      const entry = view.folded(epochs)[0];
      history.replaceState(null, "", hrefOf(entry.before?.epoch ?? null, entry.first.epoch));
      if (at("to").value === "") fill();
      showTimeline();
    }
    await showDiff();
    say(null);
  } catch (error) {
    say(error);
  }
}

at("older").addEventListener("click", () => refresh(true));
at("choose").addEventListener("submit", (event) => {
  event.preventDefault();
  go(Number(at("from").value), Number(at("to").value));
});
window.addEventListener("popstate", () => {
  fill();
  showTimeline();
  showDiff();
});

fill();
followHeld();
poll(refresh, POLL_MS);
