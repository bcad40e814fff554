// Map of the joint plan on the first page: drawing, zooming, searching, and a query's path.

import { read } from "../access.js";
import { breakable, element, make, percent, say } from "../dom.js";
import { textWidth } from "../graph.js";
import { around, dearest, LINE, load, PADDING, placed, rate } from "./view.js";

const ZOOM = 1.25;
/** Milliseconds between two requests for the plan, and the least ratio of them to a request's duration. */
const [EVERY_MS, SHARE] = [4000, 20];
/** Greatest height of the map in pixels, and its smallest scale. */
const HIGHEST = 960;
const SMALLEST = 0.62;
/** Most names of queries listed below the map. */
const MOST_LISTED = 100;
/** Pixels below which a map is narrow. */
const NARROW = 500;
const KINDS = { stream: "stream", relation: "tuples of", result: "kept result", query: "query", group: "group of" };

const measure = (text, bold) => (bold ? textWidth(text, 13, 650) : textWidth(text, 11.5));
const at = (id) => document.getElementById(id);

/** The map in the page; `choose` is called with the name of a selected query, `queries` for a search. */
export class PlanMap {
  constructor(choose, queries) {
    this.choose = choose;
    this.queries = queries;
    this.frame = at("map");
    this.shown = "";
    this.query = null;
    this.view = null;
    /** Boxes by id, and the ids that match the search, in reading order. */
    this.boxes = new Map();
    this.hits = [];
    this.hit = 0;
    /** Whether the user wants the whole plan, legible or not. */
    this.whole = false;
    /** Whether the user has zoomed or moved the map, so that updates keep the view. */
    this.moved = false;
    /** Earliest time of the next request. */
    this.due = 0;
    /** Whether the whole plan has groups instead of a node for each query. */
    this.grouped = false;
    /** Query -> owner, tags and title, which the search covers, too; known when somebody searches. */
    this.words = new Map();
    at("map-in").addEventListener("click", () => this.zoom(1 / ZOOM));
    at("map-out").addEventListener("click", () => this.zoom(ZOOM));
    at("map-fit").addEventListener("click", () => {
      this.whole = true;
      this.fit();
    });
    at("map-find").addEventListener("focus", () => this.learn().catch(say));
    at("map-find").addEventListener("input", () => this.search());
    // Somebody may have typed before this script ran.
    if (this.wanted) this.learn().catch(say);
    at("map-find").addEventListener("keydown", (event) => this.next(event));
    at("map-all").addEventListener("click", () => this.choose(null));
    this.frame.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.frame.addEventListener("pointerdown", (event) => this.drag(event));
    // A change of the card's height needs no new layout.
    new ResizeObserver(() => {
      if (this.frame.clientWidth === this.across) return;
      this.whole = false;
      if (this.plan) this.draw();
      this.fit();
    }).observe(this.frame.parentElement);
  }

  /** Show the running plan, with `query` selected. */
  async refresh(query) {
    // Rates change every few seconds only, and a large plan is expensive for the service.
    const began = performance.now();
    if (this.plan && query === this.query && began < this.due) return;
    let plan = null;
    // A plan with groups does not have a node for each query.
    if (!query || !this.grouped) {
      plan = await read("/v1/plan");
      this.grouped = Boolean(plan?.nodes.some(({ kind }) => kind === "group"));
    }
    if (query && (this.grouped || (plan && !plan.nodes.some(({ id }) => id === `query:${query}`)))) {
      plan = await read(`/v1/plan?query=${encodeURIComponent(query)}`);
    }
    const ended = performance.now();
    this.due = began + Math.max(EVERY_MS, SHARE * (ended - began));
    const now = JSON.stringify([plan, query]);
    if (now === this.shown) return;
    const another = this.query !== query || !this.plan !== !plan || this.plan?.nodes.length !== plan?.nodes.length;
    [this.shown, this.plan, this.query] = [now, plan, query];
    at("map-all").hidden = !query;
    at("map-open").hidden = !query;
    at("map-open").href = `/dashboard/query/${encodeURIComponent(query ?? "")}`;
    this.draw();
    // The layout may change even with the same nodes: measured ones show a rate, too.
    if (another || !this.moved) this.fit();
    else this.look();
    if (another) this.list([]);
    if (another && query) this.reveal(around(plan ?? { links: [] }, `query:${query}`));
  }

  /** Request the owners, tags and titles by which queries can be searched, and search again. */
  async learn() {
    for (const { id, run, title, owner, tags } of await this.queries()) {
      const words = [title, owner, ...(tags ?? [])].filter(Boolean).join("\n").toLowerCase();
      this.words.set(id, words).set(run, words);
    }
    if (this.wanted) this.go();
  }

