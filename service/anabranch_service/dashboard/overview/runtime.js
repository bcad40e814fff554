// Figures of the runtime in the head of the overview, and streams that can't be read.

import { bytes, facts, make } from "../dom.js";
import { clock } from "../times.js";

const at = (id) => document.getElementById(id);
document.querySelector("header.top nav").after(make("dl", { className: "facts", id: "facts", "aria-label": "Runtime" }));

/** The runtime's state as text; without a heartbeat the reported state is outdated. */
function runtimeState(runtime) {
  const ended = ["stopped", "failed"].includes(runtime.state);
  const state = runtime.stale && !ended ? `no heartbeat (it was ${runtime.state})` : runtime.state;
  return runtime.standby ? `${state}, with a standby` : state;
}

/** Header text: number of streams that can't be read. The list below it has the reasons. */
function notRead(errors) {
  const count = Object.keys(errors).length;
  if (!count) return [];
  return [["sources", make("span", { className: "bad", text: `${count} not read` })]];
}

/** List the streams whose sources can't be read, with the reasons. */
export function showUnread(streamsOf) {
  const failed = streamsOf.filter((s) => s.source_status.state === "failed");
  at("unread").hidden = failed.length === 0;
  at("unread").replaceChildren(
    ...failed.map((s) =>
      make(
        "li",
        {},
        make("strong", {}, make("a", { href: `/dashboard/stream/${encodeURIComponent(s.name)}`, text: s.name }), " is not read"),
        ` since ${clock(s.source_status.since)}: ${s.source_status.error ?? "no reason is known"}`,
      ),
    ),
  );
}

export function showRuntime(current, names) {
  const runtime = current?.runtime;
  if (!runtime) {
    facts(at("facts"), [["runtime", "not started"]]);
    return;
  }
  const rate = runtime.batch_seconds > 0 ? `${runtime.batch_seconds.toFixed(2)} s` : "–";
  // The cards of the page repeat the minor ones, which narrow windows lack.
  facts(at("facts"), [
    ["runtime", runtimeState(runtime)],
    ["batches", runtime.committed.toLocaleString("en"), "minor"],
    ["last batch", rate, "minor"],
    ["rows read", runtime.input_tuples.toLocaleString("en"), "minor"],
    ["late rows", runtime.late_tuples.toLocaleString("en")],
    ...(runtime.ahead_tuples ? [["rows ahead", runtime.ahead_tuples.toLocaleString("en")]] : []),
    ["state", bytes(runtime.state_bytes)],
    [
      "private memory",
      runtime.memory_limit
        ? `${bytes(runtime.private_bytes)} of ${bytes(runtime.memory_limit)}`
        : bytes(runtime.private_bytes),
    ],
    ...(runtime.row_limit
      ? [
          ["waiting rows", runtime.waiting_tuples.toLocaleString("en")],
          ["most rows per batch", runtime.row_limit.toLocaleString("en"), "minor"],
        ]
      : []),
    ...Object.entries(runtime.unread_pieces ?? {}).map(([stream, pieces]) => [
      `unread of ${stream}`,
      pieces.toLocaleString("en"),
    ]),
    ...notRead(runtime.source_errors ?? {}),
    ...Object.entries(runtime.backfill ?? {}).map(([store, done]) => [
      `backfill of ${names.text(store)}`,
      `${(done * 100).toFixed(0)} %`,
    ]),
  ]);
}
