// Keyboard focus across updates: pages redraw lists at every answer of the service, which removes the
// element with the focus. Its successor, the one with the same role in the new list, gets the focus.

const PARTS = "a[href], button, summary, input, select, textarea, [tabindex]";

/** The element that had the focus last, as found before a redrawing. */
let last = null;

const keyOf = (one) =>
  [one.tagName, one.id, one.getAttribute("href"), one.getAttribute("aria-label"), one.title, one.matches("input, select, textarea") ? one.name : one.textContent].join("\n");

const alike = (key) => [...document.querySelectorAll(PARTS)].filter((one) => keyOf(one) === key);

document.addEventListener("focusin", ({ target }) => {
  const key = keyOf(target);
  last = { target, key, place: alike(key).indexOf(target) };
});
// A click beside everything takes the focus away on purpose.
document.addEventListener("pointerdown", () => (last = null));

new MutationObserver(() => {
  if (last === null || document.activeElement !== document.body) return;
  const others = last.target.isConnected ? [last.target] : alike(last.key);
  others[Math.min(last.place, others.length - 1)]?.focus({ preventScroll: true });
}).observe(document.querySelector("main"), { childList: true, subtree: true });
