// The page of all streams: a list, and steps from a source by a sample of it to a registered stream.

import { Problem, Refused, read, submit } from "../access.js";
import { breakable, facts, make, refuse, say } from "../dom.js";
import { poll } from "../poll.js";
import { clock, length } from "../times.js";
import * as view from "./view.js";

const POLL_MS = 3000;
/** Most streams listed: thousands would make the page slow. */
const MOST = 500;
const TYPES = ["bigint", "int", "double", "decimal(18,2)", "string", "boolean", "date", "timestamp", "timestamp_ntz", "binary", "array<string>", "variant"];

const at = (id) => document.getElementById(id);
const count = (number) => (number === null ? "–" : number.toLocaleString("en"));
/** The given or proposed registration, whose further fields are kept. */
let pasted = {};
/** Columns that could be the key, by the last sample. */
let keys = [];

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
    make("td", { className: "number", "data-label": "Watermark lag", title: stream.watermark ? `${clock(stream.watermark)} UTC` : "", text: stream.watermark ? behind(stream.watermark) : "–" }),
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

const chosen = () => view.KINDS.find(({ kind }) => kind === at("source-kind").value);
const fields = () => [...at("fields").querySelectorAll("input")];
const rowsOf = () => [...at("columns").tBodies[0].rows];

/** Show the fields of the chosen kind of source, with `values` by their places. */
function showKind(values = {}) {
  const { fields: wanted, declared } = chosen();
  at("fields").replaceChildren(
    ...wanted.map(({ at: place, label, example, needed }) => {
      const input = make("input", { name: place, placeholder: example, required: needed, autocomplete: "off", spellcheck: false, value: values[place] ?? "", "data-field": `source.${place}`, "aria-describedby": "source-refusal refusal" });
      return make("label", {}, label, input);
    }),
  );
  at("propose").hidden = Boolean(declared);
  at("declared").hidden = !declared;
  at("declared").textContent = `${declared ?? ""} Declare its columns.`;
}

/** A row of the table of columns. */
function columnRow({ name = "", type = "", time = false, key = false } = {}) {
  const input = (label, properties) => make("input", { autocomplete: "off", spellcheck: false, "aria-label": label, "aria-describedby": "refusal", ...properties });
  const named = input("Name of a column", { value: name, required: true });
  const typed = input("Type", { value: type, required: true });
  typed.setAttribute("list", "types");
  const timed = input("Event time", { type: "checkbox", checked: time, "data-field": "event_time" });
  const keyed = input("Key", { type: "checkbox", checked: key, "data-field": "key" });
  const leave = make("button", { type: "button", className: "quiet", text: "Leave out" });
  const cells = [["Name", named], ["Type", typed], ["Event time", timed], ["Key", keyed], ["", leave]];
  const made = make("tr", {}, ...cells.map(([label, part]) => make("td", label ? { "data-label": label } : {}, part)));
  timed.addEventListener("change", () => {
    for (const other of at("columns").querySelectorAll("[data-field=event_time]")) other.checked = other === timed && timed.checked;
  });
  leave.addEventListener("click", () => {
    made.remove();
    at("add").focus();
  });
  return made;
}

/** The columns in the table; the fields of errors are set to their places. */
function columns() {
  return rowsOf().map((row, number) => {
    const [named, typed, timed, keyed] = row.querySelectorAll("input");
    const [name, type] = [named.value.trim(), typed.value.trim()];
    named.dataset.field = `columns.${number}.name`;
    typed.dataset.field = `columns.${name}`;
    return { name, type, time: timed.checked, key: keyed.checked };
  });
}

function showColumns(wanted) {
  at("columns").tBodies[0].replaceChildren(...wanted.map(columnRow));
  at("columns-card").hidden = false;
}

/** Show a registration in the form. */
function show(registration) {
  pasted = registration;
  const form = view.formOf(registration);
  at("source-kind").value = form.kind.kind;
  showKind(form.values);
  at("options").value = form.options;
  at("further").open = Boolean(form.options);
  for (const [id, text] of [["name", form.name], ["lateness", form.lateness], ["kind", form.stream]]) at(id).value = text;
  showColumns(form.columns);
  at("more").hidden = !form.more.length;
  at("more").textContent = `Also sent, unchanged: ${form.more.join(", ")}.`;
}

function fill() {
  try {
    const found = JSON.parse(at("json").value);
    if (found === null || typeof found !== "object" || Array.isArray(found)) throw new Error("this is not a JSON object");
    refuse(at("json-refusal"), null);
    show(found);
  } catch (error) {
    refuse(at("json-refusal"), new Error(`This can't be read: ${error.message}`));
    return;
  }
  at("paste").open = false;
  at("check").focus();
}

