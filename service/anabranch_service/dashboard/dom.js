// Helpers for all pages: elements, formatted numbers, and the state of the service.

/** Create an element with properties (`data-` and `aria-` ones are attributes) and children. */
export function make(name, { text = "", ...properties } = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "role" || key === "scope") made.setAttribute(key, value);
    else made[key] = value;
  }
  if (text !== "") made.textContent = text;
  made.append(...children);
  return made;
}

/** Create an SVG element; all properties become attributes. */
export function element(name, attributes = {}, text = "", ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

/** Text with line-break opportunities within names: after `_`, `-`, `.`, `/` or `@`, but not within numbers. */
export function breakable(text) {
  return String(text)
    .split(/(?<=[_\-/@]|\.)(?<!\d\.)/)
    .flatMap((part, i) => (i ? [make("wbr"), part] : [part]));
}

/** The first `most` names as text, and the number of others. */
export function some(names, most = 5) {
  const more = names.length - most;
  return more > 0 ? `${names.slice(0, most).join(", ")} and ${more} more` : names.join(", ");
}

/** Fill a description list with names, values (texts or elements) and optional classes. */
export function facts(list, pairs) {
  list.replaceChildren(
    ...pairs.map(([name, value, className = ""]) =>
      make("div", { className }, make("dt", { text: name }), make("dd", {}, value instanceof Node ? value : String(value))),
    ),
  );
}

/** Show rows (arrays of JSON values) in a table with the columns `names`. */
export function showRows(table, names, rows) {
  const missing = (value) => value === null || value === undefined;
  // Decimals come as text.
  const amount = (value) => typeof value === "number" || /^-?\d+\.\d+$/.test(value);
  const amounts = names.map((_, i) => rows.some((row) => !missing(row[i])) && rows.every((row) => missing(row[i]) || amount(row[i])));
  const cell = (value, i) => {
    const text = value === null ? "NULL" : typeof value === "object" ? JSON.stringify(value) : String(value);
    return make("td", { className: amounts[i] ? "number" : "", text });
  };
  const heads = names.map((text, i) => make("th", { scope: "col", text, className: amounts[i] ? "number" : "" }));
  table.tHead.replaceChildren(...(names.length ? [make("tr", {}, ...heads)] : []));
  table.tBodies[0].replaceChildren(...rows.map((row) => make("tr", {}, ...row.map(cell))));
}

/** Let narrow windows show a table's rows as lists, each cell with its column's name. */
export function stack(table) {
  const heads = [...table.tHead.rows[0].cells].map(({ textContent }) => textContent.trim());
  table.classList.add("stacked");
  for (const { cells } of table.tBodies[0].rows) {
    [...cells].forEach((cell, column) => {
      if (column && cell.colSpan === 1) cell.dataset.label = heads[column];
    });
  }
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Format a number of bytes. */
export function bytes(count) {
  let power = 0;
  while (count >= 1024 && power < UNITS.length - 1) {
    count /= 1024;
    power += 1;
  }
  return `${power ? count.toFixed(1) : count} ${UNITS[power]}`;
}

/** The format of numbers of bytes in a column: all in the unit of the greatest of `counts`. */
export function bytesLike(counts) {
  const most = Math.max(0, ...counts.filter((count) => count != null));
  const unit = bytes(most).split(" ")[1];
  const one = 1024 ** UNITS.indexOf(unit);
  return (count) => {
    if (one === 1 || !count) return bytes(count ?? 0);
    return count < 0.05 * one ? `< 0.1 ${unit}` : `${(count / one).toFixed(1)} ${unit}`;
  };
}

/** Format a share as a percentage; a dash if unknown. Values near 0 and 1 are not rounded to them. */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  if (share < 1 && share >= 0.9995) return "> 99.9 %";
  if (share > 0 && share < 0.0005) return "< 0.1 %";
  return `${(100 * share).toFixed(1)} %`;
}

/** Show in the page's status line whether the service answers, and accepts the token. */
export function say(error) {
  const at = (id) => document.getElementById(id);
  const refused = error?.status === 401 ? "signed out" : "not allowed";
  at("pulse").textContent = error ? (error.status ? refused : "disconnected") : "live";
  at("pulse").className = error ? "pulse lost" : "pulse ok";
  at("banner").hidden = !error;
  if (error?.status) {
    at("banner").textContent = error.status === 401 ? "This service requires a token: sign in above." : `Not allowed: ${error.message}.`;
  } else if (error) {
    at("banner").textContent = `The service does not answer (${error.message}). The page shows its last answer and retries automatically. If this persists, check that the service is running.`;
  }
}

/**
 * Show why a request was refused, with the remedy, in `place`; null: it was not. Further errors with a
 * place in a text are listed below. In `form` the fields that it names (`data-field`) are marked, and the
 * first of them has the focus.
 */
export function refuse(place, error, form = null) {
  place.hidden = !error;
  const remedy = error?.problem?.remedy;
  place.textContent = error ? `${error.message}${remedy ? ` (${remedy})` : ""}` : "";
  for (const { line, column, message, remedy } of (error?.problem?.errors ?? []).slice(1)) {
    if (!line) continue;
    const text = `line ${line}, column ${column}: ${message}${remedy ? ` (${remedy})` : ""}`;
    place.append(make("div", { text }));
  }
  const named = (error?.problem?.errors ?? []).map(({ field }) => field);
  const fields = [...(form?.querySelectorAll("[data-field]") ?? [])];
  for (const field of fields) field.setAttribute("aria-invalid", String(named.includes(field.dataset.field)));
  fields.find((field) => named.includes(field.dataset.field))?.focus();
}
