// A query for people: what its answers say, in words. No document, no requests.

import { batches } from "../activation.js";
import { percent } from "../dom.js";
import { load, rate } from "../map/view.js";
import { clock, length } from "../times.js";

/** Since when its results are complete, and how much of them there is. */
export function completeness(query) {
  const since = { always: "from the first result", never: "never" }[query.complete] ?? (query.complete_from ? `from ${clock(query.complete_from)}` : "not known yet");
  const kept = query.rationed;
  if (!kept || (kept.completeness >= 1 && !kept.owed && !kept.blind)) return since;
  return `${since}; ${kept.blind ? "below " : ""}${percent(kept.completeness)} of results kept`;
}

/** The outcome of its past results, over tuples stored before it began. */
export function past({ past_results: { status, results, rows }, normalised }) {
  const what = { pending: "being emitted", emitted: "all emitted", "given-up": "given up" }[status] ?? status;
  const left = rows ? `; ${rows.toLocaleString("en")}  stored rows to process` : "";
  return `${what}: ${results.toLocaleString("en")} ${counted({ normalised })}${left}`;
}

/** From arrival to commit, as far as that is known. */
export function latency(plan) {
  if (!plan?.batch_seconds) return "not known yet";
  const batch = length(plan.batch_seconds);
  return plan.waiting_seconds === null ? `one batch: ${batch}` : `about ${length(plan.waiting_seconds + plan.batch_seconds)}`;
}

/** A part of a whole, as a share with the amount; `of` writes an amount. */
export function part(amount, whole, of) {
  return whole > 0 ? `${percent(amount / whole)} (${of(amount)})` : "–";
}

/** CPU time that is its part of the plan's. */
export function cpu(plan) {
  return plan?.measured ? part(plan.cpu, plan.cpu_of_plan, load) : "–";
}

/** The counted unit: joined rows for a view or an outer join, whose sink gets other rows; else results. */
export function counted({ normalised }) {
  return normalised.view || normalised.outer ? "joined rows" : "results";
}

/** Results a second, or joined rows. */
export function results(plan, query) {
  if (!plan?.measured) return "–";
  return `${rate(plan.results_per_second)}${counted(query) === "results" ? "" : " joined rows"}`;
}

/** The normal form of a query, as pairs. */
export function meaning({ normalised, window }) {
  const { view, outer } = normalised;
  const windows = typeof window === "string" ? window : Object.entries(window ?? {}).map(([alias, text]) => `${alias} ${text}`).join(", ");
  return [
    ["streams", normalised.aliases.map(({ alias, stream, filter }) => `${stream}${alias === stream ? "" : ` as ${alias}`}${filter.length ? ` where ${filter.join(" AND ")}` : ""}`).join("; ")],
    ["equal", normalised.classes.map(({ members }) => members.join(" = ")).join("; ")],
    ["window", windows || (normalised.bounds.length ? "by its conditions" : "none: all stored tuples join")],
    ["other conditions", normalised.residuals.join("; ")],
    ["view", view && [...view.aggregates, ...(view.keys.length ? [`by ${view.keys.join(", ")}`] : [])].join(", ")],
    ["outer join", outer?.deadline && `${outer.kind}, partners until ${outer.deadline}`],
    ["looks up", outer?.look_ups?.map(({ kind, partner }) => `${partner} (${kind} join)`).join(", ")],
    ["conditions on results", outer?.where?.join("; ")],
  ].filter(([, text]) => text);
}

/** The most values of a kind of tuples that are named. */
const NAMED = 3;

function kind(attribute, some) {
  if (some.some((one) => one.others)) {
    const nulls = sum(some, "nulls");
    return nulls > 0 ? `all others, NULL ${percent(nulls)}` : "all others";
  }
  const values = some.flatMap((one) => one.values);
  const named = values.slice(0, NAMED).map(({ value }) => value || "?").join(", ");
  const more = values.length - NAMED;
  return `${attribute} = ${named}${more > 0 ? ` or ${more} more` : ""}`;
}

/** Substreams with the same paths, together. */
function kinds({ attribute, substreams }) {
  const numbers = [...new Set(substreams.map((one) => one.same_as))];
  return numbers.map((number) => {
    const some = substreams.filter((one) => one.same_as === number);
    return { text: kind(attribute, some), some };
  });
}

