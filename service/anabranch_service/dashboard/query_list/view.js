// Search criteria of the list of queries, which the service applies. Pure functions.

/** Number of rows per page of the list; with more, every update of the page would be slow. */
export const ROWS = 100;

/** Search criteria, by their names in addresses of this page and of `GET /v1/queries`. */
const NAMES = ["find", "stream", "owner", "tag", "status"];

const sorted = (found) => [...new Set(found)].sort((a, b) => a.localeCompare(b));

/** Choices of the filters: criterion -> values. */
export function choices(queries) {
  return {
    stream: sorted(queries.flatMap(({ normalised }) => normalised.aliases.map(({ stream }) => stream))),
    owner: sorted(queries.map(({ owner }) => owner).filter(Boolean)),
    tag: sorted(queries.flatMap(({ tags }) => tags ?? [])),
    status: sorted(queries.map(({ status }) => status)),
  };
}

/** Parse the search criteria in an address, and write them into one. */
export function wanted(search) {
  const given = new URLSearchParams(search);
  return Object.fromEntries(NAMES.map((name) => [name, given.get(name) ?? ""]));
}

export function searchOf(sought) {
  const given = new URLSearchParams();
  for (const name of NAMES) if (sought[name].trim()) given.set(name, sought[name].trim());
  return given.size ? `?${given}` : "";
}

/** The request for a page of matches, from `cursor` on (null: the first one). */
export function requestOf(sought, cursor) {
  const given = new URLSearchParams(searchOf(sought));
  given.set("limit", ROWS);
  if (cursor !== null) given.set("cursor", cursor);
  return `/v1/queries?${given}`;
}

/** The number of queries, and the shown range of matches, after `before` others. */
export function counted(queries, sought, page, before) {
  const live = queries.filter(({ status }) => status === "active").length;
  const upto = before + page.items.length;
  const more = page.next_cursor !== null;
  const found = searchOf(sought) ? `; ${more ? "more than " : ""}${upto.toLocaleString("en")} found` : "";
  const part = more || before ? `; ${(before + 1).toLocaleString("en")} to ${upto.toLocaleString("en")} are shown` : "";
  return `${live.toLocaleString("en")} active of ${queries.length.toLocaleString("en")}${found}${part}`;
}
