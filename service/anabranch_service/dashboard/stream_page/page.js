// The page of one stream: polls its state, and changes it.

import { ask, read, readQueries, submit } from "../access.js";
import { act, deleteAfterQuestion } from "../actions.js";
import { Changing } from "../changing.js";
import { breakable, element, facts, make, percent, say } from "../dom.js";
import { History } from "../history.js";
import { course } from "../measured.js";
import { poll } from "../poll.js";
import * as view from "./view.js";

const POLL_MS = 2000;
/** Milliseconds between two requests for queries and sample, which may be large and change seldom. */
const SLOW_MS = 20_000;
const HEIGHT = 90;
const MOST_READERS = 12;

const at = (id) => document.getElementById(id);
const name = decodeURIComponent(location.pathname.split("/").pop());
const path = `/v1/streams/${encodeURIComponent(name)}`;
/** Queries that read the stream, or will. */
const READERS = `&stream=${encodeURIComponent(name)}&status=active&status=pending&status=expiring`;

const hours = new History(at("hours"), at("hours-note"), {
  path: `/v1/history?stream=${encodeURIComponent(name)}`,
  value: ({ rate }) => rate,
  write: (rate) => `${Number(rate.toPrecision(3)).toLocaleString("en")} a second`,
  what: "Rows per second",
});

let stream = null;
/** Show the queries that read the stream, with their other streams. */
let readers = [];
let others = [];
let tag = null;
let looks = [];
let slowAt = 0;

function show() {
  const { state } = stream.source_status;
  document.title = `${stream.name} · anabranch`;
  at("name").replaceChildren(...breakable(stream.name));
  at("status").textContent = state;
  at("status").className = `badge ${state.replace(" ", "-")}`;
  at("description").textContent = stream.description;
  at("description").hidden = !stream.description;
  at("reread").hidden = !stream.table;
  const problems = view.problems(stream);
  at("problems").hidden = !problems.length;
  at("problems").replaceChildren(...problems.map((text) => make("li", { text })));
  const { values, now } = view.rates(looks);
  facts(at("figures"), view.figures(stream, now));
  facts(at("source"), view.source(stream).map(([key, text]) => [key, make("span", {}, ...breakable(text))]));
  showRate(values);
  const time = view.time(stream, others, readers, Date.now());
  at("time-part").hidden = !time.length;
  facts(at("time"), time.map(([key, text]) => [key, make("span", {}, ...breakable(text))]));
  const bars = view.delays(stream);
  at("delays").replaceChildren(
    ...(bars.length
      ? bars.map((bar) => {
          const fill = make("div", { className: "fill" });
          fill.style.width = `${100 * bar.part}%`;
          return make("li", {}, make("span", { className: "what", text: bar.label }), make("div", { className: "track", "aria-hidden": "true" }, fill), make("span", { className: "muted number", text: `${bar.tuples.toLocaleString("en")}, ${percent(bar.part)}` }));
        })
      : [make("li", { className: "empty", text: stream.event_time ? "No measurements before the end of the first epoch." : "The stream has no event time." })]),
  );
  const pieces = stream.unread;
  at("unread-card").hidden = !pieces?.pieces;
  if (pieces?.pieces) {
    at("unread-note").textContent = `${pieces.pieces.toLocaleString("en")} pieces were left out`;
    at("unread-list").replaceChildren(...view.unread(pieces).map((text) => make("li", {}, ...breakable(text))));
  }
}

function showRate(values) {
  const most = Math.max(0, ...values);
  at("rate-note").textContent = values.length ? `at most ${Math.round(most).toLocaleString("en")} a second since this page was opened` : "counted while this page is open";
  const width = Math.max(at("rate").clientWidth, 100);
  const line = element("path", { class: "line", d: course(values, { width: width - 4, height: HEIGHT - 4 }), transform: "translate(2 2)" });
  const svg = element("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": `Rows per second, ${Math.round(values.at(-1) ?? 0)} now` }, "", line);
  at("rate").replaceChildren(svg);
}

