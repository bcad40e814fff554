// A list within the difference of two plans, as an element that can be expanded.

import { breakable, bytes, make } from "../dom.js";
import { short } from "../graph.js";

export function listOf({ title, sign, entries }) {
  // Steps have a cost, stores a content.
  const content = ({ tuples, bytes: size }) => `${short(tuples)} tuples, ${bytes(Math.round(size))}`;
  const price = (entry) => (entry.tuples === null ? "no estimate" : entry.bytes === undefined ? `cost ${short(entry.cost)}` : content(entry));
  const lines = entries.map((entry) =>
    make(
      "li",
      { className: sign === "+" ? "new" : sign ? "gone" : "" },
      make("span", { className: "sign", "aria-hidden": "true", text: sign }),
      make("span", {}, ...breakable(entry.label)),
      make("span", { className: "muted number", text: price(entry) }),
    ),
  );
  return make("details", { open: sign !== "" }, make("summary", { text: `${title} (${entries.length})` }), make("ul", { className: "changes" }, ...lines));
}
