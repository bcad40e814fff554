// The last results of one query, live: server-sent events into a short table.

const ROWS = 20;
const REDRAW_MS = 250;

/** Follows one query at a time; nothing is asked for before a query is chosen. */
export class Tail {
  constructor(table, note) {
    this.table = table;
    this.note = note;
    this.source = null;
    this.name = null;
    this.rows = [];
    this.timer = null;
  }

  /** Shows the results of `name`; of nothing where it is null. */
  follow(name) {
    if (name === this.name) return;
    this.source?.close();
    this.name = name;
    this.rows = [];
    this.source = null;
    this.say(name === null ? "" : "waiting for results");
    this.draw();
    if (name === null) return;
    const source = new EventSource(`/v1/queries/${encodeURIComponent(name)}/results?from=start`);
    source.addEventListener("row", (event) => {
      this.rows.push(JSON.parse(event.data));
      if (this.rows.length > ROWS) this.rows.splice(0, this.rows.length - ROWS);
      this.say(`result ${Number(event.lastEventId.split(":")[1]) + 1}`);
      this.timer ??= setTimeout(() => this.draw(), REDRAW_MS);
    });
    source.addEventListener("end", (event) => {
      source.close();
      this.say(`the query is ${JSON.parse(event.data).reason}`);
    });
    // EventSource connects again by itself, but for refusals.
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) this.say("this query's results can't be followed");
    };
    this.source = source;
  }

  say(text) {
    this.note.textContent = text;
  }

  draw() {
    clearTimeout(this.timer);
    this.timer = null;
    const names = Object.keys(this.rows[0] ?? {});
    const cells = (kind, values) => {
      const line = document.createElement("tr");
      for (const value of values) {
        const cell = document.createElement(kind);
        if (kind === "th") cell.scope = "col";
        if (typeof value === "number") cell.className = "number";
        cell.textContent = value === null ? "NULL" : String(value);
        line.append(cell);
      }
      return line;
    };
    this.table.tHead.replaceChildren(...(names.length ? [cells("th", names)] : []));
    const lines = [...this.rows].reverse().map((row) => cells("td", names.map((n) => row[n])));
    this.table.tBodies[0].replaceChildren(...lines);
  }
}
