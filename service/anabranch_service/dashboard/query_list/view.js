// Queries as a list that is searched: by words, owner and tags. No document, no requests.

/** The words in which a query is looked for. */
function words(query) {
  return [query.id, query.title, query.owner, ...(query.tags ?? []), query.sql].filter(Boolean).join("\n").toLowerCase();
}

/** Whether a query is what is looked for; `text` may be in any of its words. */
export function fits(query, { text = "", owner = "", tag = "" }) {
  if (owner && query.owner !== owner) return false;
  if (tag && !(query.tags ?? []).includes(tag)) return false;
  return !text || words(query).includes(text.trim().toLowerCase());
}

const sorted = (found) => [...new Set(found)].sort((a, b) => a.localeCompare(b));

/** Owners and tags that there are. */
export function choices(queries) {
  return {
    owners: sorted(queries.map(({ owner }) => owner).filter(Boolean)),
    tags: sorted(queries.flatMap(({ tags }) => tags ?? [])),
  };
}

/** What an address asks for, and the address that does. */
export function wanted(search) {
  const given = new URLSearchParams(search);
  return { text: given.get("find") ?? "", owner: given.get("owner") ?? "", tag: given.get("tag") ?? "" };
}

export function searchOf({ text, owner, tag }) {
  const given = new URLSearchParams();
  for (const [name, value] of [["find", text], ["owner", owner], ["tag", tag]]) if (value) given.set(name, value);
  return given.size ? `?${given}` : "";
}
