// Header of every page: name, links to all pages with the present one marked, state of the service.

import { make } from "./dom.js";
import "./focus.js";
import { poll } from "./poll.js";

const POLL_MS = 10_000;

const PAGES = [
  ["/", "Overview"],
  ["/dashboard/plan", "Plan"],
  ["/dashboard/queries", "Queries"],
  ["/dashboard/streams", "Streams"],
  ["/dashboard/measured", "Measurements"],
  ["/dashboard/epochs", "Epochs"],
  ["/dashboard/batches", "Batches"],
  ["/dashboard/state", "Stored state"],
  ["/dashboard/load", "Load"],
  ["/dashboard/what-if", "What if"],
  ["/dashboard/health", "Health"],
  ["/dashboard/settings", "Settings"],
];

const path = location.pathname.replace(/(.)\/$/, "$1");
const links = PAGES.map(([href, text]) => {
  const link = make("a", { href, text });
  if (href === path) link.setAttribute("aria-current", "page");
  return link;
});
const head = document.querySelector("header.top");
const present = links.find((link) => link.hasAttribute("aria-current"));
const pages = make("nav", { className: "pages", id: "pages", "aria-label": "Pages" }, ...links);
// Only narrow windows show it, in place of the links.
const menu = make("button", { type: "button", className: "quiet menu", "aria-controls": "pages", "aria-expanded": "false", text: present?.textContent ?? "Pages" });
menu.addEventListener("click", () => menu.setAttribute("aria-expanded", String(pages.classList.toggle("open"))));
head.prepend(
  make("div", { className: "brand" }, make("img", { src: "/dashboard/icon.svg", alt: "", width: 28, height: 28 }), make("h1", { text: "anabranch" })),
  menu,
  pages,
);
const waiting = make("p", { className: "waiting", id: "waiting", role: "status", hidden: true }, make("a", { href: "/dashboard/epochs#held", text: "A plan waits for approval" }));
head.append(waiting);
head.append(make("p", { className: "pulse", id: "pulse", role: "status", "aria-live": "polite", text: "connecting" }));

/** Show on this page whether a plan waits for approval, as requested by `read`; fires the event `held`. */
export function announce(read) {
  poll(async () => {
    // Other requests of the page show whether the service answers.
    const health = await read("/v1/health").catch(() => null);
    if (health === null) return;
    waiting.hidden = !health.components.some((one) => one.name === "held plan");
    document.dispatchEvent(new CustomEvent("held", { detail: !waiting.hidden }));
  }, POLL_MS);
}
