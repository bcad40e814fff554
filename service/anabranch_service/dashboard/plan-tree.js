// A logical plan as SVG: the result on the left, its inputs to the right.
//
// Every node is in the layer of its depth; a leaf takes the next free line, an inner node the
// middle of its inputs.

import { element } from "./dom.js";

const WIDTH = 230;
const HEIGHT = 44;
const LINE_GAP = 10;
const LAYER_GAP = 34;
const MARGIN = 8;
const MOST = 36;

const CLASSES = { MultiJoin: "mir", Scan: "start" };

function shortened(text) {
  return text.length > MOST ? `${text.slice(0, MOST - 1)}…` : text;
}

/** The nodes of a plan with their places. */
function place(root) {
  const nodes = [];
  let line = MARGIN;
  const visit = (data, depth) => {
    const below = data.inputs ?? [];
    const node = { data, depth, children: [], y: 0 };
    nodes.push(node);
    if (!below.length) {
      node.y = line + HEIGHT / 2;
      line += HEIGHT + LINE_GAP;
      return node;
    }
    node.children = below.map((child) => visit(child, depth + 1));
    node.y = (node.children[0].y + node.children[node.children.length - 1].y) / 2;
    return node;
  };
  visit(root, 0);
  const depth = Math.max(...nodes.map((n) => n.depth));
  return {
    nodes,
    width: 2 * MARGIN + (depth + 1) * WIDTH + depth * LAYER_GAP,
    height: line - LINE_GAP + MARGIN,
  };
}

/** Draw a plan (its `data`) as a figure; `text`: description for screen readers. */
export function drawPlan({ data, text }) {
  const { nodes, width, height } = place(data);
  const svg = element("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    role: "img",
    "aria-label": text,
  });
  svg.style.minWidth = `${Math.ceil(width * 0.6)}px`;
  const left = (node) => MARGIN + node.depth * (WIDTH + LAYER_GAP);
  for (const node of nodes) {
    for (const child of node.children) {
      const x1 = left(node) + WIDTH;
      const x2 = left(child);
      const bend = (x1 + x2) / 2;
      svg.append(
        element("path", {
          class: "edge",
          d: `M${x1} ${node.y} C${bend} ${node.y} ${bend} ${child.y} ${x2} ${child.y}`,
        }),
      );
    }
  }
  for (const node of nodes) {
    const { data: own } = node;
    const [title, ...rest] = own.text.split(" ");
    const group = element("g", { class: CLASSES[own.node] ?? "store" });
    const x = left(node);
    group.append(
      element("rect", { class: "box", x, y: node.y - HEIGHT / 2, width: WIDTH, height: HEIGHT, rx: 7 }),
      element(
        "text",
        { class: "title", x: x + 11, y: rest.length ? node.y - 4 : node.y + 4.5 },
        title,
      ),
    );
    if (rest.length) {
      group.append(element("text", { class: "small", x: x + 11, y: node.y + 14 }, shortened(rest.join(" "))));
      group.append(element("title", {}, own.text));
    }
    svg.append(group);
  }
  const figure = document.createElement("figure");
  figure.className = "tree";
  // The figure can have the focus, so that the keyboard scrolls a wide one.
  figure.tabIndex = 0;
  figure.append(svg);
  return figure;
}
