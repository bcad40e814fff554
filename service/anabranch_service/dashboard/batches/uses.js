// Differences and sums of the pipeline's CPU time. Pure functions.

/** Groups (kinds of work) with their descriptions and colours, in stacking order from the left. */
export const GROUPS = [
  ["source", "reading and decoding", "read"],
  ["insert", "writing stores", "store"],
  ["merge", "merging segments", "backfill"],
  ["probe", "probing", "probe"],
  ["sink", "projecting and encoding results", "write"],
  ["view", "maintaining views", "catch-up"],
  ["task", "other work of tasks", "wait"],
  ["driver", "planning and committing batches", "commit"],
  ["spark", "Spark's JVM", "spark"],
  ["service", "REST and planning", "upload"],
  ["redis", "Redis", "begin"],
  ["unattributed", "not attributed", "none"],
];
/** Group -> name of its CPU time that belongs to no single step, store or stream (its common use). */
const COMMON = { source: "checks of arrivals", insert: "writing packs", probe: "passing tuples on" };
const MOST = 15;
/** Seconds for which an answer is kept, to be subtracted from later ones. */
const KEPT = 60;

const key = ({ group, name, queries }) => JSON.stringify([group, name, queries]);

/** Seconds between the runtime's counters of two answers; 0 if they can't be subtracted. */
export function period(earlier, later) {
  const same = earlier.run === later.run && earlier.service === later.service;
  return same && later.at ? (Date.parse(later.at) - Date.parse(earlier.at)) / 1000 : 0;
}

/**
 * CPU seconds by use between two answers of `/v1/profile`. A use that only the earlier answer has was
 * added to the common use of its group; seconds of service and Redis are scaled to the runtime's period.
 */
export function between(earlier, later) {
  const found = new Map(later.uses.map((use) => [key(use), { ...use }]));
  for (const use of earlier.uses) {
    const common = { group: use.group, name: "", queries: [] };
    const at = found.has(key(use)) ? key(use) : key(common);
    if (!found.has(at)) found.set(at, { ...common, seconds: 0 });
    found.get(at).seconds -= use.seconds;
  }
  const length = (Date.parse(later.service_at) - Date.parse(earlier.service_at)) / 1000;
  const factor = length ? period(earlier, later) / length : 1;
  return [...found.values()].map((use) => (["service", "redis"].includes(use.group) ? { ...use, seconds: factor * use.seconds } : use)).filter(({ seconds }) => seconds);
}

/** Answers of `/v1/profile` in the last minute; earlier ones are dropped when a process restarts. */
export class Answers {
  constructor() {
    this.kept = [];
  }

  add(found) {
    const last = this.kept.at(-1);
    if (last && (last.run !== found.run || last.service !== found.service)) this.kept = [];
    if (!this.kept.length || this.kept.at(-1).at !== found.at) this.kept.push(found);
    while (this.kept.length > 2 && period(this.kept[1], found) >= KEPT) this.kept.shift();
  }

  /** CPU seconds by use between the oldest and the newest answer, and the seconds between them; null: not known yet. */
  get measured() {
    const [earlier, later] = [this.kept[0], this.kept.at(-1)];
    const length = earlier ? period(earlier, later) : 0;
    return length ? { uses: between(earlier, later), length } : null;
  }
}

/** Groups with a time above 0: name, description, colour, seconds and share of all. */
export function byGroup(uses) {
  const total = uses.reduce((sum, { seconds }) => sum + seconds, 0);
  return GROUPS.map(([name, text, colour]) => {
    const seconds = uses.filter(({ group }) => group === name).reduce((sum, use) => sum + use.seconds, 0);
    return { name, text, colour, seconds, share: total ? seconds / total : 0 };
  }).filter(({ seconds }) => seconds > 0);
}

/** Rows of a table by query: the time of work for several queries is split equally among them. */
export function byQuery(uses) {
  const found = new Map();
  for (const { queries, seconds } of uses) {
    for (const query of queries.length ? queries : [""]) {
      found.set(query, (found.get(query) ?? 0) + seconds / Math.max(queries.length, 1));
    }
  }
  return greatest([...found].map(([query, seconds]) => ({ text: query || "for no single query", seconds })));
}

/** Rows of a table by use; `named` replaces the ids in names, and equal names are added up. */
export function byUse(uses, named) {
  // Steps may differ in filters only, which short names do not have.
  const found = new Map();
  for (const { group, name, seconds } of uses) {
    const text = `${group}: ${name ? named(name) : (COMMON[group] ?? "earlier plans")}`;
    found.set(text, (found.get(text) ?? 0) + seconds);
  }
  return greatest([...found].map(([text, seconds]) => ({ text, seconds })));
}

/** The rows with the most seconds; all others are added up in one row. */
function greatest(rows) {
  const ranked = rows.sort((a, b) => b.seconds - a.seconds || a.text.localeCompare(b.text));
  const rest = ranked.slice(MOST);
  if (rest.length < 2) return ranked;
  return [...ranked.slice(0, MOST), { text: `${rest.length} others`, seconds: rest.reduce((sum, { seconds }) => sum + seconds, 0) }];
}
