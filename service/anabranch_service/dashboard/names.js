// Names of relations for people, in place of the planner's ids.

/** The parentheses around all of `text` taken away. */
function bare(text) {
  let depth = 0;
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "(") depth += 1;
    if (text[at] === ")") depth -= 1;
    if (depth === 0) return at && at === text.length - 1 ? text.slice(1, -1) : text;
  }
  return text;
}

/** Relation -> its stream, with the local filter if it has one; of the queries' `normalised`. */
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

/** A label of the planner's with those names; its store's attribute in words. */
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

/** Probe orders of the planner's with names for people, short enough for a picture; the ids of steps stay. */
export function readableOrders(orders, relations) {
  const names = new Map([...relations].map(([id, name]) => [id, name.replace(/ where .*/s, ", filtered")]));
  return orders.map((order) => ({
    ...order,
    start: readable(order.start, names),
    steps: order.steps.map((step) => ({ ...step, store: readable(step.store, names) })),
  }));
}