/** Request the queries that read the stream, and the statistics of its columns from a sample. */
async function showSlow() {
  const [found, sample, streams] = await Promise.all([readQueries(READERS), read(`${path}/sample`), read("/v1/streams")]);
  others = streams.items;
  readers = found;
  at("queries").replaceChildren(
    ...(readers.length
      ? readers.slice(0, MOST_READERS).map(({ id }) => make("li", {}, make("a", { href: `/dashboard/query/${encodeURIComponent(id)}` }, ...breakable(id))))
      : [make("li", { className: "empty", text: "None: arriving rows are read but not stored." })]),
    ...(readers.length > MOST_READERS ? [make("li", {}, make("a", { href: `/dashboard/queries?stream=${encodeURIComponent(stream.name)}`, text: `and ${readers.length - MOST_READERS} more` }))] : []),
  );
  at("columns-note").textContent = sample ? `from a sample of ${sample.size.toLocaleString("en")} of ${sample.seen.toLocaleString("en")} rows` : "no sample before the end of the first epoch that reads it";
  at("columns").tBodies[0].replaceChildren(
    ...stream.columns.map((column) => {
      const found = sample?.columns[column.name];
      const top = found?.top.map(({ value, share }) => `${view.value(value, column.type)} (${percent(share)})`).slice(0, 3) ?? [];
      return make(
        "tr",
        {},
        make("td", { className: "name" }, ...breakable(column.name)),
        make("td", { "data-label": "Type", text: `${column.type}${column.name === stream.event_time ? ", event time" : ""}` }),
        make("td", { className: "number", "data-label": "NULL", text: found ? percent(found.nulls) : "–" }),
        make("td", { className: "number", "data-label": "Distinct", text: found ? found.distinct.toLocaleString("en") : "–" }),
        make("td", { className: "sampled", "data-label": "Most frequent", text: top.join(", ") || "–" }),
        make("td", { className: "sampled", "data-label": "Least, quartiles, greatest", text: found?.quantiles.map((one) => view.value(one, column.type)).join(" · ") || "–" }),
      );
    }),
  );
}

/** Write the stream's values into the form. */
function write({ description, site, retention, idle_timeout: idle, event_time: time, keep_late: keep }) {
  at("new-description").value = description;
  at("new-site").value = site;
  at("ttl").value = retention?.ttl ?? "";
  at("ttl").disabled = !time;
  at("idle").value = idle ?? "";
  at("idle").disabled = !time;
  at("keep-late").checked = keep;
}

/** The changed fields of the form, as the body of a PATCH. */
function changes(shown) {
  const [description, site, ttl, idle] = ["new-description", "new-site", "ttl", "idle"].map((id) => at(id).value.trim());
  const keep = at("keep-late").checked;
  return {
    ...(description === shown.description ? {} : { description }),
    ...(site === shown.site ? {} : { site }),
    ...(ttl === (shown.retention?.ttl ?? "") ? {} : { retention: { ttl: ttl || null } }),
    ...(idle === (shown.idle_timeout ?? "") ? {} : { idle_timeout: idle || null }),
    ...(keep === shown.keep_late ? {} : { keep_late: keep }),
  };
}

const changing = new Changing({ path, write, changes, refresh });

async function refresh() {
  try {
    const response = await ask(path);
    at("missing").hidden = response.status !== 404;
    if (response.status === 404) {
      at("found").hidden = true;
      at("problems").hidden = true;
      say(null);
      return;
    }
    if (!response.ok) throw new Error(`${path} answered ${response.status}`);
    [stream, tag] = [await response.json(), response.headers.get("etag")];
    looks = view.looked(looks, performance.now() / 1000, stream.input_tuples);
    changing.offer(stream, tag);
    at("found").hidden = false;
    show();
    if (!slowAt || performance.now() - slowAt > SLOW_MS) {
      slowAt = performance.now();
      await showSlow();
      show();
    }
    await hours.refresh();
    say(null);
  } catch (error) {
    say(error);
  }
}

at("reread").addEventListener("click", () => act(at("delete-refusal"), () => submit(`${path}:reread`, "POST", undefined, tag ? { "if-match": tag } : {}), refresh));
deleteAfterQuestion(() => submit(path, "DELETE", undefined, tag ? { "if-match": tag } : {}), refresh);

poll(refresh, POLL_MS);
