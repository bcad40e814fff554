// A sample in one click: three streams that Spark makes up, and three queries that share their joins.

import { submit } from "./access.js";

/** Rows of each stream a second: little, so that it runs beside anything else. */
const ROWS_PER_SECOND = 50;

/** A stream whose columns are expressions over a counter and the time; sums are as if in cents. */
function stream(name, description, columns) {
  const types = Object.fromEntries(Object.entries(columns).map(([column, [type]]) => [column, type]));
  const values = Object.fromEntries(Object.entries(columns).map(([column, [, value]]) => [`column.${column}`, value]));
  return {
    name,
    description,
    columns: { ...types, at: "timestamp" },
    event_time: "at",
    lateness: "10 seconds",
    source: { format: "rate", options: { rowsPerSecond: String(ROWS_PER_SECOND), ...values, "column.at": "timestamp" } },
  };
}

const STREAMS = [
  stream("orders", "Sample: every order is of one of 97 customers.", {
    order_id: ["bigint", "value"],
    customer: ["int", "cast(value * 31 % 97 as int)"],
    total: ["int", "cast(value * 7919 % 500 as int)"],
  }),
  stream("payments", "Sample: three of four orders are paid.", {
    order_id: ["bigint", "CASE WHEN value % 4 = 0 THEN -1 ELSE value END"],
    amount: ["int", "cast(value * 7919 % 500 as int)"],
  }),
  stream("shipments", "Sample: one of two orders is sent.", {
    order_id: ["bigint", "CASE WHEN value % 2 = 0 THEN -1 ELSE value END"],
    carrier: ["string", "CASE WHEN value % 3 = 0 THEN 'bike' ELSE 'van' END"],
  }),
];

const PAID = "orders o JOIN payments p ON o.order_id = p.order_id";
const SENT = `${PAID} JOIN shipments s ON o.order_id = s.order_id`;
const QUERIES = [
  { id: "large-orders-paid", sql: `SELECT o.order_id, o.customer, p.amount FROM ${PAID} WHERE o.total > 400` },
  { id: "paid-and-sent", sql: `SELECT o.order_id, p.amount, s.carrier FROM ${SENT}` },
  { id: "sales-by-carrier", sql: `SELECT s.carrier, count(*) AS sales, sum(p.amount) AS amount FROM ${SENT} GROUP BY s.carrier` },
].map((query) => ({ ...query, window: "5 minutes", owner: "sample", tags: ["sample"], ttl: "1 day" }));

/** Register the sample; parts left by an interrupted click are kept. */
export async function beginSample() {
  for (const body of STREAMS) await submit("/v1/streams", "POST", body);
  for (const { id, ...body } of QUERIES) await submit(`/v1/queries/${id}`, "PUT", body);
}
