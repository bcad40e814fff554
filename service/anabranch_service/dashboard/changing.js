// A form that changes a record: it shows one version, and what it saves is compared with that version.

import { submit } from "./access.js";
import { act } from "./actions.js";

/** The form `change` of a page, with its answers `saved` and `change-refusal`. */
export class Changing {
  /**
   * `path`: of the record. `write(record)` writes its values into the fields; `changes(record)` is
   * what the fields change of it, as the body of a PATCH. `refresh()` asks for the record, and offers it.
   */
  constructor({ path, write, changes, refresh }) {
    Object.assign(this, { path, write, changes, refresh, shown: null, newest: null });
    const at = (id) => document.getElementById(id);
    [this.form, this.saved, this.refusal] = [at("change"), at("saved"), at("change-refusal")];
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.save();
    });
  }

  /** The newest version: the form shows it, unless somebody has begun to change another one. */
  offer(record, tag) {
    this.newest = { record, tag };
    const begun = this.shown && (this.form.contains(document.activeElement) || this.#body() !== null);
    if (!begun && this.shown?.tag !== tag) this.show();
  }

  show() {
    this.shown = this.newest;
    this.write(this.shown.record);
  }

  /** What the fields change of the version that is shown; null: nothing. */
  #body() {
    const body = this.changes(this.shown.record);
    return Object.keys(body).length ? body : null;
  }

  async save() {
    const body = this.#body();
    this.saved.textContent = body ? "" : "No changes.";
    if (!body) return;
    const work = () => submit(this.path, "PATCH", body, { "if-match": this.shown.tag });
    if (await act(this.refusal, work, this.refresh, this.form)) {
      this.show();
      this.saved.textContent = "Saved.";
      return;
    }
    await this.refresh();
    if (this.shown.tag === this.newest.tag) return;
    this.show();
    this.saved.textContent = "It was changed by another user: this is the newest version.";
  }
}
