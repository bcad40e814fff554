"""Expected results by DuckDB over the same input, and row-by-row comparison with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from anabranch_contract.queries.views import CHANGE, Change
from benchmarks.session import WrongResultError

#: Prefix of columns in result files that do not come from the statement.
_OWN = "anabranch_"


class Oracle:
    """A DuckDB connection with the given tables."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._duck = duckdb.connect()
        self._duck.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            self._duck.register(name, table)

    def columns(self, statement: str) -> list[tuple[str, str]]:
        """Return the names and DuckDB types of a statement's result columns."""
        rows = self._duck.execute(f"DESCRIBE {statement}").fetchall()
        return [(name, kind) for name, kind, *_ in rows]

    def compare(self, name: str, statement: str, found: str) -> int:
        """Compare a query's rows with DuckDB's; return their number.

        Args:
            name: name of the query.
            statement: the query in DuckDB's SQL.
            found: SQL for the rows to compare; with a column :data:`CHANGE`, for all inserts and
                deletes.

        Raises:
            WrongResultError: the rows differ.
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
        """Return the number of rows of a statement's result."""
        (row,) = self._duck.execute(f"SELECT count(*) FROM ({statement})").fetchall()
        return int(row[0])

    def close(self) -> None:
        """Close the connection."""
        self._duck.close()

    def _names(self, table: str) -> list[str]:
        return list(self._duck.sql(f"FROM {table} LIMIT 0").to_arrow_table().column_names)

    def _rounded(self, table: str, names: Sequence[str]) -> str:
        """Return SQL for a table's rows; floats, whose last digits vary, are rounded to
        3 digits.
        """
        schema = self._duck.sql(f"FROM {table} LIMIT 0").to_arrow_table().schema
        columns = (
            f'round("{name}", 3)' if pa.types.is_floating(schema.field(name).type) else f'"{name}"'
            for name in names
        )
        return f"SELECT {', '.join(columns)} FROM {table}"
