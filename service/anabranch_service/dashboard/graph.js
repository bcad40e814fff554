// Probe trees as SVG: one tree per arriving relation, laid out in layers from left to right.
//
// A step shared by several goals (results of a query, or an intermediate result) is one node. Every
// node is in the layer of its depth; a leaf takes the next free line, an inner node the middle of
// its children, so no two edges of a tree cross.

import { element } from "./dom.js";

const NODE_HEIGHT = 46;
const GOAL_HEIGHT = 26;
const LINE_GAP = 14;
const LAYER_GAP = 40;
/** Smallest scale of a tree; a tree that is still wider scrolls. */
const SMALLEST = 0.68;
const MARGIN = 8;

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** 12345 -> "12.3K"; small numbers keep their digits. */
export function short(number) {
  if (number === null || number === undefined) return "–";
  if (Math.abs(number) < 1) return String(Number(number.toPrecision(2)));
  if (Math.abs(number) < 1000) return String(Math.round(number * 100) / 100);
  return compact.format(number);
}

/** The probe trees in an epoch's explanation: one root per owner and arriving relation. */
export function forest(explain) {
  const roots = new Map();
  const goals = [
    ...explain.queries.map((q) => ({ name: q.id, keeps: false, orders: q.orders })),
    ...explain.maintenance.map((m) => ({ name: m.label, keeps: true, orders: m.orders })),
  ];
  for (const goal of goals) {
    for (const order of goal.orders) {
      const key = `${order.owner}\u0000${order.start}`;
      if (!roots.has(key)) {
        roots.set(key, { start: order.start, owner: order.owner, children: [], goals: [], depth: 0 });
      }
      let node = roots.get(key);
      node.goalNames = (node.goalNames ?? new Set()).add(goal.name);
      for (const step of order.steps) {
        let child = node.children.find((c) => c.step.id === step.id);
        if (!child) {
          child = { step, children: [], goals: [], depth: node.depth + 1 };
          node.children.push(child);
        }
        node = child;
      }
      node.goals.push({ name: goal.name, keeps: goal.keeps, depth: node.depth + 1 });
    }
  }
  return [...roots.values()].sort(
    (a, b) => a.owner.localeCompare(b.owner) || a.start.localeCompare(b.start),
  );
}

const ruler = document.createElement("canvas").getContext("2d");

/** Width of a text in pixels. */
export function textWidth(text, size, weight = 400) {
  ruler.font = `${weight} ${size}px system-ui, "DejaVu Sans", sans-serif`;
  return ruler.measureText(text).width;
}

