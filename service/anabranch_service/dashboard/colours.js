// A colour per query, stable for as long as the page is open.

import { make } from "./dom.js";

const PALETTE = [
  [202, 78], [158, 64], [336, 66], [28, 84], [266, 58], [92, 55], [358, 66], [182, 70], [48, 80], [300, 48],
];

export const dark = window.matchMedia("(prefers-color-scheme: dark)");
const order = [];

export function colour(name) {
  let index = order.indexOf(name);
  if (index < 0) index = order.push(name) - 1;
  const [hue, saturation] = PALETTE[index % PALETTE.length];
  return `hsl(${hue} ${saturation}% ${dark.matches ? 64 : 40}%)`;
}

/** The coloured mark of a query. */
export function dot(name) {
  const made = make("span", { className: "dot", "aria-hidden": "true" });
  made.style.background = colour(name);
  return made;
}
