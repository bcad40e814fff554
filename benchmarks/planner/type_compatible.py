"""Random queries over TPC-H, drawn as in section VII-A of the CLASH paper.

Two columns of different tables can join if they have the same type and common values. A query
begins with a random table, and adds random joins with further tables until it has the requested
number of tables. Foreign keys lead to few partners, ``l_linestatus = o_orderstatus`` to half of the
other table, ``c_custkey = n_nationkey`` to partners for few rows.

Columns are all columns of TPC-H except free texts (names, comments, addresses, phones). Foreign
keys are the nine with one column; the one with two columns (lineitem to partsupp) occurs as its two
halves.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import duckdb

from anabranch_client.replay.tpch import DemoQuery

TABLES: dict[str, tuple[str, ...]] = {
    "region": ("r_regionkey", "r_name"),
    "nation": ("n_nationkey", "n_name", "n_regionkey"),
    "supplier": ("s_suppkey", "s_nationkey", "s_acctbal"),
    "customer": ("c_custkey", "c_nationkey", "c_acctbal", "c_mktsegment"),
    "part": ("p_partkey", "p_mfgr", "p_brand", "p_type", "p_size", "p_container", "p_retailprice"),
    "partsupp": ("ps_partkey", "ps_suppkey", "ps_availqty", "ps_supplycost"),
    "orders": (
        "o_orderkey", "o_custkey", "o_orderstatus", "o_totalprice", "o_orderdate",
        "o_orderpriority", "o_shippriority",
    ),
    "lineitem": (
        "l_orderkey", "l_partkey", "l_suppkey", "l_linenumber", "l_quantity", "l_extendedprice",
        "l_discount", "l_tax", "l_returnflag", "l_linestatus", "l_shipdate", "l_commitdate",
        "l_receiptdate", "l_shipinstruct", "l_shipmode",
    ),
}  # fmt: skip
#: Foreign keys of one column, as pairs of column names.
FOREIGN_KEYS = {
    frozenset(pair)
    for pair in (
        ("n_regionkey", "r_regionkey"), ("s_nationkey", "n_nationkey"),
        ("c_nationkey", "n_nationkey"), ("ps_partkey", "p_partkey"),
        ("ps_suppkey", "s_suppkey"), ("o_custkey", "c_custkey"),
        ("l_orderkey", "o_orderkey"), ("l_partkey", "p_partkey"), ("l_suppkey", "s_suppkey"),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Joinable:
    """Two columns of TPC-H that can join.

    Attributes:
        tables, columns: tables and names of the two columns, in the same order.
        selectivity: share of the pairs of rows with equal values.
    """

    tables: tuple[str, str]
    columns: tuple[str, str]
    selectivity: float

    @property
    def is_key(self) -> bool:
        """Whether one column is a foreign key that references the other."""
        return frozenset(self.columns) in FOREIGN_KEYS

    def __str__(self) -> str:
        (one, other), (left, right) = self.tables, self.columns
        return f"{one}.{left} = {other}.{right}"


def joinable(files: Mapping[str, Path]) -> list[Joinable]:
    """Return all pairs of columns with common values, in the order of tables and columns.

    Args:
        files: table -> its Parquet file.
    """
    found = []
    with duckdb.connect() as db:
        db.execute("SET threads = 1")
        known: dict[tuple[str, str], str] = {}
        rows = {}
        for table, path in files.items():
            db.read_parquet(str(path)).create_view(table)
            rows[table] = len(db.table(table))
            for name, kind in zip(db.table(table).columns, db.table(table).types, strict=True):
                known[table, name] = "integer" if "INT" in str(kind) else str(kind)
                db.execute(
                    f"CREATE TABLE v_{name} AS SELECT {name} AS v, count(*)::DOUBLE AS n "
                    f"FROM {table} WHERE {name} IS NOT NULL GROUP BY 1"
                )
        names = list(known)
        for number, (one, left) in enumerate(names):
            for other, right in names[number + 1 :]:
                if one == other or known[one, left] != known[other, right]:
                    continue
                same = f"SELECT sum(a.n * b.n) FROM v_{left} a JOIN v_{right} b USING (v)"
                pairs = db.execute(same).fetchall()[0][0]
                if pairs:
                    share = pairs / (rows[one] * rows[other])
                    found.append(Joinable((one, other), (left, right), share))
    return found


@dataclass(frozen=True, slots=True)
class RandomQuery:
    """A random query; ``joins``: one fewer than its tables."""

    tables: tuple[str, ...]
    joins: tuple[Joinable, ...]

    def results(self, rows: Mapping[str, int]) -> float:
        """Return the expected number of results over tables with ``rows``, if joins are
        independent.
        """
        found = 1.0
        for table in self.tables:
            found *= rows[table]
        for join in self.joins:
            found *= join.selectivity
        return found

    def query(self, name: str) -> DemoQuery:
        """Return the query, whose output is the first column of each table."""
        first, *others = self.tables
        source, there = first, {first}
        for table, join in zip(others, self.joins, strict=True):
            source += f" JOIN {table} ON {join}"
            there.add(table)
            assert set(join.tables) <= there
        select = ", ".join(f"{t}.{TABLES[t][0]} AS {TABLES[t][0]}" for t in self.tables)
        return DemoQuery(name, select, source, self.tables)


class Mixture(StrEnum):
    """Kinds of joins from which queries are drawn; the paper does not state its mixture.

    * ``KEYS``: foreign keys only.
    * ``HALVES``: a foreign key or another pair of columns, each with probability 1/2.
    * ``PAIRS``: all pairs of columns, with equal probabilities.
    """

    KEYS = "foreign keys"
    HALVES = "half foreign keys"
    PAIRS = "all pairs"


def draw(
    joins: Sequence[Joinable], mixture: Mixture, count: int, size: int, seed: int
) -> list[RandomQuery]:
    """Draw ``count`` different queries of ``size`` tables each."""
    chance = random.Random(seed)
    tables = sorted({table for join in joins for table in join.tables})
    found: dict[frozenset[Joinable], RandomQuery] = {}
    while len(found) < count:
        there, used = [chance.choice(tables)], []
        while len(there) < size:
            beyond = [join for join in joins if len(set(join.tables) - set(there)) == 1]
            only_keys = mixture is Mixture.KEYS or (
                mixture is Mixture.HALVES and chance.random() < 0.5
            )
            # There is always such a join, since each table has a foreign key or is referenced by
            # one.
            some = [join for join in beyond if join.is_key] if only_keys else beyond
            if mixture is Mixture.HALVES and not only_keys:
                some = [join for join in beyond if not join.is_key] or beyond
            join = chance.choice(some)
            there += set(join.tables) - set(there)
            used.append(join)
        found.setdefault(frozenset(used), RandomQuery(tuple(there), tuple(used)))
    return list(found.values())
