// The last results of one query, live: server-sent events into a short table. Of a view its rows, which
// change: they are asked for again and again.

const ROWS = 20;
const ASK_MS = 1000;
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
    this.asking = null;
  }

  /** Shows the results of `name`, or the rows of its view; of nothing where it is null. */
  follow(name, isView = false) {
    if (name === this.name) return;
    this.source?.close();
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

  /** The rows of the view `name` as they are. */
  async ask(name) {
    const response = await fetch(`/v1/queries/${encodeURIComponent(name)}/rows?limit=${ROWS}`);
    if (!response.ok || name !== this.name) return;
    const { version, total, rows } = await response.json();
    // Drawn last row first, as results are.
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
