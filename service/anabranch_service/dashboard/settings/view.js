// What can be set, and what a form changes. No document, no requests.

/** Settings in groups: name, what it is, and either its choices or what an empty field means. */
export const GROUPS = [
  [
    "The plan",
    [
      { name: "optimizer", text: "how queries are planned", choices: ["clash", "shared", "individual", "dppick"] },
      { name: "objective", text: "what costs: CPU time, tuples sent and rows written, or tuples sent only", choices: ["seconds", "tuples", "paper"] },
      { name: "solver", text: "of the joint plan", choices: ["branch", "highs", "cp-sat", "mathopt", "cbc"] },
      { name: "parallelism", text: "partitions of a store" },
      { name: "substreams", text: "kinds of tuples of a stream that have orders of their own, at most" },
      { name: "memory", text: "bytes that all stores may hold", empty: "any amount" },
      { name: "copies", text: "of any one store", empty: "any number" },
      { name: "intermediate_results", text: "kept by a plan, at most; 0: none", empty: "any number" },
      { name: "look_ahead", text: "is it asked, where that pays, if later probes can find anything?", choices: ["never", "auto"] },
      { name: "hot_keys", text: "are rows of frequent values dealt to several hosts, where that pays?", choices: ["auto", "never"] },
    ],
  ],
  [
    "Changes of the plan",
    [
      { name: "approval", text: "does a plan that changes what runs wait for you?", choices: ["automatic", "manual"] },
      { name: "switching", text: "what is new in a plan is charged, as a part of its cost" },
      { name: "revision_gain", text: "share of the cost that a revision has to save", empty: "no revisions" },
      { name: "backfill", text: "is the past of a new intermediate result computed?", choices: ["auto", "always", "never"] },
      { name: "backfill_horizon", text: "for how long a plan is used, in multiples of the history" },
    ],
  ],
  [
    "Under overload",
    [
      { name: "overload", text: "what is done where input outruns the machine", choices: ["wait", "ration", "ration-with-catch-up"] },
      { name: "allocation", text: "objective of rations", choices: ["fair", "results", "jaqpot"] },
      { name: "latency_goal", text: "seconds from arrival to commit that rations keep" },
      { name: "capacity", text: "share of rationed probes' CPU time that is spent", empty: "as the load allows" },
    ],
  ],
];

/** What a form changes: only what differs. `given` has the fields' texts. */
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
