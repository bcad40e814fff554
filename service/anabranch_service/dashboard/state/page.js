// State page: polls the REST API for the stores. The selected store is in the page's address.

import { read } from "../access.js";
import { breakable, bytes, bytesLike, element, facts, make, percent, say, stack } from "../dom.js";
import { short } from "../graph.js";
import { Names, registered } from "../names.js";
import {
  LEVELS, MOST_ROWS, asked, described, line, list, moment, picture, range, told, totals,
} from "./view.js";

const POLL_MS = 2000;
/** Least ratio of the time between two requests to a request's duration, which is long with many stores. */
const SHARE = 5;
const MOST_QUERIES = 4;
/** Most characters of their names in the list of stores. */
const MOST_CHARACTERS = 60;
const MOST_PARTS = 200;

const at = (id) => document.getElementById(id);
const shown = { by: "bytes", descending: true, filter: "", axis: "batches" };
let state = null;
/** The selected store: undefined until the service has answered, null: it does not exist. */
let detail;

function picked() {
  return new URLSearchParams(location.hash.slice(1)).get("store");
}

function link(store, content, properties) {
  return make("a", { href: `#store=${encodeURIComponent(store)}`, ...properties }, ...content);
}

/** Replace rows, and keep the focus. */
function fill(body, rows, columns, empty) {
  const focused = body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const none = make("td", { className: "empty", text: empty });
  none.colSpan = columns;
  body.replaceChildren(...(rows.length ? rows : [make("tr", {}, none)]));
  stack(body.parentElement);
  if (focused) body.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
}

const number = (value) => make("td", { className: "number", text: value });
const count = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

/** A cell with the first queries, whose names have at most so many `characters` but for the first one. */
function queries(goals, characters = Infinity) {
  const names = [...new Set(goals.map(registered))];
  let [most, length] = [0, 0];
  while (most < Math.min(names.length, MOST_QUERIES) && (!most || length + names[most].length <= characters)) {
    length += names[most].length;
    most += 1;
  }
  const links = names
    .slice(0, most)
    .flatMap((name, i) => [i ? ", " : "", make("a", { href: `/dashboard/plan#query=${encodeURIComponent(name)}` }, ...breakable(name))]);
  const more = names.length - most;
  if (more > 0) links.push(` and ${more} more`);
  return make("td", { className: "users", title: more > 0 ? names.slice(0, 100).join(", ") : "" }, ...(links.length ? links : ["nobody"]));
}

function showTotals() {
  facts(at("totals"), totals(state, bytes));
  at("totals-note").textContent = state ? `before batch ${state.next_batch}` : "";
  const reads = asked(state);
  at("asked-note").textContent = reads ? `in epoch ${state.epoch - 1}` : "";
  facts(
    at("asked"),
    reads
      ? [
          ["probing tuples", count(reads.probes)],
          ["hit rate", percent(reads.hit_rate)],
          ["segments read per tuple", short(reads.read_amplification)],
          ["excluded by filters", percent(reads.filtered_share)],
          ["skipped without a filter", percent(reads.passed_share)],
        ]
      : [["measured", state?.epoch > 0 ? `no tuple probed a store in epoch ${state.epoch - 1}` : "nothing yet: figures follow the first epoch", "long"]],
  );
}

function showList() {
  for (const head of at("list").tHead.querySelectorAll("[data-by]")) {
    const own = head.dataset.by === shown.by;
    head.setAttribute("aria-sort", own ? (shown.descending ? "descending" : "ascending") : "none");
  }
  const names = new Names(null, state?.stores ?? []);
  const { rows, matching, all } = list(state, shown);
  const more = matching - rows.length;
  at("stores-note").textContent = state
    ? `${matching === all ? all : `${matching} of ${all}`}${more ? `; the first ${MOST_ROWS} are shown` : ""}`
    : "";
  const current = picked();
  const size = bytesLike(rows.map((s) => s.bytes));
  const lines = rows.map((s) =>
    make(
      "tr",
      { className: s.store === current ? "picked" : "" },
      make(
        "td",
        { className: s.kind === "stream" ? "name" : "name mir" },
        link(s.store, breakable(names.text(s.store)), { "aria-current": String(s.store === current), title: s.store }),
      ),
      make("td", { text: s.of, title: s.where }),
      number(count(s.rows)),
      number(size(s.bytes)),
      number(count(s.segments)),
      number(count(s.reads?.probes)),
      number(percent(s.reads?.hit_rate)),
      number(short(s.reads?.read_amplification)),
      make("td", { text: `${s.span || "–"}${s.growing ? "" : ", ended"}${s.backfill ? ", being completed" : ""}` }),
      queries(s.queries, MOST_CHARACTERS),
    ),
  );
  fill(at("list").tBodies[0], lines, 10, all ? "No matching store." : "Nothing is stored yet.");
}

