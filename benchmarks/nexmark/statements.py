"""Nexmark's queries q0 to q23, in the SQL of a registration and in DuckDB's.

The statements have the meaning of Nexmark's published definitions, in its usual short windows.
Deviations are in :attr:`Nexmark.note`. Columns have names such as ``date_time`` for Nexmark's
``dateTime``.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Names of all streams that the statements read. ``side_input`` is a table.
STREAMS = ("person", "auction", "bid", "side_input")


@dataclass(frozen=True, slots=True)
class Nexmark:
    """One query of Nexmark.

    Attributes:
        name: ``q0`` to ``q23``.
        about: the question that it answers, in a few words.
        sql: the statement to register, in Spark SQL.
        duck: the same statement for DuckDB; empty: equal to ``sql``.
        joins: whether it is one of the join queries whose joint cost is measured.
        note: deviation from the published statement; empty: none.
    """

    name: str
    about: str
    sql: str
    duck: str = ""
    joins: bool = False
    note: str = ""

    @property
    def oracle(self) -> str:
        """The query's statement for DuckDB."""
        return self.duck or self.sql


_TIES = "ties are broken by further columns, which the published order leaves open"

#: Winning bids: the highest bid of each auction while it was open; of equal bids the first.
_WINNING = """SELECT {columns}
FROM auction a JOIN bid b ON a.id = b.auction
WHERE b.date_time BETWEEN a.date_time AND a.expires
QUALIFY row_number() OVER (
  PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bidder, b.extra) = 1"""
_AUCTION = (
    "a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time, a.expires, "
    "a.seller, a.category, a.extra"
)
_FINAL = _WINNING.format(columns="a.id, a.seller, b.price AS final, b.date_time AS sold")

_RANKS = (
    ("1", "price < 10000"),
    ("2", "price >= 10000 AND price < 1000000"),
    ("3", "price >= 1000000"),
)


def _counts(of: str, name: str) -> str:
    """Return SQL that counts ``of`` in all rows, and in each range of prices."""
    bands = (f"count({of}) FILTER (WHERE {band}) AS rank{n}_{name}" for n, band in _RANKS)
    return ", ".join((f"count({of}) AS total_{name}", *bands))


_STATISTICS = ", ".join(
    (
        _counts("*", "bids"),
        _counts("DISTINCT bidder", "bidders"),
        _counts("DISTINCT auction", "auctions"),
    )
)
_BY_AUCTION = ", ".join(
    (
        "count(*) AS total_bids",
        *(f"count(*) FILTER (WHERE {band}) AS rank{n}_bids" for n, band in _RANKS),
        "min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price",
        "sum(price) AS sum_price",
    )
)
_HOP = """SELECT auction, unnest(range(
    time_bucket(INTERVAL 2 SECOND, date_time) - INTERVAL 8 SECOND,
    time_bucket(INTERVAL 2 SECOND, date_time) + INTERVAL 2 SECOND, INTERVAL 2 SECOND)) AS start
  FROM bid"""
_TUMBLE = "time_bucket(INTERVAL 10 SECOND, date_time)"
_CHANNEL_ID = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"

