// A text area with line numbers, in which the place of a problem can be marked.

import { make } from "../dom.js";

export class Editor {
  /** `area`: the text area; `gutter`: the element beside it with the line numbers. */
  constructor(area, gutter) {
    this.area = area;
    this.gutter = gutter;
    this.bad = null;
    area.addEventListener("input", () => {
      this.bad = null;
      this.area.removeAttribute("aria-invalid");
      this.number();
    });
    area.addEventListener("scroll", () => this.follow());
    new ResizeObserver(() => this.follow()).observe(area);
    this.number();
  }

  get text() {
    return this.area.value;
  }

  set text(text) {
    this.area.value = text;
    this.area.dispatchEvent(new Event("input"));
  }

  /** Insert `text` at the caret. */
  insert(text) {
    const { selectionStart: start, selectionEnd: end } = this.area;
    this.area.setRangeText(text, start, end, "end");
    this.area.focus();
    this.area.dispatchEvent(new Event("input"));
  }

  /**
   * Mark the lines of problems and select the word of the first; without positions mark the text as
   * invalid only.
   */
  pointAt({ line, column } = {}, ...others) {
    this.bad = [line, ...others.map((other) => other.line)];
    this.area.setAttribute("aria-invalid", "true");
    this.number();
    if (!line) return;
    const before = this.text.split("\n").slice(0, line - 1).join("\n").length;
    const start = before + (line > 1 ? 1 : 0) + column - 1;
    const word = /^[\w.`]+|./.exec(this.text.slice(start));
    this.area.focus();
    this.area.setSelectionRange(start, start + (word?.[0].length ?? 0));
  }

  number() {
    const lines = this.text.split("\n").length;
    if (lines !== this.gutter.childElementCount) {
      this.gutter.replaceChildren(...Array.from({ length: lines }, (_, at) => make("span", { text: String(at + 1) })));
    }
    [...this.gutter.children].forEach((line, at) => line.classList.toggle("bad", this.bad?.includes(at + 1) ?? false));
    this.follow();
  }

  follow() {
    this.gutter.style.height = `${this.area.clientHeight}px`;
    this.gutter.scrollTop = this.area.scrollTop;
  }
}
