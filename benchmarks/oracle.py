"""Answers in DuckDB over the same input, and their comparison row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from anabranch_contract.queries.views import CHANGE, Change
from benchmarks.session import WrongResultError

#: Columns of result files that are not the statement's begin so.
_OWN = "anabranch_"


class Oracle:
    """DuckDB over tables by name."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._duck = duckdb.connect()
        self._duck.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            self._duck.register(name, table)

    def columns(self, statement: str) -> list[tuple[str, str]]:
        """Names of the columns of an answer, and their types in DuckDB."""
        rows = self._duck.execute(f"DESCRIBE {statement}").fetchall()
        return [(name, kind) for name, kind, *_ in rows]

    def compare(self, name: str, statement: str, found: str) -> int:
        """Compare a query's answer; returns its number of rows.

        Args:
            name: of the query.
            statement: of the query, in DuckDB.
            found: the statement for the rows to compare, or with a column :data:`CHANGE` for all
                changes.

        Raises:
            WrongResultError: they are another answer.
        """
        self._duck.execute(f"CREATE OR REPLACE TEMP TABLE wanted AS {statement}")
        self._duck.execute(f"CREATE OR REPLACE TEMP TABLE found AS {found}")
        names, shown = self._names("wanted"), self._names("found")
        plain = self._rounded("wanted", names)
        changes = CHANGE in shown
        kept = self._rounded("found", [c for c in shown if not c.startswith(_OWN)])
        inserts = f"{kept} WHERE {CHANGE} <> '{Change.DELETE}'" if changes else kept
        deletes = f"{kept} WHERE {CHANGE} = '{Change.DELETE}'" if changes else f"{kept} WHERE false"
        both = f"({plain} UNION ALL {deletes})"
        missing = self.count(f"{both} EXCEPT ALL ({inserts})")
        surplus = self.count(f"({inserts}) EXCEPT ALL {both}")
        if missing or surplus:
            raise WrongResultError(f"{name}: {missing} rows missing, {surplus} too many")
        return self.count("FROM wanted")

    def count(self, statement: str) -> int:
        """Number of rows of a statement."""
        (row,) = self._duck.execute(f"SELECT count(*) FROM ({statement})").fetchall()
        return int(row[0])

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
