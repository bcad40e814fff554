"""Rows of queries in their result files, against DuckDB's answer over the same input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from anabranch_contract.protocol.keys import Keys
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.views import CHANGE, Change
from benchmarks.nexmark.exact import record
from benchmarks.nexmark.generator import Events
from benchmarks.nexmark.statements import Nexmark
from benchmarks.session import WrongResultError
from tests.support.combined.registry import Registry

#: Columns of result files that are not the statement's begin so.
_OWN = "anabranch_"


def forms_of(streams: Mapping[str, Events], queries: Sequence[Nexmark]) -> dict[str, JoinQuery]:
    """Query or part -> normal form."""
    records = [record(name, one.table, Path()) for name, one in streams.items()]
    registry = Registry(records, Keys("forms"))
    for query in queries:
        registry.register(query.name, query.sql, past=False)
    return registry.forms


class Oracle:
    """DuckDB over ``streams``."""

    def __init__(self, streams: Mapping[str, Events]) -> None:
        self._duck = duckdb.connect()
        self._duck.execute("SET TimeZone = 'UTC'")
        for name, one in streams.items():
            self._duck.register(name, one.table)

    def columns(self, query: Nexmark) -> list[tuple[str, str]]:
        """Names of the columns of an answer, and their types in DuckDB."""
        rows = self._duck.execute(f"DESCRIBE {query.oracle}").fetchall()
        return [(name, kind) for name, kind, *_ in rows]

    def compare(self, query: Nexmark, found: str) -> int:
        """Number of rows of a query's answer.

        Args:
            found: the statement for the rows to compare, or with a column :data:`CHANGE` for all
                changes.

        Raises:
            WrongResultError: they are another answer.
        """
        self._duck.execute(f"CREATE OR REPLACE TEMP TABLE wanted AS {query.oracle}")
        self._duck.execute(f"CREATE OR REPLACE TEMP TABLE found AS {found}")
        names, shown = self._names("wanted"), self._names("found")
        plain = self._rounded("wanted", names)
        changes = CHANGE in shown
        kept = self._rounded("found", [c for c in shown if not c.startswith(_OWN)])
        inserts = f"{kept} WHERE {CHANGE} <> '{Change.DELETE}'" if changes else kept
        deletes = f"{kept} WHERE {CHANGE} = '{Change.DELETE}'" if changes else f"{kept} WHERE false"
        both = f"({plain} UNION ALL {deletes})"
        missing = self._count(f"{both} EXCEPT ALL ({inserts})")
        surplus = self._count(f"({inserts}) EXCEPT ALL {both}")
        if missing or surplus:
            raise WrongResultError(f"{query.name}: {missing} rows missing, {surplus} too many")
        return self._count("FROM wanted")

    def close(self) -> None:
        """Close the connection."""
        self._duck.close()

    def _names(self, table: str) -> list[str]:
        return list(self._duck.sql(f"FROM {table} LIMIT 0").to_arrow_table().column_names)

    def _rounded(self, table: str, names: Sequence[str]) -> str:
        """All rows of a table; floats, whose last digits depend on an order, to three digits."""
        schema = self._duck.sql(f"FROM {table} LIMIT 0").to_arrow_table().schema
        columns = (
            f'round("{name}", 3)' if pa.types.is_floating(schema.field(name).type) else f'"{name}"'
            for name in names
        )
        return f"SELECT {', '.join(columns)} FROM {table}"

    def _count(self, statement: str) -> int:
        (row,) = self._duck.execute(f"SELECT count(*) FROM ({statement})").fetchall()
        return int(row[0])


class Answers(Oracle):
    """The oracle beside the files in ``results``."""

    def __init__(
        self, streams: Mapping[str, Events], queries: Sequence[Nexmark], results: Path
    ) -> None:
        super().__init__(streams)
        self._forms, self._results = forms_of(streams, queries), results

    def check(self, query: Nexmark) -> int:
        """Number of rows of a query's answer.

        Raises:
            WrongResultError: its files have another answer.
        """
        return self.compare(query, self._found(query.name))

    def _found(self, name: str) -> str:
        """The rows of the files: of a view the current ones, of others all rows and changes."""
        form = self._forms[name]
        files = f"read_parquet('{self._results / name}/*.parquet', union_by_name = true)"
        if form.view is None:
            return f"SELECT * FROM {files}"
        keys = ", ".join(f'"{column}"' for column in form.view.identity) or "1"
        return f"""SELECT * EXCLUDE (nth) FROM (SELECT *, row_number() OVER (
          PARTITION BY {keys} ORDER BY anabranch_version DESC) AS nth FROM {files})
          WHERE nth = 1 AND {CHANGE} <> '{Change.DELETE}'"""