  draw() {
    const focused = document.activeElement?.closest("#map [data-id]")?.dataset.id;
    const plan = this.plan;
    if (!plan?.nodes.length) {
      this.frame.replaceChildren();
      this.size = null;
      at("map-part").hidden = true;
      at("map-note").textContent = "No plan yet: register streams and a query, and start the runtime.";
      return;
    }
    const { boxes, links, width, height } = placed(plan, measure, this.frame.clientWidth < NARROW);
    this.size = [width, height];
    this.boxes = new Map(boxes.map((box) => [box.id, box]));
    const label = (id) => boxes.find((box) => box.id === id).label;
    const svg = element("svg", { role: "group", "aria-label": "Joint plan: streams, kept results, queries" });
    for (const link of links) {
      const path = element("path", {
        class: `link ${link.load}${link.shared > 1 ? " shared" : ""}`,
        d: link.path,
        "stroke-width": link.width.toFixed(1),
        "data-ends": JSON.stringify([link.source, link.target]),
      });
      const shared = link.shared > 1 ? `; a step is shared by ${link.shared}` : "";
      path.append(
        element("title", {}, `${label(link.source)} → ${label(link.target)}: ${rate(link.tuples_per_second)}, ${load(link.cpu)}${shared}`),
      );
      svg.append(path);
    }
    for (const box of boxes) svg.append(this.node(box));
    this.frame.replaceChildren(svg);
    if (focused) this.frame.querySelector(`[data-id="${CSS.escape(focused)}"]`)?.focus();
    const dear = dearest(plan);
    const most = dear && dear.share > 0 ? `; ${percent(dear.share)} of it from ${label(dear.source)} to ${label(dear.target)}` : "";
    const note = plan.measured
      ? `${plan.queries} ${plan.queries === 1 ? "query" : "queries"}, ${load(plan.cpu)} for all probes and results${most}.`
      : "No measurements yet: widths and loads follow a few seconds after the first batch.";
    at("map-note").replaceChildren(...breakable(note));
    this.hits = this.find();
    this.light();
  }

