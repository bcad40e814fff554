// Queries page: searched list, families, and the last results of a chosen query.

import { dot } from "../colours.js";
import { make, say } from "../dom.js";
import { poll } from "../poll.js";
import { showFamilies } from "./families.js";
import { knownQueries } from "./known.js";
import { QueryList } from "./list.js";
import { Tail } from "./tail.js";

const POLL_MS = 2000;

const at = (id) => document.getElementById(id);
const list = new QueryList(dot);
const tail = new Tail(at("tail"), at("tail-note"));
/** Names of the queries with a view. */
let views = new Set();

showFamilies();
at("tail-query").addEventListener("change", ({ target }) => tail.follow(target.value || null, views.has(target.value)));

/** Fill the list of queries whose results can be followed, if it has changed: it may be open. */
function offerTails(names) {
  const choice = at("tail-query");
  const known = [...choice.options].slice(1).map((option) => option.value);
  if (known.join("\n") === names.join("\n")) return;
  const chosen = names.includes(choice.value) ? choice.value : "";
  const options = names.map((name) => make("option", { value: name, text: name }));
  choice.replaceChildren(choice.options[0], ...options);
  choice.value = chosen;
  tail.follow(chosen || null, views.has(chosen));
}

async function refresh() {
  try {
    const [queries] = await Promise.all([knownQueries(), list.refresh()]);
    list.know(queries);
    views = new Set(queries.filter((q) => q.normalised.view).map((q) => q.id));
    offerTails(queries.filter((q) => q.sink.format !== "count").map((q) => q.id));
    say(null);
  } catch (error) {
    say(error);
  }
}

poll(refresh, POLL_MS);
