"""An example: streams, statements, generated data, and its results by DuckDB and from files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from anabranch_client.declared.statements import statements
from examples.events import SEED

FOLDER: Final = Path(__file__).parent
NAMES: Final = ("clickstream", "features", "fraud", "iot", "security")
#: Number of files of a stream, which arrive one after the other.
SLICES: Final = 4


@dataclass(frozen=True, slots=True)
class Example:
    """An example, i.e. a folder of examples/.

    Attributes:
        streams: stream → fields of its registration, without name and source.
        queries: query → statement. ``oracle``: the same in DuckDB's SQL.
        tables: stream → its rows in the order of arrival.
    """

    name: str
    streams: Mapping[str, Mapping[str, Any]]
    queries: Mapping[str, str]
    oracle: Mapping[str, str]
    tables: Mapping[str, pa.Table]

    @classmethod
    def read(cls, name: str, seed: int = SEED) -> Example:
        """Read the example in the folder ``name``, and generate its data."""
        folder = FOLDER / name
        queries = named(folder / "queries.sql")
        return cls(
            name,
            yaml.safe_load((folder / "streams.yaml").read_text("utf-8")),
            queries,
            {**queries, **named(folder / "duckdb.sql")},
            import_module(f"examples.{name}.data").tables(seed),
        )

    def kind(self, stream: str) -> str:
        """Return the kind of a stream: ``stream``, ``table`` or ``upsert``."""
        return str(self.streams[stream].get("kind", "stream"))

    def bodies(self, folder: Path) -> Iterator[dict[str, Any]]:
        """Yield bodies of ``POST /v1/streams``; each stream reads the folder of its name."""
        for name, fields in self.streams.items():
            source = {"format": "files", "path": str(folder / name)}
            yield {"name": name, **fields, "source": source}

    def write_tables(self, folder: Path) -> None:
        """Write the rows of tables, which arrive first."""
        for name, rows in self.tables.items():
            if self.kind(name) == "table":
                _write(folder / name, 0, rows)

    def write(self, folder: Path, part: int) -> None:
        """Write the file number ``part`` of each stream that is not a table."""
        for name, rows in self.tables.items():
            if self.kind(name) != "table":
                begin, end = (rows.num_rows * n // SLICES for n in (part, part + 1))
                _write(folder / name, part, rows.slice(begin, end - begin))

    def fill(self, duck: duckdb.DuckDBPyConnection) -> None:
        """Create DuckDB's tables with all rows; of upserts, with the last row of each key."""
        for name, rows in self.tables.items():
            if self.kind(name) == "upsert":
                key = list(self.streams[name]["key"])
                last = rows.append_column("at", pa.array(range(rows.num_rows)))
                last = last.group_by(key).aggregate([("at", "max")])["at_max"]
                rows = rows.take(last)
            duck.register(name, rows)


def _write(folder: Path, part: int, rows: pa.Table) -> None:
    """Write a file atomically: it is renamed from a name with a leading dot."""
    written = folder / f".{part}"
    pq.write_table(rows, written)
    written.rename(written.with_name(f"{part}.parquet"))


def named(path: Path) -> dict[str, str]:
    """Return name → statement of an SQL file; empty if there is no such file."""
    if not path.is_file():
        return {}
    return {one.name or "": one.text for one in statements(path.read_text("utf-8"))}


def connect() -> duckdb.DuckDBPyConnection:
    """Return a connection to DuckDB in memory, with the time zone UTC."""
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    return duck


def current(folder: Path, output: Sequence[str], identity: Sequence[str] | None) -> str:
    """Return DuckDB's statement for a query's current result, from its result files.

    Args:
        output: the query's columns.
        identity: columns that identify a row of a view; None: the query has no view.
    """
    listed = ", ".join(f'"{name}"' for name in output if name != "anabranch_change")
    rows = f"read_parquet('{folder}/*.parquet', union_by_name = true)"
    if identity is not None:
        keys = ", ".join(f'"{name}"' for name in identity)
        over = f"{f'PARTITION BY {keys}' if keys else ''} ORDER BY anabranch_version DESC"
        return (
            f"SELECT {listed} FROM {rows} QUALIFY row_number() OVER ({over}) = 1"
            " AND anabranch_change = 'upsert'"
        )
    if "anabranch_change" in output:
        sign = "CASE anabranch_change WHEN 'insert' THEN 1 ELSE -1 END"
        net = f"SELECT {listed}, sum({sign}) AS net FROM {rows} GROUP BY ALL HAVING net > 0"
        return f"SELECT {listed} FROM (SELECT *, unnest(range(net::BIGINT)) FROM ({net}))"
    return f"SELECT {listed} FROM {rows}"
