// The settings with their groups and choices, and the changes made in the form. Pure functions.

/** Settings in groups: name, description, and either the choices or the meaning of an empty field. */
export const GROUPS = [
  [
    "The plan",
    [
      { name: "optimizer", text: "optimizer of the plan", choices: ["clash", "shared", "individual", "dppick"] },
      { name: "objective", text: "cost model: CPU time, tuples sent and rows written, or tuples sent only", choices: ["seconds", "tuples", "paper"] },
      { name: "solver", text: "solver of the joint plan", choices: ["branch", "highs", "cp-sat", "mathopt", "cbc"] },
      { name: "parallelism", text: "partitions per store" },
      { name: "substreams", text: "maximum number of substreams per stream; 1: none" },
      { name: "memory", text: "maximum bytes of all stores", empty: "any amount" },
      { name: "copies", text: "maximum number of copies per store", empty: "any number" },
      { name: "intermediate_results", text: "maximum number of intermediate results; 0: none", empty: "any number" },
      { name: "look_ahead", text: "drop tuples early that cannot match in a later probe, if that is cheaper", choices: ["never", "auto"] },
      { name: "hot_keys", text: "spread rows of frequent values over several hosts, if that is cheaper", choices: ["auto", "never"] },
    ],
  ],
  [
    "Changes of the plan",
    [
      { name: "approval", text: "approval of plans that change the running one", choices: ["automatic", "manual"] },
      { name: "switching", text: "penalty for new steps and stores, as a share of their cost" },
      { name: "revision_gain", text: "minimum saving of a revision, as a share of the cost", empty: "no revisions" },
      { name: "backfill", text: "backfill of new intermediate results", choices: ["auto", "always", "never"] },
      { name: "backfill_horizon", text: "expected lifetime of a plan, in multiples of the history" },
    ],
  ],
  [
    "Under overload",
    [
      { name: "overload", text: "policy where input exceeds the capacity", choices: ["wait", "ration", "ration-with-catch-up"] },
      { name: "allocation", text: "objective of rations", choices: ["fair", "results", "jaqpot"] },
      { name: "latency_goal", text: "latency goal of load shedding: seconds from arrival to commit" },
      { name: "capacity", text: "share of rationed probes' CPU time to spend", empty: "as the load allows" },
    ],
  ],
];

/** The changed settings, as the body of a PATCH. `given`: texts of the fields. */
export function changes(settings, given) {
  const changed = {};
  for (const [, fields] of GROUPS) {
    for (const { name, choices } of fields) {
      const text = given[name].trim().replace(",", choices ? "," : ".");
      const number = text === "" ? null : Number(text);
      const value = choices || Number.isNaN(number) ? text : number;
      if (value !== settings[name]) changed[name] = value;
    }
  }
  return changed;
}
