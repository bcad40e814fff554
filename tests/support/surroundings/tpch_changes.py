"""TPC-H's queries over streams of changes, in whole runs without Spark, compared with DuckDB.

Tables arrive in random pieces, followed by RF1 and RF2: new orders and deletes of orders, each with
its lines. All queries are registered at the beginning. Changes take several batches to pass through
the parts of a query, so rows are compared when nothing changes any more after a piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.support.surroundings.tpc import Workload
from tests.support.surroundings.tpch_streams import TABLES, Compared, plain
from tests.support.worlds.derived import Derived
from tests.support.worlds.service import Service

#: Tables that RF1 and RF2 change -> their key.
_REFRESHED = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
#: Substitution parameters with which results have rows at scale 0.01, by query.
_PARAMETERS = {17: ("MED BOX", "LG JAR")}


@dataclass
class TpchChanges:
    """The tables of ``workload`` as streams of changes under ``service``.

    Attributes:
        pieces: number of random pieces before RF1 and RF2.
    """

    service: Service
    folder: Path
    workload: Workload
    seed: int
    pieces: int = 2
    tables: dict[str, pa.Table] = field(init=False)
    world: Derived = field(init=False)
    _net: duckdb.DuckDBPyConnection = field(init=False)

    def __post_init__(self) -> None:
        self.tables = {n: pq.read_table(self.workload.folder / f"{n}.parquet") for n in TABLES}
        columns = {
            name: dict(zip(table.column_names, table.schema.types, strict=True))
            for name, table in self.tables.items()
        }
        self.world = Derived(self.service, self.folder, Random(self.seed), columns)
        self._net = duckdb.connect()
        for name, table in self.tables.items():
            self._net.register("given", table)
            self._net.execute(f"CREATE TABLE {name} AS SELECT * FROM given LIMIT 0")

    def text(self, number: int) -> str:
        """Return a query of the benchmark in DuckDB's dialect."""
        old, new = _PARAMETERS.get(number, ("", ""))
        return self.workload.queries[number].replace(old, new)

    def play(self, numbers: Iterable[int]) -> Iterator[dict[int, Compared]]:
        """Register queries, then write the pieces; yield the queries' rows and DuckDB's after each
        piece.
        """
        registered = list(numbers)
        for number in registered:
            self.world.query(f"q{number}", self.text(number).rstrip(" \n;"), dialect="duckdb")
        for _ in self._written():
            self.world.settle()
            yield {number: self._compared(number) for number in registered}

    def _compared(self, number: int) -> Compared:
        wanted = self._net.execute(self.text(number)).fetchall()
        return Compared(plain(self.world.present(f"q{number}")), plain(wanted))

    def _written(self) -> Iterator[None]:
        """Yield after each step: random pieces with most orders, then RF1 and RF2 twice."""
        rng, orders = Random(self.seed), self.tables["orders"]["o_orderkey"].to_pylist()
        rng.shuffle(orders)
        fresh = [orders[: len(orders) // 20], orders[len(orders) // 20 : len(orders) // 10]]
        later = pa.array(orders[: len(orders) // 10])
        shuffled = dict[str, pa.Table]()
        for name, table in self.tables.items():
            if name in _REFRESHED:
                table = table.filter(pc.invert(pc.is_in(table[_REFRESHED[name]], later)))
            order = list(range(table.num_rows))
            rng.shuffle(order)
            shuffled[name] = table.take(pa.array(order))
        for piece in range(self.pieces):
            for name in TABLES:
                whole = shuffled[name]
                ends = [whole.num_rows * n // self.pieces for n in (piece, piece + 1)]
                self._write(name, whole.slice(ends[0], ends[1] - ends[0]), "insert")
            yield
        gone = orders[len(orders) // 10 :]
        for keys in fresh:
            self._refresh(keys, "insert")
            yield
            deleted, gone = gone[: len(gone) // 4], gone[len(gone) // 4 :]
            self._refresh([*deleted, *keys[::2]], "delete")
            yield

    def _refresh(self, keys: list[int], operation: str) -> None:
        for name, key in _REFRESHED.items():
            table = self.tables[name]
            self._write(name, table.filter(pc.is_in(table[key], pa.array(keys))), operation)

    def _write(self, name: str, rows: pa.Table, operation: str) -> None:
        self.world.put(name, rows.append_column("op", pa.array([operation] * rows.num_rows)))
        self._net.register("given", rows)
        if operation == "insert":
            self._net.execute(f"INSERT INTO {name} SELECT * FROM given")
        else:
            key = _REFRESHED[name]
            self._net.execute(f"DELETE FROM {name} WHERE {key} IN (SELECT {key} FROM given)")
