// What the stores hold, as rows to show: largest first, with the levels of their segments.

const MAX_STORES = 50;

/** Facts about all stores together. */
export function totals(state, bytes) {
  if (!state) return [["stored", "nothing yet"]];
  const segments = state.stores.reduce((sum, s) => sum + s.segments, 0);
  const indexes = state.stores.reduce((sum, s) => sum + s.index_bytes, 0);
  return [
    ["stores", state.stores.length],
    ["segments", segments],
    ["bytes", bytes(state.bytes)],
    ["of them indexes", bytes(indexes)],
    ["space amplification", state.space_amplification?.toFixed(2) ?? "–"],
    ["written by batches", bytes(state.inserted_bytes)],
    ["by merges", bytes(state.merged_bytes)],
    ["write amplification", state.write_amplification?.toFixed(2) ?? "–"],
  ];
}

/** Stores, largest first, and how many are left out; a level's part is of the store's bytes. */
export function stores(state) {
  const found = [...(state?.stores ?? [])];
  found.sort((a, b) => b.bytes - a.bytes || a.store.localeCompare(b.store));
  return {
    rows: found.slice(0, MAX_STORES).map((s) => ({
      ...s,
      ...described(s),
      found: s.probes ? s.matches / s.probes : null,
      levels: s.levels.map((l) => ({ ...l, part: s.bytes ? l.bytes / s.bytes : 0 })),
    })),
    omitted: Math.max(found.length - MAX_STORES, 0),
  };
}

/** What a store is, in words. */
export function described(store) {
  return {
    of: store.members.length ? store.members.join(" ⋈ ") : store.streams.join(", "),
    where: store.filter.join(" AND "),
    split: store.partitions === 1 ? "1" : `${store.partitions}${store.partition ? ` by ${store.partition}` : ""}`,
    span: store.batches.map(range).join(", "),
  };
}

/** First and last, as one where they are. */
export function range([first, last]) {
  return first === last ? `${first}` : `${first}–${last}`;
}
