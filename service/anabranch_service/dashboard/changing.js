// A form that changes a record with optimistic locking: saving fails if the record's version has changed.

import { submit } from "./access.js";
import { act } from "./actions.js";

/** The form with id `change`, with the elements `saved` and `change-refusal` for the outcome. */
export class Changing {
  /**
   * `path`: path of the record. `write(record)` writes its values into the fields; `changes(record)` is
   * the changed fields, as the body of a PATCH. `refresh()` requests the record and calls `offer` with it.
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

  /** Show a new version of the record, unless the user has begun to change the shown one. */
  offer(record, tag) {
    this.newest = { record, tag };
    const begun = this.shown && (this.form.contains(document.activeElement) || this.#body() !== null);
    if (!begun && this.shown?.tag !== tag) this.show();
  }

  show() {
    this.shown = this.newest;
    this.write(this.shown.record);
  }

  /** Changed fields compared with the shown version; null: none. */
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
    this.saved.textContent = "Another user has changed this object: the newest version is shown.";
  }
}
