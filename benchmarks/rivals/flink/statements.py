"""Flink's SQL: CREATE TABLE statements, and Nexmark's join queries.

The queries have the published form, with two exceptions, so that their results equal DuckDB's for
:mod:`benchmarks.nexmark.statements`: q4's average is not truncated to an integer, and q19's equal
prices are ordered by time. Times are distinct at a rate of at most 1,000 events a second, so no
other order has ties. Each kind of events is a separate table, not a filter of a common one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from benchmarks.nexmark.generator import SIDE_ROWS

#: Greatest rate in events per second at which the orders of the queries have no ties.
MOST_RATE = 1000.0

#: Query -> position of the key column by which its changes are upserts. Flink 2.3 assumes that the
#: best row by several columns is never replaced (FLINK-40368), so it emits no deletes for q9.
UPSERTED = {"q9": 0}

#: Streams that Flink reads from files.
STREAMS = ("person", "auction", "bid")
_COLUMNS = {
    "person": "id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, "
    "state STRING, date_time TIMESTAMP(3), extra STRING",
    "auction": "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, "
    "reserve BIGINT, date_time TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, "
    "category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
    "date_time TIMESTAMP(3), extra STRING",
}
_STREAM = """CREATE TABLE {name} ({columns}{clock},
  WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND)
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet',
  'parquet.utc-timezone' = 'true')"""
_TABLE = """CREATE TABLE {name} ({columns})
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet')"""
_SIDE = f"""CREATE TABLE side_input (key BIGINT, `value` STRING)
WITH ('connector' = 'side_input', 'rows' = '{SIDE_ROWS}')"""


def tables(folders: Mapping[str, Path]) -> dict[str, str]:
    """Return table -> its CREATE statement; ``folders``: stream -> folder of its Parquet files."""
    found = {
        name: _STREAM.format(
            name=name,
            columns=columns,
            clock=", p_time AS PROCTIME()" if name == "bid" else "",
            path=folders[name],
        )
        for name, columns in _COLUMNS.items()
    }
    return {**found, "side_input": _SIDE}


def plain_table(name: str, schema: pa.Schema, folder: Path) -> str:
    """Return the CREATE statement for a table of Parquet files without event time.

    >>> plain_table("t", pa.schema([("k", pa.int64()), ("n", pa.int32())]), Path("/t"))
    "CREATE TABLE t (`k` BIGINT, `n` INT)\\nWITH ('connector' = 'filesystem', 'path' = '/t', \
'format' = 'parquet')"
    """
    return _TABLE.format(name=name, columns=_declared(schema), path=folder)


def event_table(name: str, schema: pa.Schema, folder: Path, clock: str) -> str:
    """Return the CREATE statement for a table of Parquet files in the order of the
    time ``clock``.
    """
    columns = f"{_declared(schema)},\n  WATERMARK FOR `{clock}` AS `{clock}`"
    return _TABLE.format(name=name, columns=columns, path=folder)


def _declared(schema: pa.Schema) -> str:
    kinds = {
        pa.int64(): "BIGINT",
        pa.int32(): "INT",
        pa.float64(): "DOUBLE",
        pa.date32(): "DATE",
        pa.string(): "STRING",
        pa.timestamp("us", "UTC"): "TIMESTAMP(3)",
    }
    return ", ".join(f"`{field.name}` {kinds[field.type]}" for field in schema)


_COUNTED = """SELECT auction, count(*) AS num, window_start AS begun, window_end AS ended
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end"""
_TUMBLE = "TABLE(TUMBLE(TABLE {name}, DESCRIPTOR(date_time), INTERVAL '10' SECOND))"
_AUCTION = (
    "a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time, a.expires, "
    "a.seller, a.category, a.extra"
)
_BID = "auction, bidder, price, channel, url, date_time, extra"

#: Query -> statement in Flink's SQL.
QUERIES = {
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": """SELECT category, avg(CAST(final AS DOUBLE)) FROM (
  SELECT max(b.price) AS final, a.category FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.date_time BETWEEN a.date_time AND a.expires
  GROUP BY a.id, a.category)
GROUP BY category""",
    "q5": f"""SELECT c.auction, c.num FROM ({_COUNTED}) c
JOIN (SELECT max(num) AS most, begun, ended FROM ({_COUNTED}) GROUP BY begun, ended) m
  ON c.begun = m.begun AND c.ended = m.ended AND c.num >= m.most""",
    "q7": f"""SELECT b.auction, b.bidder, b.price, b.date_time, b.extra FROM bid b
JOIN (SELECT max(price) AS most, window_end AS ended FROM {_TUMBLE.format(name="bid")}
  GROUP BY window_start, window_end) m ON b.price = m.most
WHERE b.date_time BETWEEN m.ended - INTERVAL '10' SECOND AND m.ended""",
    "q8": f"""SELECT p.id, p.name, p.begun FROM (
  SELECT id, name, window_start AS begun, window_end AS ended
  FROM {_TUMBLE.format(name="person")} GROUP BY id, name, window_start, window_end) p
JOIN (SELECT seller, window_start AS begun, window_end AS ended
  FROM {_TUMBLE.format(name="auction")} GROUP BY seller, window_start, window_end) a
  ON p.id = a.seller AND p.begun = a.begun AND p.ended = a.ended""",
    "q9": f"""SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller,
  category, extra, auction, bidder, price, bid_time, bid_extra FROM (
  SELECT {_AUCTION}, b.auction, b.bidder, b.price, b.date_time AS bid_time, b.extra AS bid_extra,
    row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) AS place
  FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.date_time BETWEEN a.date_time AND a.expires)
WHERE place <= 1""",
    "q13": """SELECT b.auction, b.bidder, b.price, b.date_time, s.`value` FROM bid b
JOIN side_input FOR SYSTEM_TIME AS OF b.p_time s ON mod(b.auction, 10000) = s.key""",
    "q18": f"""SELECT {_BID} FROM (
  SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS place
  FROM bid)
WHERE place <= 1""",
    "q19": f"""SELECT {_BID}, place FROM (
  SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS place
  FROM bid)
WHERE place <= 10""",
    "q20": """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.extra,
  a.item_name, a.description, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller,
  a.category, a.extra
FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
    "q23": """SELECT b.bidder, b.price, b.channel, b.url, b.extra, p.id, p.name, p.email_address,
  p.credit_card, p.city, p.state, p.extra, a.item_name, a.description, a.initial_bid, a.reserve,
  a.date_time, a.expires, a.seller, a.category, a.extra
FROM bid b JOIN person p ON p.id = b.bidder JOIN auction a ON a.seller = b.bidder""",
}
