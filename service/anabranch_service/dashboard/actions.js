// Buttons that change something: refusals are shown beside them, and deletions need confirmation.

import { Problem, Refused } from "./access.js";
import { refuse, say } from "./dom.js";

const at = (id) => document.getElementById(id);

/** Run `work`, then `refresh`; a refusal is shown in `place`. Returns whether `work` succeeded. */
export async function act(place, work, refresh, form = null) {
  try {
    await work();
    refuse(place, null, form);
    await refresh();
    return true;
  } catch (error) {
    if (!(error instanceof Problem) && !(error instanceof Refused)) say(error);
    refuse(place, error, form);
    return false;
  }
}

/** Make the page's delete button run `work` after the user has confirmed it. */
export function deleteAfterQuestion(work, refresh) {
  at("delete").addEventListener("click", () => {
    at("confirm").hidden = false;
    at("keep").focus();
  });
  at("keep").addEventListener("click", () => {
    at("confirm").hidden = true;
    at("delete").focus();
  });
  at("delete-now").addEventListener("click", async () => {
    await act(at("delete-refusal"), work, refresh);
    at("confirm").hidden = true;
  });
}