function showDetail() {
  const name = picked();
  at("detail").hidden = name === null;
  if (name === null) return;
  at("detail-title").textContent = `Store ${new Names(null, detail ? [detail] : []).text(name)}`;
  at("missing").hidden = detail !== null;
  at("found").hidden = !detail;
  at("missing").textContent = "The store does not exist, or no longer exists.";
  at("detail-note").textContent = detail ? described(detail).of : "";
  if (!detail) return;
  const { where, split, span } = described(detail);
  facts(at("facts"), [
    ["id", detail.store],
    ["kind", detail.kind],
    ["rows", count(detail.rows)],
    ["bytes", bytes(detail.bytes)],
    ["on disk", bytes(detail.disk_bytes)],
    ["space amplification", detail.space_amplification?.toFixed(2) ?? "–"],
    ["write amplification", detail.write_amplification?.toFixed(2) ?? "–"],
    ["hit rate", percent(detail.reads?.hit_rate)],
    ["segments read per tuple", short(detail.reads?.read_amplification)],
    ["partitions", split],
    ["batches", `${span || "–"}${detail.growing ? "" : ", ended"}`],
    ...(where ? [["filter", where]] : []),
  ]);
  showSegments();
  showCharts();
  showIndexes();
  showReaders();
}

function showSegments() {
  const present = new Set(detail.parts.map((p) => Math.min(p.level, LEVELS - 1)));
  at("levels").replaceChildren(
    ...[...present].sort().map((level) =>
      make("span", {}, make("span", { className: `key level-${level}` }), ` level ${level}${level === LEVELS - 1 ? " and more" : ""}`),
    ),
  );
  at("axis").options[1].disabled = !detail.parts.some((p) => p.event_time);
  const axis = at("axis").options[1].disabled ? "batches" : shown.axis;
  at("axis").value = axis;
  const [width, left, height] = [Math.max(at("segments").clientWidth, 300), 46, 220];
  const found = picture(detail.parts, axis, { width, left, height });
  const notes = [];
  if (detail.parts_batch === null) notes.push("The runtime has not reported its state yet.");
  else if (!found) notes.push("No segments.");
  else {
    const tall = found.bottom + 22;
    const text = `${detail.parts.length} segments, ${found.lines.length} partitions, along ${axis === "time" ? "event time" : "batches"}`;
    const svg = element("svg", { viewBox: `0 0 ${width} ${tall}`, role: "img", "aria-label": text });
    for (const { partition, bottom, bars } of found.lines) {
      svg.append(
        element("text", { x: 0, y: bottom - 3, class: "small" }, `p${partition}`),
        element("line", { x1: left, x2: width, y1: bottom + 0.5, y2: bottom + 0.5, class: "axis" }),
        ...bars.map((bar) =>
          element(
            "rect",
            { x: bar.x, y: bar.y, width: bar.width, height: bar.height, class: `level-${bar.level}` },
            "",
            element("title", {}, told(bar.part, bytes)),
          ),
        ),
      );
    }
    found.ticks.forEach((tick, i) => {
      const anchor = i === 0 ? "start" : tick.x === width ? "end" : "middle";
      svg.append(element("text", { x: tick.x, y: tall - 4, class: "small", "text-anchor": anchor }, tick.text));
    });
    at("segments").replaceChildren(svg);
    notes.push(`State before batch ${detail.parts_batch}; the height of a bar is the size of its segment.`);
    if (found.undated) notes.push(`${found.undated} segments have no event time.`);
    if (found.omitted) notes.push(`${found.omitted} more partitions are not drawn.`);
  }
  if (!found) at("segments").replaceChildren();
  if (detail.parts_omitted) notes.push(`${detail.parts_omitted} smaller segments are not listed.`);
  at("segments-note").textContent = notes.join(" ");
  const size = bytesLike(detail.parts.map((p) => p.bytes));
  const rows = detail.parts.slice(0, MOST_PARTS).map((p) =>
    make(
      "tr",
      {},
      number(p.partition),
      number(p.level),
      number(count(p.rows)),
      number(size(p.bytes)),
      make("td", { text: range(p.batches) }),
      make("td", { text: p.event_time ? `${moment(p.event_time[0])} – ${moment(p.event_time[1])}` : "–" }),
    ),
  );
  fill(at("parts").querySelector("tbody"), rows, 6, "None.");
}

