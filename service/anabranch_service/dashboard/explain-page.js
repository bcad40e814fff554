// The page that explains a statement: asks when it is told to, and shows pictures of the answer.

import { ask } from "./access.js";
import { facts, make, say } from "./dom.js";
import { drawTree, forest, short } from "./graph.js";
import { drawPlan } from "./plan-tree.js";

const at = (id) => document.getElementById(id);

/** The service's answer, or what it refuses as an error that has `problem`. */
async function explained(body) {
  const response = await ask("/v1/queries:explain", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const answer = await response.json();
  if (response.ok) return answer;
  throw Object.assign(new Error(answer.detail), { problem: answer });
}

function refuse(message, remedy = "") {
  at("refusal").hidden = !message;
  at("refusal").textContent = remedy ? `${message} (${remedy})` : message;
}

/** Select what the service complains of. */
function pointAt({ line, column } = {}) {
  if (!line) return;
  const area = at("statement");
  const before = area.value.split("\n").slice(0, line - 1).join("\n").length;
  const start = before + (line > 1 ? 1 : 0) + column - 1;
  const word = /^[\w.`]+|./.exec(area.value.slice(start));
  area.focus();
  area.setSelectionRange(start, start + (word?.[0].length ?? 0));
}

/** What stands above the joins, as facts. */
function above({ view, outer }) {
  if (outer) {
    return [
      [`${outer.kind} join with`, outer.partner],
      ["partners until", outer.deadline],
    ];
  }
  if (!view) return [];
  return [
    ["view of", view.aggregates.join(", ") || "joined rows"],
    ["grouped by", view.keys.join(", ")],
    ["having", view.having],
    ["ordered by", view.order.join(", ")],
    ["limit", view.limit],
  ].filter(([, text]) => text !== null && text !== "");
}

function show(answer) {
  const { refused, plan, multijoins } = answer;
  at("answer").hidden = false;
  at("runs-note").textContent = refused ? "does not run continuously" : "could run beside what is registered";
  at("why-not").hidden = !refused;
  at("why-not").textContent = refused ? `${refused.message} (${refused.remedy})` : "";
  facts(
    at("cost"),
    refused
      ? []
      : [
          ["adds to the cost", short(answer.added_cost)],
          ["cost of everything", short(plan.cost)],
          ["stores that it asks", answer.stores.length],
          ["shares them with", answer.shared_with.join(", ") || "nobody"],
          ...above(answer.normalised),
        ],
  );
  const own = { queries: [{ id: "this", orders: answer.orders }], maintenance: [] };
  at("orders").replaceChildren(
    ...(refused ? [] : forest(own).map((tree) => drawTree(tree, () => "var(--accent)"))),
  );
  const count = multijoins.length;
  at("after-note").textContent = count
    ? `${count} multi-way ${count === 1 ? "join" : "joins"}, of ${multijoins.map((j) => j.inputs.length).join(", ")} inputs`
    : "no three inputs are joined without anything between them";
  for (const side of ["after", "before"]) {
    at(side).replaceChildren(
      answer[side]
        ? drawPlan(answer[side])
        : make("p", { className: "empty", text: "This statement has no plan to show." }),
    );
  }
}

async function explain() {
  const body = { sql: at("statement").value, dialect: at("dialect").value.trim() || "spark" };
  const limit = at("window").value.trim();
  if (limit) body.window = limit;
  at("pulse").textContent = "planning";
  try {
    const answer = await explained(body);
    refuse("");
    show(answer);
    say(null);
  } catch (error) {
    at("answer").hidden = true;
    if (!error.problem) {
      say(error);
      return;
    }
    say(null);
    refuse(error.problem.detail, error.problem.remedy);
    pointAt(error.problem.errors?.[0]);
  }
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  explain();
});