/** Show the fault of a source that can't be read, at its field; null: there is none. */
function fault(place, error) {
  refuse(place, error && new Problem({ detail: error.message, remedy: error.remedy, errors: [error] }), at("main"));
}

function showTest(found) {
  at("tested").hidden = false;
  at("limits").replaceChildren(...[...found.limits, ...found.notes].map((text) => make("li", {}, ...breakable(text))));
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

/** Run a step with the source in the form and the stream's name; `place`: of a refusal. */
async function send(place, work, saying) {
  const named = fields().find(({ name }) => name === chosen().named)?.value.trim() ?? "";
  at("name").value = at("name").value.trim() || view.nameOf(named);
  at("name").required = true;
  if (!at("form").reportValidity()) return;
  at("done").hidden = true;
  const buttons = ["propose", "declare", "check", "register"].map(at);
  for (const button of buttons) button.disabled = true;
  at("working").textContent = saying;
  try {
    const values = Object.fromEntries(fields().map(({ name, value }) => [name, value.trim()]));
    for (const id of ["source-refusal", "refusal"]) refuse(at(id), null, at("main"));
    await work(at("name").value, view.sourceOf(chosen(), values, at("options").value, pasted));
    say(null);
  } catch (error) {
    if (!(error instanceof Problem) && !(error instanceof Refused)) say(error);
    refuse(place, error, at("main"));
  } finally {
    for (const button of buttons) button.disabled = false;
    at("working").textContent = "";
  }
}

/** Read a sample, which proposes the registration. */
async function propose(name, source) {
  for (const id of ["tested", "columns-card"]) at(id).hidden = true;
  const sent = { ...view.bodyOf({ name, kind: "stream" }, [], source, pasted), columns: {} };
  const found = await submit("/v1/streams:test?propose=true", "POST", sent);
  if (found.error) return fault(at("source-refusal"), found.error);
  show(found.registration ?? sent);
  keys = found.keys;
  if (!found.registration) at("add").click();
  showTest(found);
}

/** The body of a registration from the form, whose fields are complete; else null. */
const body = (name, source) => (at("stream-form").reportValidity() ? view.bodyOf({ name, lateness: at("lateness").value.trim(), kind: at("kind").value }, columns(), source, pasted) : null);

async function check(name, source) {
  const given = body(name, source);
  if (given === null) return;
  at("tested").hidden = true;
  const found = await submit("/v1/streams:test", "POST", given);
  if (found.error) fault(at("refusal"), found.error);
  else showTest(found);
}

async function register(name, source) {
  const given = body(name, source);
  if (given === null) return;
  const made = await submit("/v1/streams", "POST", given);
  const { state, error } = made.source_status;
  const link = make("a", { href: `/dashboard/stream/${encodeURIComponent(made.name)}` }, ...breakable(made.name));
  const status = state === "failed" ? `, but its source can't be read: ${error}` : state === "reading" ? " and read" : "";
  at("done").replaceChildren(link, ` is registered${status}.`);
  at("done").hidden = false;
  for (const id of ["tested", "columns-card"]) at(id).hidden = true;
  link.focus();
  await refresh();
}

at("source-kind").replaceChildren(...view.KINDS.map(({ kind, label }) => make("option", { value: kind, text: label })));
at("types").replaceChildren(...TYPES.map((value) => make("option", { value })));
showKind();
at("source-kind").addEventListener("change", () => {
  pasted = {};
  at("more").hidden = true;
  showKind();
});
at("fill").addEventListener("click", fill);
at("declare").addEventListener("click", () => {
  if (!rowsOf().length) showColumns([{}]);
  at("columns-card").hidden = false;
  rowsOf()[0].querySelector("input").focus();
});
at("add").addEventListener("click", () => {
  const made = columnRow();
  at("columns").tBodies[0].append(made);
  made.querySelector("input").focus();
});
at("kind").addEventListener("change", () => {
  if (!["table", "upsert"].includes(at("kind").value) || columns().some(({ key }) => key)) return;
  for (const row of rowsOf()) row.querySelector("[data-field=key]").checked = Boolean(keys[0]?.includes(row.querySelector("input").value));
});
at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (chosen().declared) at("declare").click();
  else send(at("source-refusal"), propose, "reading the source …");
});
at("stream-form").addEventListener("submit", (event) => {
  event.preventDefault();
  send(at("refusal"), check, "reading the source …");
});
at("register").addEventListener("click", () => send(at("refusal"), register, "registering …"));

poll(refresh, POLL_MS);