QUERIES: tuple[Nexmark, ...] = (
    Nexmark("q0", "all bids", "SELECT auction, bidder, price, date_time, extra FROM bid"),
    Nexmark(
        "q1",
        "prices in another currency",
        "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid",
    ),
    Nexmark(
        "q2", "bids on some auctions", "SELECT auction, price FROM bid WHERE auction % 123 = 0"
    ),
    Nexmark(
        "q3",
        "sellers of three states with auctions of a category",
        """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
        joins=True,
    ),
    Nexmark(
        "q4",
        "average final price of each category",
        """SELECT q.category, avg(q.final) AS final FROM (
  SELECT max(b.price) AS final, a.category FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.date_time BETWEEN a.date_time AND a.expires
  GROUP BY a.id, a.category) q
GROUP BY q.category""",
        joins=True,
        note="the average is not cut to an integer",
    ),
    Nexmark(
        "q5",
        "auctions with the most bids in a window of 10 s, every 2 s",
        """WITH counted AS (
  SELECT auction, count(*) AS num, window.start AS start FROM bid
  GROUP BY auction, window(date_time, '10 seconds', '2 seconds'))
SELECT c.auction, c.num FROM counted c
JOIN (SELECT max(num) AS most, start FROM counted GROUP BY start) m
  ON c.start = m.start AND c.num >= m.most""",
        f"""WITH counted AS (
  SELECT auction, count(*) AS num, start FROM ({_HOP}) GROUP BY auction, start)
SELECT c.auction, c.num FROM counted c
JOIN (SELECT max(num) AS most, start FROM counted GROUP BY start) m
  ON c.start = m.start AND c.num >= m.most""",
        joins=True,
    ),
    Nexmark(
        "q6",
        "average of a seller's last final prices",
        f"""SELECT seller, avg(final) OVER (
  PARTITION BY seller ORDER BY sold, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS average
FROM ({_FINAL}) f""",
        note=_TIES,
    ),
    Nexmark(
        "q7",
        "highest bids of every 10 s",
        """SELECT b.auction, b.bidder, b.price, b.date_time, b.extra FROM bid b
JOIN (SELECT max(price) AS most, window.end AS ended FROM bid
      GROUP BY window(date_time, '10 seconds')) m ON b.price = m.most
WHERE b.date_time BETWEEN m.ended - INTERVAL '10' SECOND AND m.ended""",
        f"""SELECT b.auction, b.bidder, b.price, b.date_time, b.extra FROM bid b
JOIN (SELECT max(price) AS most, {_TUMBLE} + INTERVAL 10 SECOND AS ended FROM bid
      GROUP BY ended) m ON b.price = m.most
WHERE b.date_time BETWEEN m.ended - INTERVAL 10 SECOND AND m.ended""",
        joins=True,
    ),
    Nexmark(
        "q8",
        "persons with an auction in the 10 s of their arrival",
        """SELECT p.id, p.name, p.start FROM (
  SELECT id, name, window.start AS start FROM person
  GROUP BY id, name, window(date_time, '10 seconds')) p
JOIN (SELECT seller, window.start AS start FROM auction
      GROUP BY seller, window(date_time, '10 seconds')) a
  ON p.id = a.seller AND p.start = a.start""",
        f"""SELECT p.id, p.name, p.start FROM (
  SELECT DISTINCT id, name, {_TUMBLE} AS start FROM person) p
JOIN (SELECT DISTINCT seller, {_TUMBLE} AS start FROM auction) a
  ON p.id = a.seller AND p.start = a.start""",
        joins=True,
    ),
    Nexmark(
        "q9",
        "winning bid of each auction",
        _WINNING.format(
            columns=f"{_AUCTION}, b.auction, b.bidder, b.price, b.date_time AS bid_time, "
            "b.extra AS bid_extra"
        ),
        joins=True,
        note=_TIES,
    ),
    Nexmark(
        "q10",
        "all bids with day and minute",
        """SELECT auction, bidder, price, date_time, extra,
  date_format(date_time, 'yyyy-MM-dd') AS day, date_format(date_time, 'HH:mm') AS minute
FROM bid""",
        """SELECT auction, bidder, price, date_time, extra,
  strftime(date_time, '%Y-%m-%d') AS day, strftime(date_time, '%H:%M') AS minute FROM bid""",
        note="the sink writes Parquet files, not partitioned by day and minute",
    ),
    Nexmark(
        "q11",
        "bids of each session of a bidder",
        """SELECT bidder, count(*) AS bids, session_window.start AS start,
  session_window.end AS ended FROM bid GROUP BY bidder, session_window(date_time, '10 seconds')""",
        """WITH marked AS (
  SELECT bidder, date_time, coalesce(date_time >= INTERVAL 10 SECOND + lag(date_time) OVER (
    PARTITION BY bidder ORDER BY date_time), true) AS opens FROM bid),
numbered AS (
  SELECT bidder, date_time, sum(opens::INT) OVER (
    PARTITION BY bidder ORDER BY date_time ROWS UNBOUNDED PRECEDING) AS session FROM marked)
SELECT bidder, count(*) AS bids, min(date_time) AS start,
  max(date_time) + INTERVAL 10 SECOND AS ended
FROM numbered GROUP BY bidder, session""",
    ),
    Nexmark(
        "q12",
        "bids of each bidder in every 10 s",
        """SELECT bidder, count(*) AS bids, window.start AS start, window.end AS ended
FROM bid GROUP BY bidder, window(date_time, '10 seconds')""",
        f"""SELECT bidder, count(*) AS bids, {_TUMBLE} AS start,
  {_TUMBLE} + INTERVAL 10 SECOND AS ended FROM bid GROUP BY ALL""",
        note="in event time; the published windows are of processing time",
    ),
    Nexmark(
        "q13",
        "bids with a row of a table",
        """SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM bid b JOIN side_input s ON b.auction % 10000 = s.key""",
        joins=True,
    ),
    Nexmark(
        "q14",
        "bids of a band of prices, by time of day",
        """SELECT auction, bidder, 0.908 * price AS price,
  CASE WHEN hour(date_time) >= 8 AND hour(date_time) <= 18 THEN 'dayTime'
    WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
    ELSE 'otherTime' END AS bid_time_type,
  date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
        note="count_char, a user-defined function, is written with length and replace",
    ),
    Nexmark(
        "q15",
        "bids, bidders and auctions of each day by price",
        f"SELECT date_format(date_time, 'yyyy-MM-dd') AS day, {_STATISTICS} FROM bid GROUP BY day",
        f"SELECT strftime(date_time, '%Y-%m-%d') AS day, {_STATISTICS} FROM bid GROUP BY day",
    ),
    Nexmark(
        "q16",
        "the same for each channel",
        f"""SELECT channel, date_format(date_time, 'yyyy-MM-dd') AS day,
  max(date_format(date_time, 'HH:mm')) AS minute, {_STATISTICS}
FROM bid GROUP BY channel, day""",
        f"""SELECT channel, strftime(date_time, '%Y-%m-%d') AS day,
  max(strftime(date_time, '%H:%M')) AS minute, {_STATISTICS}
FROM bid GROUP BY channel, day""",
    ),
    Nexmark(
        "q17",
        "bids and prices of each auction and day",
        f"""SELECT auction, date_format(date_time, 'yyyy-MM-dd') AS day, {_BY_AUCTION}
FROM bid GROUP BY auction, day""",
        f"""SELECT auction, strftime(date_time, '%Y-%m-%d') AS day, {_BY_AUCTION}
FROM bid GROUP BY auction, day""",
    ),
    Nexmark(
        "q18",
        "last bid of each bidder on each auction",
        """SELECT auction, bidder, price, channel, url, date_time, extra FROM bid
QUALIFY row_number() OVER (
  PARTITION BY bidder, auction ORDER BY date_time DESC, price DESC, extra) = 1""",
        joins=True,
        note=_TIES,
    ),
    Nexmark(
        "q19",
        "the ten highest bids of each auction",
        """SELECT *, row_number() OVER (
  PARTITION BY auction ORDER BY price DESC, date_time, bidder, extra) AS rank_number
FROM bid QUALIFY rank_number <= 10""",
        joins=True,
        note=_TIES,
    ),
    Nexmark(
        "q20",
        "bids with their auction, of one category",
        """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_time,
  b.extra AS bid_extra, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time,
  a.expires, a.seller, a.category, a.extra
FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
        joins=True,
    ),
    Nexmark(
        "q21",
        "bids with the number of their channel",
        f"""SELECT auction, bidder, price, channel, CASE lower(channel)
    WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
    ELSE {_CHANNEL_ID} END AS channel_id
FROM bid WHERE {_CHANNEL_ID} <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
        note="without a match regexp_extract is the empty text, as in Spark, not NULL",
    ),
    Nexmark(
        "q22",
        "bids with the folders of their address",
        """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1,
  split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3 FROM bid""",
    ),
    Nexmark(
        "q23",
        "bids by persons with auctions of their own",
        """SELECT b.bidder, b.price, b.channel, b.url, b.extra AS bid_extra, p.id, p.name,
  p.email_address, p.credit_card, p.city, p.state, p.extra AS person_extra, a.item_name,
  a.description, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller, a.category,
  a.extra AS auction_extra
FROM bid b JOIN person p ON p.id = b.bidder JOIN auction a ON a.seller = b.bidder""",
        joins=True,
    ),
)
#: The queries with joins or rankings, whose joint cost is measured.
JOINS = tuple(query for query in QUERIES if query.joins)
