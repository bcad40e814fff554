// The latest results of one query, from server-sent events, in a short table. For a view its current
// rows, which are polled.

import { ask } from "../access.js";
import { showRows } from "../dom.js";

const ROWS = 20;
const RETRY_MS = 2000;
const ASK_MS = 1000;
const REDRAW_MS = 250;

/** Parse the server-sent events of an answer. The browser's EventSource can't send a token. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const field = (name) => block.match(new RegExp(`^${name}: (.*)$`, "m"))?.[1] ?? "";
        yield { kind: field("event"), id: field("id"), data: field("data") };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Follows the results of one query at a time; no requests before a query is selected. */
export class Tail {
  constructor(table, note) {
    this.table = table;
    this.note = note;
    this.source = null;
    this.name = null;
    this.rows = [];
    this.timer = null;
    this.asking = null;
  }

  /** Show the results of the query `name`, or the rows of its view; null: none. */
  follow(name, isView = false) {
    if (name === this.name) return;
    this.source?.abort();
    clearInterval(this.asking);
    this.name = name;
    this.rows = [];
    this.source = null;
    this.say(name === null ? "" : "waiting for results");
    this.draw();
    if (name === null) return;
    if (isView) {
      this.asking = setInterval(() => this.ask(name), ASK_MS);
      this.ask(name);
      return;
    }
    this.source = new AbortController();
    this.listen(name, this.source.signal);
  }

  /** Follow the results of `name` until they end; a lost connection is restored. */
  async listen(name, signal) {
    let last = "";
    while (!signal.aborted) {
      try {
        const path = `/v1/queries/${encodeURIComponent(name)}/results?from=start`;
        const headers = { accept: "text/event-stream", ...(last && { "last-event-id": last }) };
        const response = await ask(path, { headers, signal });
        if (!response.ok) {
          this.say("this query's results can't be followed");
          return;
        }
        for await (const { kind, id, data } of events(response.body)) {
          last = id || last;
          if (kind === "row") this.take(id, JSON.parse(data));
          if (kind === "end") {
            const { reason } = JSON.parse(data);
            this.say(reason === "unauthorized" ? "the token is no longer accepted" : `the query is ${reason}`);
            return;
          }
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error.status) {
          this.say(error.message);
          return;
        }
      }
      await new Promise((go) => setTimeout(go, RETRY_MS));
    }
  }

  take(id, row) {
    this.rows.push(row);
    if (this.rows.length > ROWS) this.rows.splice(0, this.rows.length - ROWS);
    this.say(`result ${Number(id.split(":")[1]) + 1}`);
    this.timer ??= setTimeout(() => this.draw(), REDRAW_MS);
  }

  /** Show the current rows of the view of query `name`. */
  async ask(name) {
    const response = await ask(`/v1/queries/${encodeURIComponent(name)}/rows?limit=${ROWS}`).catch(() => null);
    if (!response?.ok || name !== this.name) return;
    const { version, total, rows } = await response.json();
    // Rows are inserted at the top, as results are, so the last one comes first.
    this.rows = rows.reverse();
    this.say(version === null ? "waiting for rows" : `${rows.length} of ${total} rows, version ${version}`);
    this.draw();
  }

  say(text) {
    this.note.textContent = text;
  }

  draw() {
    clearTimeout(this.timer);
    this.timer = null;
    const names = Object.keys(this.rows[0] ?? {});
    showRows(this.table, names, [...this.rows].reverse().map((row) => names.map((n) => row[n])));
  }
}
