// The page of all streams: a list, and a form that tests a source and registers it.

import { Problem, Refused, read, submit } from "../access.js";
import { breakable, facts, make, refuse, say } from "../dom.js";
import { poll } from "../poll.js";
import { clock, length } from "../times.js";
import * as view from "./view.js";

const POLL_MS = 3000;
/** Most streams listed: thousands would make the page slow. */
const MOST = 500;
const INPUTS = { name: "name", format: "format", path: "path", rows: "rows", eventTime: "event-time", lateness: "lateness", columns: "columns", options: "options" };

const at = (id) => document.getElementById(id);
const count = (number) => (number === null ? "–" : number.toLocaleString("en"));
let pasted = {};

/** Delay of a stream's watermark behind the clock, as text. */
function behind(watermark) {
  const seconds = (Date.now() - Date.parse(watermark)) / 1000;
  return seconds < 0 ? `${length(-seconds)} ahead` : length(seconds);
}

function row(stream) {
  const { state, error } = stream.source_status;
  const rejects = view.rejects(stream);
  // Measured in the last epoch, so without a runtime it is outdated.
  const rate = state === "stopped" ? null : (stream.statistics?.tuples_per_second ?? null);
  return make(
    "tr",
    {},
    make("td", { className: "name" }, make("a", { href: `/dashboard/stream/${encodeURIComponent(stream.name)}` }, ...breakable(stream.name))),
    make("td", { "data-label": "Source" }, `${stream.source.format} `, make("span", { className: `badge ${state.replace(" ", "-")}`, text: state, title: error ?? "" }), ...(rejects ? [" ", make("span", { className: "badge rejects", text: "rejects rows", title: rejects })] : [])),
    make("td", { className: "number", "data-label": "Rows", text: count(stream.input_tuples) }),
    make("td", { className: "number", "data-label": "Per second", text: rate === null ? "–" : Number(rate.toPrecision(3)).toLocaleString("en") }),
    make("td", { className: "number", "data-label": "Watermark behind", title: stream.watermark ? `${clock(stream.watermark)} UTC` : "", text: stream.watermark ? behind(stream.watermark) : "–" }),
    make("td", { className: "number", "data-label": "Waiting", text: count(stream.waiting_tuples) }),
    make("td", { className: "number", "data-label": "Late", text: count(stream.late_tuples) }),
    make("td", { className: "number", "data-label": "Invalid", text: count(stream.invalid_tuples) }),
  );
}

async function refresh() {
  try {
    const { items } = await read("/v1/streams");
    at("streams-note").textContent = items.length > MOST ? `the first ${MOST} of ${items.length.toLocaleString("en")}` : items.length ? `${items.length.toLocaleString("en")} registered` : "";
    const none = make("td", { className: "empty", text: "No streams yet: register one below." });
    none.colSpan = at("streams").tHead.rows[0].cells.length;
    at("streams").tBodies[0].replaceChildren(...(items.length ? items.slice(0, MOST).map(row) : [make("tr", {}, none)]));
    say(null);
  } catch (error) {
    say(error);
  }
}

/** The body of a registration from the form; null: a field is invalid, as the page shows. */
function body() {
  try {
    const values = Object.fromEntries(Object.entries(INPUTS).map(([name, id]) => [name, at(id).value.trim()]));
    refuse(at("refusal"), null, at("form"));
    return view.bodyOf(values, pasted);
  } catch (error) {
    refuse(at("refusal"), error, at("form"));
    return null;
  }
}

function fill() {
  try {
    pasted = JSON.parse(at("json").value);
    if (pasted === null || typeof pasted !== "object" || Array.isArray(pasted)) throw new Error("this is not a JSON object");
  } catch (error) {
    pasted = {};
    refuse(at("json-refusal"), new Error(`This can't be read: ${error.message}`));
    return;
  }
  refuse(at("json-refusal"), null);
  const { form, more } = view.formOf(pasted);
  for (const [name, id] of Object.entries(INPUTS)) at(id).value = form[name];
  at("more").hidden = !more.length;
  at("more").textContent = `Sent with it as pasted: ${more.join(", ")}.`;
  at("paste").open = false;
  at("test").focus();
}

function showTest(found) {
  at("tested").hidden = false;
  at("error").hidden = !found.error;
  at("error").textContent = found.error ? `${found.error.field}: ${found.error.message} (${found.error.remedy})` : "";
  at("limits").replaceChildren(...found.limits.map((text) => make("li", { text })));
  facts(at("found"), view.figures(found).map(([key, text, className]) => [key, make("span", {}, ...breakable(text)), className]));
  const names = Object.keys(found.rows[0] ?? {});
  const wrong = new Set(found.misfits.map(({ row: number, column }) => `${number} ${column}`));
  at("sample").hidden = !found.rows.length;
  at("sampled-rows").tHead.replaceChildren(make("tr", {}, make("th", { scope: "col", className: "number", text: "Row" }), ...names.map((text) => make("th", { scope: "col", text }))));
  at("sampled-rows").tBodies[0].replaceChildren(
    ...found.rows.map((values, number) =>
      make(
        "tr",
        {},
        make("td", { className: "number", text: number + 1 }),
        ...names.map((name) => {
          const bad = wrong.has(`${number} ${name}`) || wrong.has(`${number} null`);
          return make("td", { className: bad ? "misfit" : "", text: bad ? "does not fit" : values[name] === null ? "NULL" : String(values[name]) });
        }),
      ),
    ),
  );
  at("misfits-title").hidden = !found.misfits.length;
  at("misfits").replaceChildren(...view.misfits(found).map((text) => make("li", {}, ...breakable(text))));
  at("tested-title").focus();
}

/** Run a button's action; a refusal is shown below the form. */
async function send(work, saying) {
  const given = body();
  if (given === null || !at("form").reportValidity()) return;
  at("done").hidden = true;
  for (const id of ["test", "register"]) at(id).disabled = true;
  at("working").textContent = saying;
  try {
    await work(given);
    say(null);
  } catch (error) {
    if (!(error instanceof Problem) && !(error instanceof Refused)) say(error);
    refuse(at("refusal"), error, at("form"));
  } finally {
    for (const id of ["test", "register"]) at(id).disabled = false;
    at("working").textContent = "";
  }
}

at("fill").addEventListener("click", fill);
at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  at("tested").hidden = true;
  send(async (given) => showTest(await submit("/v1/streams:test", "POST", given)), "reading the source …");
});
at("register").addEventListener("click", () =>
  send(async (given) => {
    const made = await submit("/v1/streams", "POST", given);
    const { state, error } = made.source_status;
    const link = make("a", { href: `/dashboard/stream/${encodeURIComponent(made.name)}`, text: made.name });
    const status = state === "failed" ? `, but its source can't be read: ${error}` : state === "reading" ? " and read" : "";
    at("done").replaceChildren(link, ` is registered${status}.`);
    at("done").hidden = false;
    await refresh();
  }, "registering …"),
);

poll(refresh, POLL_MS);
