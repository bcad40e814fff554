// Cost of a plan compared with other plans, and the CPU time that it saves.

import { make, percent } from "../dom.js";
import { short } from "../graph.js";
import { length } from "../times.js";

const compared = (share) => `${percent(Math.abs(share))} ${share < 0 ? "more" : "less"} CPU time than standalone plans`;

/** The unit of a plan's costs. */
export function unit(objective) {
  return objective === "seconds" ? "CPU seconds per epoch" : "tuples per unit of time";
}

/** Format CPU seconds. */
function cpu(seconds) {
  return `${Number(seconds.toPrecision(2))} s`;
}

/** Text on saved CPU time: of the running plan the mean over some minutes; of another epoch its estimate. */
export function savingText(epoch, saving) {
  if (!epoch || !epoch.queries.length) return "";
  if (saving) {
    const [lowest, highest] = [percent(saving.lowest), percent(saving.highest)];
    const range = saving.epochs === 1 || lowest === highest ? "" : ` (${lowest} to ${highest} by epoch)`;
    return `${compared(saving.share)}${range}, estimated over ${length(saving.seconds)}: ${cpu(saving.cpu_seconds)} instead of ${cpu(saving.individual_cpu_seconds)}`;
  }
  const own = epoch.cpu;
  return own?.individual > 0 ? `${compared(1 - own.plan / own.individual)}, estimated for this epoch` : "CPU time saved: not known yet";
}

/** Show the costs as bars in `list`, and the saving in `text`; `saving` belongs to the running plan; null: another plan is shown. */
export function showCost(list, text, epoch, saving) {
  const lines = epoch
    ? [
        [`this plan (${epoch.optimizer})`, epoch.cost, true],
        ["standalone, equal steps shared", epoch.shared_cost, false],
        ["each query standalone", epoch.individual_cost, false],
      ]
    : [];
  const most = Math.max(1e-9, ...lines.map(([, cost]) => cost ?? 0));
  list.replaceChildren(
    ...lines.map(([name, cost, chosen]) => {
      const fill = make("div", { className: "fill" });
      fill.style.width = `${((cost ?? 0) / most) * 100}%`;
      return make(
        "div",
        {
          className: chosen ? "bar chosen" : "bar",
          role: "listitem",
          "aria-label": `${name}: ${cost === null ? "unknown" : cost}`,
        },
        make("span", { className: "name", text: name }),
        make("div", { className: "track", "aria-hidden": "true" }, fill),
        make("span", { className: "number", text: short(cost), title: String(cost ?? "unknown") }),
      );
    }),
  );
  text.textContent = savingText(epoch, saving);
  text.classList.toggle("saving", (saving?.share ?? 0) > 0);
}
