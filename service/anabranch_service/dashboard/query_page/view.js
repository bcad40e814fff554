// Texts about a query, from the service's answers. Pure functions.

import { batches } from "../activation.js";
import { bytes, percent, some } from "../dom.js";
import { load, rate } from "../map/view.js";
import { content, estimate } from "../tables.js";
import { clock, length } from "../times.js";

/** The time from which on results are complete, and their completeness under load shedding. */
export function completeness(query) {
  const since = { always: "from the first result", never: "never" }[query.complete] ?? (query.complete_from ? `from ${clock(query.complete_from)}` : "not known yet");
  const kept = query.rationed;
  if (!kept || (kept.completeness >= 1 && !kept.owed && !kept.blind)) return since;
  return `${since}; ${kept.blind ? "below " : ""}${percent(kept.completeness)} of results kept`;
}

/** Progress of the results over tuples stored before the query began; "": it began with empty stores. */
export function past({ past_results: found, normalised, visible_from: visible, activated_batch: since }) {
  if (!found) {
    const seen = Object.values(visible ?? {});
    return seen.length > 1 && seen.every(({ batch }) => batch < since) ? `none: rows of before batch ${since} join with later ones only` : "";
  }
  const { status, results, rows } = found;
  const what = { pending: "being emitted", emitted: "all emitted", "given-up": "given up" }[status] ?? status;
  const left = rows ? `; ${rows.toLocaleString("en")}  stored rows to process` : "";
  return `${what}: ${results.toLocaleString("en")} ${counted({ normalised })}${left}`;
}

/** Time from a row's arrival to the commit of its results, if known. */
export function latency(plan) {
  if (!plan?.batch_seconds) return "not known yet";
  const batch = length(plan.batch_seconds);
  return plan.waiting_seconds === null ? `one batch: ${batch}` : `about ${length(plan.waiting_seconds + plan.batch_seconds)}`;
}

/** Format a part of a whole as a percentage and an amount; `of` formats the amount. */
export function part(amount, whole, of) {
  return whole > 0 ? `${percent(amount / whole)} (${of(amount)})` : "–";
}

/** The query's share of the plan's CPU time. */
export function cpu(plan) {
  return plan?.measured ? part(plan.cpu, plan.cpu_of_plan, load) : "–";
}

/** Figures of the query's maintained table: name, text, and for sentences the class; none without. */
export function table(plan) {
  const found = plan?.table;
  if (!found) return [];
  const { estimated, share } = found;
  const lines = [
    ["its table", `${found.rows.toLocaleString("en")} rows${found.bytes === null ? "" : `, ${bytes(found.bytes)}`}`],
    ["table's CPU time", part(found.cpu, found.cpu_of_table, load)],
    ["table shared with", some(found.shared) || "no other query"],
  ];
  if (estimated) lines.push(["table of", content(estimated), "long"]);
  if (estimated?.apart) lines.push(["table apart", estimated.apart, "long"]);
  if (share) lines.push(["table as estimated", estimate(estimated, share), "long"]);
  return lines;
}

/** Unit of the query's counts: joined rows for a view or an outer join, else results. */
export function counted({ normalised }) {
  return normalised.view || normalised.outer ? "joined rows" : "results";
}

/** Sentences on why an active query has no results, or none at present. */
export function silence(plan, query) {
  const since = query.results || query.joined_rows ? "No results at present" : "No results";
  return query.status === "active" ? (plan?.no_results_because ?? []).map((reason) => `${since}: ${reason}.`) : [];
}

/** Results or joined rows per second, as text. */
export function results(plan, query) {
  if (!plan?.measured) return "–";
  return `${rate(plan.results_per_second)}${counted(query) === "results" ? "" : " joined rows"}`;
}

