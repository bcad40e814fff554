// User-facing names of relations and intermediate results, in place of the planner's ids.

/** Remove parentheses around the whole `text`. */
function bare(text) {
  let depth = 0;
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "(") depth += 1;
    if (text[at] === ")") depth -= 1;
    if (depth === 0) return at && at === text.length - 1 ? text.slice(1, -1) : text;
  }
  return text;
}

/** Relation -> its stream, with the local filter if it has one, from the queries' `normalised`. */
export function relationNames(meanings) {
  const names = new Map();
  for (const { aliases } of meanings) {
    for (const { alias, stream, relation, filter } of aliases) {
      const condition = filter.map((part) => bare(part.replaceAll(`${alias}.`, ""))).join(" AND ");
      if (!names.has(relation)) names.set(relation, condition ? `${stream} where ${condition}` : stream);
    }
  }
  return names;
}

/** Replace relation ids in a planner's label by `names`, and describe the store's partition attribute. */
export function readable(label, names) {
  const ids = [...names.keys()].filter((id) => names.get(id) !== id).sort((a, b) => b.length - a.length);
  const marks = ids.map((_, at) => `\u0000${at}\u0000`);
  let text = ids.reduce((found, id, at) => found.replaceAll(id, marks[at]), label).replace(/\[(\w+)\]$/, " by $1");
  const alone = /^\u0000\d+\u0000( by \w+)?$/.test(text);
  ids.forEach((id, at) => {
    text = text.replaceAll(marks[at], alone ? names.get(id) : `(${names.get(id)})`);
  });
  return text.replaceAll("⋈", " ⋈ ");
}

/** Replace ids in the planner's probe orders by short names; the ids of steps stay. */
export function readableOrders(orders, relations) {
  const names = new Map([...relations].map(([id, name]) => [id, name.replace(/ where .*/s, ", filtered")]));
  return orders.map((order) => ({
    ...order,
    start: readable(order.start, names),
    steps: order.steps.map((step) => ({ ...step, store: readable(step.store, names) })),
  }));
}

/** Suffix of the planner's query for the left rows of an outer join; `+2` etc. are pairs of look-ups. */
const LEFT = "+left";
/** Part of a store's id after its relation: key with its type, partitions, digest. */
const KEY = /\[(?:[^[\]:]+(?:\[\w+\])?\.)?(\w+):[\w(),]+\]\/\d+(?:~[0-9a-f]+)?/g;
const DIGEST = /\/\d+~[0-9a-f]+/g;
/** Pattern of the id of an intermediate result with unknown members. */
const RESULT = /([^\s,()*]+(?:\*[^\s,()*@]+)+)@[0-9a-f]{6,}/g;
/** Suffix of an edge's name that tells it from others with the same probes. */
const FORK = /@[0-9a-f]{6}(?=>|$)/g;
/** Separators in an edge's name: between successive probes, and between the members of a result. */
const EDGE = /(?<=\S)>(?=\S)/g;
const JOINED = /(?<=[\w\]])\*(?=\w)/g;
/** Digest of the local filter in the id of a relation without a known name. */
const FILTERED = /\[[0-9a-f]{8}\]/g;

/** The registered query to which a query of the planner belongs. */
export const registered = (name) => name.split("+", 1)[0];

/** User-facing name of a goal: a query, its left rows, or the pairs of a further look-up. */
function goalOf(name) {
  const [query, part] = name.split("+");
  if (part === undefined) return name;
  return `${query}, ${name.endsWith(LEFT) ? "left rows" : `look-up ${part}`}`;
}

/** User-facing names for the ids in plans, statistics and stored state. */
export class Names {
  /**
   * `known`: an answer of `GET /v1/plan/names`; null: none. `stores`: steps of an explanation or stores of a
   * state, with the members of their results.
   */
  constructor(known, stores = []) {
    this.relations = new Map((known?.relations ?? []).map(({ relation, stream, filter }) => [relation, filter ? `${stream} where ${filter}` : stream]));
    const members = [...Object.entries(known?.results ?? {}), ...stores.map((store) => [store.mir, store.members])];
    this.short = new Map([...this.relations].map(([id, name]) => [id, name.replace(/ where .*/s, ", filtered")]));
    this.results = [...new Map(members.filter(([, labels]) => labels.length > 1).map(([mir, labels]) => [mir, labels.join("⋈")]))].sort(([a], [b]) => b.length - a.length);
  }