  node(box) {
    const top = box.middle - box.height / 2;
    const group = element("g", {
      class: `node ${box.kind}`,
      "data-id": box.id,
      tabindex: 0,
      role: "button",
      "aria-label": `${KINDS[box.kind] ?? box.kind} ${box.label}, ${box.small.join(", ")}`,
    });
    const round = box.kind === "query" || box.kind === "group" ? Math.min(box.height / 2, 18) : 6;
    group.append(element("rect", { x: box.left, y: top, width: box.width, height: box.height, rx: round }));
    [...box.title, ...box.small].forEach((text, line) => {
      const name = line < box.title.length ? "title" : "small";
      group.append(element("text", { class: name, x: box.left + PADDING, y: top + PADDING + 12 + LINE * line }, text));
    });
    group.append(element("title", {}, box.queries.length ? `needed by ${box.queries.join(", ")}` : box.label));
    group.addEventListener("pointerenter", () => this.light(box.id));
    group.addEventListener("pointerleave", () => this.light());
    group.addEventListener("focus", () => {
      this.light(box.id);
      this.reveal([box.id]);
    });
    group.addEventListener("blur", () => this.light());
    group.addEventListener("click", () => this.open(box));
    group.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        this.open(box);
      }
    });
    return group;
  }

  open(box) {
    if (box.kind === "query") this.choose(box.label);
    else if (box.kind === "stream") location.assign(`/dashboard/stream/${encodeURIComponent(box.label)}`);
    else if (box.kind === "group") this.list(box.queries);
  }

  /** Show names of queries for selection: members of a group, or found queries without a node. */
  list(names) {
    const links = names.slice(0, MOST_LISTED).map((name) => make("a", { href: `#query=${encodeURIComponent(name)}` }, ...breakable(name)));
    const more = names.length - links.length;
    if (more > 0) links.push(make("span", { className: "muted", text: `and ${more.toLocaleString("en")} more: find one by its name above` }));
    at("map-members").replaceChildren(...links);
    at("map-members").hidden = !names.length;
  }

  /** Highlight the paths of node `id`, else of the selected query, else the nodes that match the search. */
  light(id = this.query && `query:${this.query}`) {
    if (!this.plan) return;
    let nodes = id && this.boxes.has(id) ? around(this.plan, id) : null;
    if (!nodes && this.wanted) {
      const found = this.plan.nodes.filter((node) => [node.label, ...node.queries].some((name) => this.matches(name)));
      nodes = new Set(found.map((node) => node.id));
    }
    for (const node of this.frame.querySelectorAll(".node")) {
      node.classList.toggle("dim", nodes !== null && !nodes.has(node.dataset.id));
      node.classList.toggle("hit", node.dataset.id === this.hits[this.hit]);
    }
    for (const link of this.frame.querySelectorAll(".link")) {
      link.classList.toggle("dim", nodes !== null && !JSON.parse(link.dataset.ends).every((end) => nodes.has(end)));
    }
  }

  // --- searching -------------------------------------------------------------------------------

  get wanted() {
    return at("map-find").value.trim().toLowerCase();
  }

  /** Return whether a name matches the search, or the owner, tags or title of a query of this name. */
  matches(name) {
    return name.toLowerCase().includes(this.wanted) || Boolean(this.words.get(name)?.includes(this.wanted));
  }

  /** Return the ids of nodes with a name that matches the search, in reading order. */
  find() {
    if (!this.wanted) return [];
    const found = [...this.boxes.values()].filter((box) => (box.kind === "group" ? box.queries : [box.label]).some((name) => this.matches(name)));
    return found.sort((one, other) => one.left - other.left || one.middle - other.middle).map((box) => box.id);
  }

  /** Return the names of queries that match the search and have no node of their own. */
  elsewhere() {
    if (!this.wanted || !this.grouped) return [];
    const members = [...this.boxes.values()].filter(({ kind }) => kind === "group").flatMap(({ queries }) => queries);
    const names = new Set([...members, ...this.words.keys()]);
    return [...names].filter((name) => !this.boxes.has(`query:${name}`) && this.matches(name));
  }

  /** Move to the first match of the search. */
  search() {
    this.hit = 0;
    this.go();
  }

  /** Enter moves to the next match, with shift to the previous one; a query's whole name selects it. */
  next(event) {
    if (event.key !== "Enter") return;
    event.preventDefault();
    const name = at("map-find").value.trim();
    const known = this.words.has(name) || this.plan?.nodes.some((node) => node.kind !== "stream" && node.queries.includes(name));
    if (name !== this.query && known) this.choose(name);
    this.hit += event.shiftKey ? -1 : 1;
    this.go();
  }

  go() {
    this.hits = this.find();
    const count = this.hits.length;
    this.hit = count ? (this.hit + count) % count : 0;
    this.light();
    const others = this.elsewhere();
    at("map-hits").textContent = !this.wanted ? "" : count ? `${this.hit + 1} of ${count}` : others.length ? "in the list below" : "no match";
    this.list(others);
    if (count) this.reveal([this.hits[this.hit]]);
  }

  // --- zooming and moving ----------------------------------------------------------------------

  fit() {
    if (!this.size) return;
    const [width, height] = this.size;
    const across = (this.across = this.frame.clientWidth);
    // Small plans are not enlarged; large ones are shrunk only as far as legible, and can be dragged.
    const scale = Math.max(Math.min(across / width, HIGHEST / height, 1), this.whole ? 0 : SMALLEST);
    this.high = Math.min(height * scale, HIGHEST);
    const shown = [across / scale, this.high / scale];
    this.view = [Math.min(0, (width - shown[0]) / 2), 0, ...shown];
    this.moved = false;
    this.look();
  }

  /** Move the view to boxes that it does not show; they are made smaller if together they are too large. */
  reveal(ids) {
    const boxes = [...ids].map((id) => this.boxes.get(id)).filter(Boolean);
    if (!boxes.length || !this.size) return;
    const begin = [Math.min(...boxes.map((box) => box.left)), Math.min(...boxes.map((box) => box.middle - box.height / 2))];
    const end = [Math.max(...boxes.map((box) => box.left + box.width)), Math.max(...boxes.map((box) => box.middle + box.height / 2))];
    const [from, shown] = [this.view.slice(0, 2), this.view.slice(2)];
    if ([0, 1].every((axis) => from[axis] <= begin[axis] && end[axis] <= from[axis] + shown[axis])) return;
    const by = Math.max(1, ...[0, 1].map((axis) => (end[axis] - begin[axis] + 2 * PADDING) / shown[axis]));
    const sides = shown.map((side) => side * by);
    this.moved = true;
    this.view = [...[0, 1].map((axis) => (begin[axis] + end[axis] - sides[axis]) / 2), ...sides];
    this.look();
  }

  look() {
    const svg = this.frame.firstElementChild;
    if (!svg) return;
    svg.setAttribute("viewBox", this.view.map((n) => n.toFixed(1)).join(" "));
    svg.setAttribute("height", this.high.toFixed(0));
    const [left, top, width, height] = this.view;
    at("map-part").hidden = left <= 0.5 && top <= 0.5 && left + width >= this.size[0] - 0.5 && top + height >= this.size[1] - 0.5;
  }

  zoom(factor, [x, y] = [0.5, 0.5]) {
    if (!this.size) return;
    const [left, top, width, height] = this.view;
    const most = Math.max(...this.size);
    const next = Math.min(Math.max(width * factor, 120), most * 2);
    const by = next / width;
    this.moved = true;
    this.view = [left + x * width * (1 - by), top + y * height * (1 - by), next, height * by];
    this.look();
  }

  wheel(event) {
    // Without a modifier key the wheel scrolls the page.
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const area = this.frame.getBoundingClientRect();
    this.zoom(event.deltaY > 0 ? ZOOM : 1 / ZOOM, [(event.clientX - area.left) / area.width, (event.clientY - area.top) / area.height]);
  }

  drag(event) {
    if (!this.size || event.button !== 0) return;
    const area = this.frame.getBoundingClientRect();
    const [left, top, width, height] = this.view;
    const from = [event.clientX, event.clientY];
    const move = ({ clientX, clientY }) => {
      this.moved = true;
      this.view = [left - ((clientX - from[0]) * width) / area.width, top - ((clientY - from[1]) * height) / area.height, width, height];
      this.look();
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", () => window.removeEventListener("pointermove", move), { once: true });
  }
}