/** Normal form of a query, as pairs of name and text. */
export function meaning({ normalised, window, reads, read_by: readers }) {
  const { view, outer } = normalised;
  const windows = typeof window === "string" ? window : Object.entries(window ?? {}).map(([alias, text]) => `${alias} ${text}`).join(", ");
  return [
    ["streams", normalised.aliases.map(({ alias, stream, filter }) => `${stream}${alias === stream ? "" : ` as ${alias}`}${filter.length ? ` where ${filter.join(" AND ")}` : ""}`).join("; ")],
    ["union of", normalised.branches.map((some) => some.join(", ")).join("; ")],
    ["reads queries", reads?.join(", ")],
    ["read by queries", readers?.join(", ")],
    ["equal", normalised.classes.map(({ members }) => members.join(" = ")).join("; ")],
    ["window", windows || (normalised.bounds.length ? "by its conditions" : "none: all stored tuples join")],
    ["other conditions", normalised.residuals.join("; ")],
    ["view", view && [...view.aggregates, ...(view.keys.length ? [`by ${view.keys.join(", ")}`] : [])].join(", ")],
    ["grouping sets", view?.sets.map((one) => `(${one.join(", ")})`).join(", ")],
    ["ranked by", view?.ranking && `${view.ranking}() ${view.limit === null ? "" : `up to ${view.limit} `}${view.partition.length ? `of each ${view.partition.join(", ")}` : ""}`],
    ["outer join", outer?.deadline && `${outer.kind}, partners until ${outer.deadline}`],
    [outer?.changes ? "changes by" : "looks up", outer?.look_ups?.map(({ kind, partner }) => `${partner} (${kind} join)`).join(", ")],
    ["conditions on results", outer?.where?.join("; ")],
  ].filter(([, text]) => text);
}

/** Most key values listed per substream. */
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

/** Group substreams with the same paths. */
function kinds({ attribute, substreams }) {
  const numbers = [...new Set(substreams.map((one) => one.same_as))];
  return numbers.map((number) => {
    const some = substreams.filter((one) => one.same_as === number);
    return { text: kind(attribute, some), some };
  });
}

const sum = (some, name) => some.reduce((total, one) => total + one[name], 0);

/** Table rows of the substreams (tuples with certain key values) that have paths of their own. */
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

/** The substreams that take a path, as text; "": all tuples take it. */
export function whose(plan, { alias, substreams }) {
  const found = (plan.divided ?? []).find((one) => one.alias === alias);
  if (!substreams?.length || !found || substreams.length === found.substreams.length) return "";
  const taken = kinds(found).filter(({ some }) => some.some((one) => substreams.includes(one.number)));
  return taken.map(({ text }) => text).join("; ");
}

/** Activations of the query, the present one first; `visible`: per alias the first visible batch. */
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

/** Number of an activation's results; reported counts continue from the previous activation. */
function given(query, one, before) {
  if (counted(query) === "results") return (one.results - (before?.results ?? 0)).toLocaleString("en");
  return one === query ? `${one.results.toLocaleString("en")} rows` : `${one.results.toLocaleString("en")} joined rows so far`;
}

const sentence = (text) => (text ? `${text[0].toUpperCase()}${text.slice(1)}.` : "");

/** Problems that prevent or delay results, each as a text. */
export function problems(query) {
  const found = Object.entries(query.input_problems).map(([stream, why]) => `The stream ${stream} is not read: ${why}. Results wait for its rows.`);
  if (query.sink_problem) found.push(`Results wait for the sink: ${query.sink_problem}`);
  if (query.problem) found.push(`Rejected: ${query.problem.message}. ${sentence(query.problem.remedy)}`);
  if (query.failure) {
    const { batch, message, expression, remedy } = query.failure;
    found.push(`Failed in batch ${batch}: ${message}${expression ? ` in ${expression}` : ""}. ${sentence(remedy)}`);
  }
  for (const { message, remedy } of query.complete === "from" ? [] : (query.missed ?? [])) found.push(`${sentence(message)} ${sentence(remedy)}`);
  if (query.rationed?.floor_broken) found.push("Its completeness is below its floor: the machine is too slow for all floors.");
  return found;
}

/** The changed fields of the form, as the body of a PATCH. `given`: texts of the fields. */
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

/** Summary of a run in one line: status, number of results, place of the results. */
export function run({ run: name, status, results, results_at: place }) {
  return `${name}: ${status}, ${results.toLocaleString("en")} results${place ? ` in ${place}` : ""}`;
}

const MOST_INTERRUPTIONS = 10;

/** The newest interruptions as texts, newest first. */
export function interrupted(runs) {
  const hour = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 16);
  const texts = runs.map(({ since, until, reason }) => `${hour(since)} to ${hour(until)} UTC: ${reason}`).reverse();
  const more = texts.length - MOST_INTERRUPTIONS;
  return more > 0 ? [...texts.slice(0, MOST_INTERRUPTIONS), `and ${more} earlier ones`] : texts;
}