  /** Replace ids in a text by names; `brief`: without filters. */
  text(text, { brief = false } = {}) {
    const relations = brief ? this.short : this.relations;
    const plain = this.results
      .reduce((found, [mir, members]) => found.replaceAll(mir, members), text)
      .replace(RESULT, (_, members) => members.replaceAll("*", "⋈"))
      .replace(FORK, "")
      .replace(KEY, "[$1]")
      .replace(DIGEST, "")
      .replace(EDGE, " → ")
      .replace(JOINED, "⋈");
    return readable(plain, relations).replace(FILTERED, ", filtered");
  }

  goal(name, known) {
    return known.has(name) ? goalOf(name) : this.text(name, { brief: true });
  }

  /** Replace ids in the explanation of a plan by names, and the ids of an order's steps by the steps. */
  explain(explain) {
    if (!explain?.queries) return explain;
    const known = new Set(explain.queries.map(({ id }) => id));
    const steps = new Map(
      (explain.steps ?? []).map((step) => [
        step.id,
        {
          ...step,
          store: this.text(step.store, { brief: true }),
          full: this.text(step.store),
          partition: step.partition && this.text(step.partition, { brief: true }),
          shared_by: step.shared_by.map((name) => this.goal(name, known)),
        },
      ]),
    );
    const orders = (found) =>
      found.map((order) => ({
        ...order,
        start: this.text(order.start, { brief: true }),
        owner: order.owner && goalOf(order.owner),
        steps: order.steps.map((id) => steps.get(id)),
      }));
    const hot = explain.hot_keys;
    return {
      ...explain,
      ...(hot && { hot_keys: { ...hot, values: hot.values.map((one) => ({ ...one, attribute: this.text(one.attribute) })) } }),
      queries: explain.queries.map((query) => ({ ...query, id: goalOf(query.id), orders: orders(query.orders) })),
      maintenance: (explain.maintenance ?? []).map((kept) => ({ ...kept, label: this.text(kept.label, { brief: true }), orders: orders(kept.orders) })),
      stores: (explain.stores ?? []).map((store) => ({ ...store, label: this.text(store.label), used_by: store.used_by.map((name) => this.goal(name, known)) })),
      backfill: (explain.backfill ?? []).map((past) => ({ ...past, label: this.text(past.label) })),
    };
  }

  /** Replace ids in an epoch by names. */
  epoch(epoch) {
    if (!epoch) return epoch;
    const of = (name) => this.text(name);
    const keyed = (found) => Object.fromEntries(Object.entries(found ?? {}).map(([name, value]) => [of(name), value]));
    const entries = (lists) => Object.fromEntries(Object.entries(lists).map(([kind, items]) => [kind, items.map((one) => ({ ...one, label: of(one.label) }))]));
    return {
      ...epoch,
      queries: [...new Set(epoch.queries.map(registered))],
      explain: this.explain(epoch.explain),
      assumed: epoch.assumed.map(of),
      estimated: keyed(epoch.estimated),
      ahead: epoch.ahead && { ...epoch.ahead, arrivals: keyed(epoch.ahead.arrivals) },
      shares: epoch.shares && { ...epoch.shares, queries: epoch.shares.queries.map((one) => ({ ...one, query: goalOf(one.query) })) },
      diff: epoch.diff && { ...epoch.diff, steps: entries(epoch.diff.steps), stores: entries(epoch.diff.stores) },
    };
  }

  /** Replace ids in time series by names; of several relations with the same name the first stays. */
  series(series) {
    const relations = {};
    for (const [id, values] of Object.entries(series.relations)) relations[this.text(id)] ??= values;
    return { ...series, relations, steps: series.steps.map((step) => ({ ...step, head: step.head.map((id) => this.text(id)), target: step.target.map((id) => this.text(id)) })) };
  }
}
