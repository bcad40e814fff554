// Completion of words in the statement's text area: a list at the caret, used by keys or clicks.

import { make } from "../dom.js";
import { suggestions } from "./words.js";

/** Offers words while somebody types; `known`: the streams, and names of functions. */
export class Completion {
  constructor(area, known) {
    this.area = area;
    this.known = known;
    this.list = make("ul", { id: "words", className: "words", role: "listbox", "aria-label": "Words that can follow", hidden: true });
    this.items = [];
    this.chosen = -1;
    document.body.append(this.list);
    area.setAttribute("aria-autocomplete", "list");
    area.setAttribute("aria-controls", "words");
    // A change by the page itself has no kind.
    area.addEventListener("input", (event) => (event.inputType ? this.offer() : this.close()));
    area.addEventListener("keydown", (event) => this.key(event), { capture: true });
    for (const name of ["blur", "scroll", "click"]) area.addEventListener(name, () => this.close());
    // The text area keeps the focus.
    this.list.addEventListener("pointerdown", (event) => event.preventDefault());
  }

  offer(every = false) {
    const { value, selectionStart: caret, selectionEnd: end } = this.area;
    const { start, items } = caret === end ? suggestions(value, caret, this.known, every) : { items: [] };
    if (!items.length) return this.close();
    [this.start, this.items] = [start, items];
    this.list.replaceChildren(
      ...items.map(({ text, kind }, at) => {
        const item = make("li", { id: `word-${at}`, role: "option", "aria-selected": "false" }, make("span", { text }), make("span", { className: "muted", text: kind }));
        item.addEventListener("click", () => this.take(at));
        return item;
      }),
    );
    this.list.hidden = false;
    this.choose(-1);
    this.place(value.slice(0, start));
  }

  /** Put the list below the caret's line. */
  place(before) {
    const lines = before.split("\n");
    const style = getComputedStyle(this.area);
    const area = this.area.getBoundingClientRect();
    const ruler = document.createElement("canvas").getContext("2d");
    ruler.font = `${style.fontSize} ${style.fontFamily}`;
    const wide = ruler.measureText("m").width;
    const high = Number.parseFloat(style.lineHeight);
    const left = area.left + Number.parseFloat(style.paddingLeft) + wide * lines.at(-1).length - this.area.scrollLeft;
    const top = area.top + Number.parseFloat(style.paddingTop) + high * lines.length - this.area.scrollTop;
    const room = document.documentElement.clientWidth - this.list.offsetWidth - 8;
    this.list.style.left = `${Math.max(8, Math.min(left, room)) + window.scrollX}px`;
    this.list.style.top = `${top + 2 + window.scrollY}px`;
  }

  choose(at) {
    this.chosen = at;
    [...this.list.children].forEach((item, place) => item.setAttribute("aria-selected", String(place === at)));
    if (at < 0) this.area.removeAttribute("aria-activedescendant");
    else this.area.setAttribute("aria-activedescendant", `word-${at}`);
    this.list.children[at]?.scrollIntoView({ block: "nearest" });
  }

  /** Tab takes the first word, or the one chosen by arrows, which Enter takes too; Ctrl+Space offers every word. */
  key(event) {
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (event.key === " " && event.ctrlKey) this.offer(true);
    else if (this.list.hidden) return;
    else if (event.key === "Escape") this.close();
    else if (event.key === "ArrowDown") this.choose((this.chosen + 1) % this.items.length);
    else if (event.key === "ArrowUp") this.choose((Math.max(this.chosen, 0) + this.items.length - 1) % this.items.length);
    else if (event.key === "Tab" && plain && !event.shiftKey) this.take(Math.max(this.chosen, 0));
    else if (event.key === "Enter" && plain && this.chosen >= 0) this.take(this.chosen);
    else {
      if (["ArrowLeft", "ArrowRight", "Home", "End", "Enter"].includes(event.key)) this.close();
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  take(at) {
    const { text } = this.items[at];
    this.area.setRangeText(text, this.start, this.area.selectionStart, "end");
    this.close();
    this.area.dispatchEvent(new Event("input"));
  }

  close() {
    this.list.hidden = true;
    this.choose(-1);
  }
}
