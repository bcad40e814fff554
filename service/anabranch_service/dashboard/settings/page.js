// The page of settings: present values, and a form to change them.

import { ask, Problem, Refused, submit } from "../access.js";
import { facts, make, refuse, say } from "../dom.js";
import { changes, GROUPS } from "./view.js";

const PATH = "/v1/settings";

const at = (id) => document.getElementById(id);
let settings = null;
let tag = null;

function field({ name, text, choices, empty }) {
  const input = choices
    ? make("select", { id: name, "data-field": name, "aria-describedby": `${name}-text` }, ...choices.map((choice) => make("option", { value: choice, text: choice })))
    : make("input", { id: name, "data-field": name, "aria-describedby": `${name}-text`, inputMode: "decimal", autocomplete: "off", placeholder: empty ?? "", required: empty === undefined });
  return make("div", { className: "setting" }, make("label", { htmlFor: name, text: name.replaceAll("_", " ") }), input, make("span", { className: "muted", id: `${name}-text`, text }));
}

/** Show the fields once the settings are known: empty fields would be saved as such. */
function draw() {
  at("fields").replaceChildren(
    ...GROUPS.map(([title, fields]) => make("fieldset", {}, make("legend", { text: title }), ...fields.map(field))),
  );
}

/** Current texts of the fields, by name. */
const typed = () => Object.fromEntries(GROUPS.flatMap(([, fields]) => fields.map(({ name }) => [name, at(name).value])));

/** Fill in the fields, except those that the user has changed from the texts `saved`. */
function fill(saved) {
  for (const [name, text] of Object.entries(typed())) {
    if (text === saved[name]) at(name).value = settings[name] ?? "";
  }
  facts(at("fixed"), [
    ["mode", settings.mode === "live" ? "live: the runtime does not wait for plans" : "step: the runtime waits for each epoch's plan"],
    ["epoch", `${settings.epoch_batches} batches`],
  ]);
}

async function load(saved) {
  try {
    const response = await ask(PATH);
    if (!response.ok) throw new Error(`${PATH} answered ${response.status}`);
    [settings, tag] = [await response.json(), response.headers.get("etag")];
    if (!at("fields").children.length) draw();
    fill(saved ?? typed());
    say(null);
  } catch (error) {
    say(error);
  }
}

at("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  at("saved").textContent = "";
  const given = typed();
  const changed = changes(settings, given);
  if (!Object.keys(changed).length) {
    at("saved").textContent = "No changes.";
    return;
  }
  try {
    await submit(PATH, "PATCH", changed, tag ? { "if-match": tag } : {});
    refuse(at("refusal"), null, at("form"));
    at("saved").textContent = "Saved: applies from the next epoch on.";
    await load(given);
  } catch (error) {
    if (!(error instanceof Problem) && !(error instanceof Refused)) say(error);
    refuse(at("refusal"), error, at("form"));
  }
});
at("undo").addEventListener("click", () => {
  refuse(at("refusal"), null, at("form"));
  at("saved").textContent = "";
  load();
});

load();
