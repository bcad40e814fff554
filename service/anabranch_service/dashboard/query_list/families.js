// Families on the first page: queries that differ only in constants, read when they are opened.

import { read } from "../access.js";
import { breakable, make, say } from "../dom.js";

/** Number of families, and of queries of a family, that are listed. */
const FAMILIES = 50;
const MEMBERS = 200;

const at = (id) => document.getElementById(id);

/** Call `fill` each time that `details` is opened. */
function whenOpened(details, fill) {
  details.addEventListener("toggle", () => details.open && fill().catch(say));
}

/** Show the section's families when it is opened. */
export function showFamilies() {
  whenOpened(at("families"), async () => {
    const { items } = await read(`/v1/families?limit=${FAMILIES}`);
    const none = make("p", { className: "empty", text: "No two queries differ only in constants." });
    at("families-list").replaceChildren(...(items.length ? items.map(family) : [none]));
  });
}

function family({ id, statement, queries }) {
  const body = make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": `Queries of family ${id}` });
  const head = make("summary", {}, `${queries.toLocaleString("en")} queries: `, make("code", { text: statement }));
  const details = make("details", { className: "family" }, head, body);
  whenOpened(details, async () => body.replaceChildren(...members(await read(`/v1/families/${id}?limit=${MEMBERS}`))));
  return details;
}

/** A table of a family's queries with the constants that differ, and how many others there are. */
function members({ family: { queries }, items }) {
  const columns = items[0].constants.map((_, i) => i).filter((i) => new Set(items.map((one) => one.constants[i])).size > 1);
  const names = ["Query", "Status", "Results", ...columns.map((i) => `Constant ${i + 1}`)];
  const head = make("tr", {}, ...names.map((text) => make("th", { scope: "col", text })));
  const rows = items.map(({ id, status, results, constants }) =>
    make(
      "tr",
      {},
      make("td", { className: "name" }, make("a", { href: `/dashboard/query/${encodeURIComponent(id)}` }, ...breakable(id))),
      make("td", {}, make("span", { className: `badge ${status}`, text: status })),
      make("td", { className: "number", text: results.toLocaleString("en") }),
      ...columns.map((i) => make("td", {}, make("code", { text: constants[i] }))),
    ),
  );
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
  const more = queries - items.length;
  return more > 0 ? [table, make("p", { className: "muted", text: `and ${more.toLocaleString("en")} more` })] : [table];
}