function shortened(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** The queries of a step as text of limited width in pixels: all names, or the first and a count. */
function tagOf(users, most) {
  const fits = (text) => textWidth(text, 11, 650) <= most;
  const all = users.join(" + ");
  if (fits(all)) return all;
  let length = users[0].length;
  const some = () => `${shortened(users[0], length)} + ${users.length - 1}`;
  while (length > 4 && !fits(some())) length -= 1;
  return some();
}

function place(root) {
  const layers = [];
  let line = MARGIN;
  const widen = (depth, width) => {
    layers[depth] = Math.max(layers[depth] ?? 0, width);
  };
  const visit = (node) => {
    node.lines =
      node.depth === 0
        ? [shortened(node.start, 30)]
        : [
            shortened(node.step.store, 34),
            `cost ${short(node.step.cost)} · then ${short(node.step.cardinality)}`,
          ];
    node.height = node.depth === 0 ? 30 : NODE_HEIGHT;
    node.width =
      22 + Math.max(textWidth(node.lines[0], 13, 650), textWidth(node.lines[1] ?? "", 11.5));
    widen(node.depth, node.width);
    const top = line;
    for (const child of node.children) visit(child);
    for (const goal of node.goals) {
      goal.text = goal.keeps ? `keep ${shortened(goal.name, 28)}` : shortened(goal.name, 30);
      goal.width = 26 + textWidth(goal.text, 13, 650);
      goal.height = GOAL_HEIGHT;
      widen(goal.depth, goal.width);
      goal.y = line + GOAL_HEIGHT / 2;
      line += GOAL_HEIGHT + LINE_GAP;
    }
    const below = [...node.children, ...node.goals];
    node.y = (below[0].y + below[below.length - 1].y) / 2;
    const least = top + node.height + LINE_GAP;
    if (line < least) {
      // The node is taller than its subtree: centre the subtree on it.
      const shift = (least - line) / 2;
      const move = (n) => {
        n.y += shift;
        [...(n.children ?? []), ...(n.goals ?? [])].forEach(move);
      };
      move(node);
      line = least;
    }
  };
  visit(root);
  const lefts = [];
  layers.reduce((left, width, depth) => {
    lefts[depth] = left;
    return left + width + LAYER_GAP;
  }, MARGIN);
  const last = layers.length - 1;
  return { lefts, width: lefts[last] + layers[last] + MARGIN, height: line - LINE_GAP + MARGIN };
}

function edge(from, to, lefts, attributes) {
  const x1 = lefts[from.depth] + from.width;
  const x2 = lefts[to.depth];
  const bend = x1 + LAYER_GAP * 0.5 + Math.max(0, (x2 - x1 - LAYER_GAP) * 0.9);
  return element("path", {
    d: `M${x1} ${from.y} C${bend} ${from.y} ${bend} ${to.y} ${x2} ${to.y}`,
    ...attributes,
  });
}

/** One probe tree as a figure. `colour` maps a query id to a CSS colour. */
export function drawTree(root, colour) {
  const { lefts, width, height } = place(root);
  const svg = element("svg", {
    viewBox: `0 0 ${Math.ceil(width)} ${Math.ceil(height)}`,
    width: Math.ceil(width),
    role: "img",
    "aria-label": describe(root),
  });
  svg.style.minWidth = `${Math.ceil(width * SMALLEST)}px`;
  const edges = element("g");
  const nodes = element("g");
  svg.append(edges, nodes);

  const visit = (node) => {
    const left = lefts[node.depth];
    const names = node.depth === 0 ? [...node.goalNames] : node.step.shared_by;
    const kept = node.depth > 0 && node.step.store.includes("⋈");
    const group = element("g", {
      class: node.depth === 0 ? "start" : kept ? "mir" : "store",
      "data-goals": JSON.stringify(names),
    });
    group.append(
      element("rect", {
        class: "box",
        x: left,
        y: node.y - node.height / 2,
        width: node.width,
        height: node.height,
        rx: node.depth === 0 ? node.height / 2 : 7,
      }),
    );
    const first = node.lines.length === 1 ? node.y + 4.5 : node.y - 4;
    group.append(element("text", { class: "title", x: left + 11, y: first }, node.lines[0]));
    if (node.lines.length > 1) {
      group.append(element("text", { class: "small", x: left + 11, y: node.y + 14 }, node.lines[1]));
      const partition = node.step.partition
        ? `partitioned by ${node.step.partition}${node.step.broadcast ? ", which the tuple does not know: sent to all partitions" : ""}`
        : "not partitioned by a key";
      group.append(
        element(
          "title",
          {},
          `${node.step.full ?? node.step.store}: ${partition}; cost ${node.step.cost}, ` +
            `${node.step.cardinality} tuples after it; for ${names.join(", ")}`,
        ),
      );
    }
    nodes.append(group);

    for (const child of node.children) {
      const users = child.step.shared_by;
      const shared = users.length > 1;
      const line = element("g", { "data-goals": JSON.stringify(users) });
      const path = edge(node, child, lefts, {
        class: `edge${shared ? " shared" : ""}${child.step.broadcast ? " broadcast" : ""}`,
      });
      if (!shared) path.style.stroke = colour(users[0]) ?? "";
      line.append(path);
      if (shared) {
        const text = tagOf(users, child.width + LAYER_GAP - 24);
        const wide = textWidth(text, 11, 650) + 12;
        const middle = lefts[child.depth] + 8 + wide / 2;
        const above = child.y - child.height / 2;
        line.append(
          element("rect", { class: "tag", x: middle - wide / 2, y: above - 11, width: wide, height: 16, rx: 8 }),
          element("text", { class: "tag-text", x: middle, y: above + 1, "text-anchor": "middle" }, text),
        );
        nodes.append(line);
        edges.append(moved(line, path));
      } else {
        edges.append(line);
      }
      visit(child);
      if (shared) nodes.append(line);
    }
    for (const goal of node.goals) {
      const line = element("g", { "data-goals": JSON.stringify([goal.name]) });
      const path = edge(node, goal, lefts, { class: "edge" });
      const tint = goal.keeps ? "var(--kept)" : colour(goal.name);
      path.style.stroke = tint;
      line.append(path);
      edges.append(line);
      const end = element("g", {
        class: goal.keeps ? "goal keeps" : "goal",
        "data-goals": JSON.stringify([goal.name]),
      });
      const box = element("rect", {
        class: "box",
        x: lefts[goal.depth],
        y: goal.y - goal.height / 2,
        width: goal.width,
        height: goal.height,
        rx: goal.keeps ? 6 : goal.height / 2,
      });
      if (!goal.keeps) box.style.stroke = tint;
      const label = element("text", { x: lefts[goal.depth] + 13, y: goal.y + 4.5, class: "title" }, goal.text);
      end.append(box, label);
      nodes.append(end);
    }
  };
  visit(root);

  const figure = document.createElement("figure");
  figure.className = "tree";
  // The figure can have the focus, so that the keyboard scrolls a wide one.
  figure.tabIndex = 0;
  const caption = document.createElement("figcaption");
  caption.textContent = root.owner ? `${root.start} arrives, for ${root.owner} alone` : `${root.start} arrives`;
  figure.append(caption, svg);
  return figure;
}

/** Move `path` from `line` into a separate group that is drawn below the nodes. */
function moved(line, path) {
  const below = element("g", { "data-goals": line.getAttribute("data-goals") });
  below.append(path);
  return below;
}

function describe(root) {
  const parts = [];
  const visit = (node, path) => {
    for (const goal of node.goals) {
      parts.push(`${path.join(", then ")} gives ${goal.keeps ? "the kept " : ""}${goal.name}`);
    }
    for (const child of node.children) visit(child, [...path, `probes ${child.step.store}`]);
  };
  visit(root, []);
  return `A tuple of ${root.start} ${parts.join("; ")}`;
}

/** Dim all steps that the query `name` does not use; null: dim nothing. */
export function highlight(container, name) {
  for (const group of container.querySelectorAll("[data-goals]")) {
    const goals = JSON.parse(group.getAttribute("data-goals"));
    group.classList.toggle("dim", name !== null && !goals.includes(name));
  }
}