const sum = (some, name) => some.reduce((total, one) => total + one[name], 0);

/** The kinds of tuples that have paths of their own, a row each. */
export function divided(plan) {
  return (plan?.divided ?? []).flatMap((one) =>
    kinds(one).map(({ text, some }) => ({
      alias: one.alias,
      tuples: some.every((each) => each.aside) ? `${text} (in no intermediate result)` : text,
      share: sum(some, "share"),
      saved: sum(some, "otherwise") > 0 && !some.some((kept) => kept.others) ? percent(1 - sum(some, "cost") / sum(some, "otherwise")) : "–",
    })),
  );
}

/** Which tuples take a path, where not all do. */
export function whose(plan, { alias, substreams }) {
  const found = (plan.divided ?? []).find((one) => one.alias === alias);
  if (!substreams?.length || !found || substreams.length === found.substreams.length) return "";
  const taken = kinds(found).filter(({ some }) => some.some((one) => substreams.includes(one.number)));
  return taken.map(({ text }) => text).join("; ");
}

/** Its activations, the present one first; `visible` are aliases with what they see. */
export function activations(query) {
  const ended = [...query.earlier].reverse();
  const found = query.activated_batch === null ? ended : [query, ...ended];
  return found.map((one, at) => ({
    batches: batches(one),
    complete: completeness({ ...one, rationed: null }),
    visible: Object.entries(one.visible_from ?? {}).map(([alias, { batch, event_time }]) => `${alias}: batch ${batch}${event_time ? `, ${clock(event_time)}` : ""}`),
    results: given(query, one, found[at + 1]),
  }));
}

/** The results of an activation: counts continue from the previous one. For views, ended ones have only counts of joined rows. */
function given(query, one, before) {
  if (counted(query) === "results") return (one.results - (before?.results ?? 0)).toLocaleString("en");
  return one === query ? `${one.results.toLocaleString("en")} rows` : `${one.results.toLocaleString("en")} joined rows so far`;
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

/** What stands in the way of its results, each as a text. */
export function problems(query) {
  const found = Object.entries(query.input_problems).map(([stream, why]) => `The stream ${stream} is not read: ${why}. Results wait for its rows.`);
  if (query.sink_problem) found.push(`Results wait for the sink: ${query.sink_problem}`);
  if (query.problem) found.push(`Rejected: ${query.problem.message}. ${query.problem.remedy}`);
  if (query.failure) {
    const { batch, message, expression, remedy } = query.failure;
    found.push(`Failed in batch ${batch}: ${message}${expression ? ` in ${expression}` : ""}. ${remedy}`);
  }
  for (const { message, remedy } of query.complete === "from" ? [] : (query.missed ?? [])) found.push(`${sentence(message)} ${sentence(remedy)}`);
  if (query.rationed?.floor_broken) found.push("Its completeness is below its floor: the machine is too slow for all floors.");
  return found;
}

/** What a change of the form asks for: only what differs. `given` has the fields' texts. */
export function changes(query, given) {
  const changed = {};
  if (given.forever && query.expires_at) changed.expires_at = null;
  else if (given.ttl) changed.ttl = given.ttl;
  if (given.priority !== "" && Number(given.priority) !== query.priority) changed.priority = Number(given.priority);
  const slo = {};
  if ((query.slo.latency ?? "") !== given.latency) slo.latency = given.latency || null;
  const least = query.slo.completeness ?? null;
  const wanted = given.completeness === "" ? null : Number(given.completeness.replace(",", "."));
  if (least !== wanted) slo.completeness = Number.isNaN(wanted) ? given.completeness : wanted;
  if (Object.keys(slo).length) changed.slo = slo;
  if (given.title !== (query.title ?? "")) changed.title = given.title || null;
  if (given.owner !== (query.owner ?? "")) changed.owner = given.owner || null;
  const tags = given.tags.split(/[\s,]+/).filter(Boolean);
  if (tags.join(",") !== query.tags.join(",")) changed.tags = tags;
  return changed;
}

/** A run in one line: what became of it, and where its results are. */
export function run({ run: name, status, results, results_at: place }) {
  return `${name}: ${status}, ${results.toLocaleString("en")} results${place ? ` in ${place}` : ""}`;
}