function chart(title, value, text, top = null) {
  const [width, height] = [360, 90];
  const found = line(detail.history, value, { width, height, top });
  const heading = make("h3", { text: title });
  if (!found) return make("div", {}, heading, make("p", { className: "muted", text: "No reads yet." }));
  const label = `${title}, epochs ${range([found.from, found.to])}: last ${text(found.last)}, between ${text(found.least)} and ${text(found.greatest)}`;
  const svg = element("svg", { viewBox: `-4 -6 ${width + 8} ${height + 30}`, role: "img", "aria-label": label, class: "chart" });
  svg.append(
    element("line", { x1: 0, x2: width, y1: height, y2: height, class: "axis" }),
    element("path", { d: found.path, class: "line" }),
    ...found.points.map((p) =>
      element("circle", { cx: p.x, cy: p.y, r: 2.6 }, "", element("title", {}, `epoch ${p.epoch}: ${text(p.value)}`)),
    ),
    element("text", { x: 0, y: height + 18, class: "small" }, `epoch ${found.from}`),
    element("text", { x: width, y: height + 18, class: "small", "text-anchor": "end" }, found.to === found.from ? "" : `${found.to}`),
  );
  heading.append(make("span", { className: "now", text: text(found.last) }));
  return make("figure", {}, heading, svg);
}

function showCharts() {
  at("charts").replaceChildren(
    chart("Hit rate", (e) => e.reads.hit_rate, percent, 1),
    chart("Segments read per tuple", (e) => e.reads.read_amplification, short),
    chart("Bytes", (e) => e.bytes, bytes),
  );
}

function showIndexes() {
  const size = bytesLike(detail.indexes.map((i) => i.bytes));
  const filterSize = bytesLike(detail.indexes.map((i) => i.filter_bytes));
  const rows = detail.indexes.map((i) =>
    make(
      "tr",
      {},
      make("td", { className: "name", text: i.key }),
      number(count(i.entries)),
      number(size(i.bytes)),
      number(filterSize(i.filter_bytes)),
      number(count(i.life.probes)),
      number(percent(i.life.hit_rate)),
      number(short(i.life.read_amplification)),
      number(percent(i.life.filtered_share)),
    ),
  );
  fill(at("indexes").tBodies[0], rows, 8, "No indexes.");
  const reads = detail.reads ?? detail.life;
  const ways = [
    ["skipped: other batches", reads.by_batch],
    ["skipped: other partition", reads.by_partition],
    ["skipped: other event time", reads.by_time],
    ["excluded by its filter", reads.filtered],
    ["read", reads.looked],
  ];
  const all = ways.reduce((sum, [, n]) => sum + n, 0);
  at("met").replaceChildren(
    ...ways.map(([name, n]) => {
      const bar = make("div", { className: "fill" });
      bar.style.width = `${all ? (100 * n) / all : 0}%`;
      return make(
        "li",
        {},
        make("span", { className: "what", text: name }),
        make("div", { className: "track", "aria-hidden": "true" }, bar),
        make("span", { className: "muted number", text: reads.probes ? `${short(n / reads.probes)} per tuple` : "–" }),
      );
    }),
  );
}

function showReaders() {
  const rows = detail.readers.map((r) =>
    make(
      "tr",
      {},
      make("td", { className: "name", text: new Names(null, [detail]).text(r.edge), title: r.fill ? "fills gaps of an intermediate result" : "" }),
      make("td", { text: r.start ?? "–" }),
      make("td", { text: r.key.join(", ") || "–" }),
      number(count(r.statistics?.probes)),
      number(r.statistics?.probes ? short(r.statistics.matches / r.statistics.probes) : "–"),
      queries(r.queries),
    ),
  );
  fill(at("readers").tBodies[0], rows, 6, "No readers at present.");
  at("readers-note").textContent = detail.readers_omitted ? `${detail.readers_omitted} more edges are not listed.` : "";
}

function show() {
  showTotals();
  showList();
  showDetail();
}

/** Request all shown data; late answers about a store no longer selected are dropped. */
async function refresh() {
  const name = picked();
  try {
    const [all, one] = await Promise.all([
      read("/v1/state"),
      name === null ? null : read(`/v1/state/stores/${encodeURIComponent(name)}`),
    ]);
    state = all;
    if (name === picked()) detail = one;
    show();
    say(null);
  } catch (error) {
    say(error);
  }
}

for (const head of at("list").tHead.querySelectorAll("[data-by]")) {
  head.querySelector("button").addEventListener("click", () => {
    const { by } = head.dataset;
    shown.descending = by === shown.by ? !shown.descending : by !== "store";
    shown.by = by;
    showList();
  });
}
at("filter").addEventListener("input", (event) => {
  shown.filter = event.target.value;
  showList();
});
at("axis").addEventListener("change", (event) => {
  shown.axis = event.target.value;
  showSegments();
});
window.addEventListener("hashchange", async () => {
  detail = undefined;
  await refresh();
  if (picked() !== null) at("detail").scrollIntoView({ block: "start" });
});

async function follow() {
  const started = performance.now();
  if (!document.hidden) await refresh();
  setTimeout(follow, Math.max(POLL_MS, SHARE * (performance.now() - started)));
}
follow();
