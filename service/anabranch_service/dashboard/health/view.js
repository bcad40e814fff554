// Components of the health report. Pure functions.

const PAGES = { stream: "/dashboard/stream/", query: "/dashboard/query/" };

/** Address of the page of a component; null: it has none. */
export function pageOf({ kind, name }) {
  return PAGES[kind] ? PAGES[kind] + encodeURIComponent(name) : null;
}
