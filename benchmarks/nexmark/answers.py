"""Comparison of Nexmark queries' result files with DuckDB's answers over the same input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from anabranch_contract.protocol.keys import Keys
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.views import CHANGE, Change
from benchmarks.nexmark.exact import record
from benchmarks.nexmark.generator import Events
from benchmarks.nexmark.statements import Nexmark
from benchmarks.oracle import Oracle
from tests.support.combined.registry import Registry


def forms_of(streams: Mapping[str, Events], queries: Sequence[Nexmark]) -> dict[str, JoinQuery]:
    """Return the normal form of each query and of each of its parts, by name."""
    records = [record(name, one.table, Path()) for name, one in streams.items()]
    registry = Registry(records, Keys("forms"))
    for query in queries:
        registry.register(query.name, query.sql, past=False)
    return registry.forms


class Answers(Oracle):
    """Compares the result files in the folder ``results`` with an oracle."""

    def __init__(
        self, streams: Mapping[str, Events], queries: Sequence[Nexmark], results: Path
    ) -> None:
        super().__init__({name: one.table for name, one in streams.items()})
        self._forms, self._results = forms_of(streams, queries), results

    def check(self, query: Nexmark) -> int:
        """Compare a query's result files with the oracle; return the number of rows of its answer.

        Raises:
            WrongResultError: the files have another answer.
        """
        return self.compare(query.name, query.oracle, self._found(query.name))

    def _found(self, name: str) -> str:
        """Return SQL for the rows in a query's files: of a view the current ones, else all rows."""
        form = self._forms[name]
        files = f"read_parquet('{self._results / name}/*.parquet', union_by_name = true)"
        if form.view is None:
            return f"SELECT * FROM {files}"
        keys = ", ".join(f'"{column}"' for column in form.view.identity) or "1"
        return f"""SELECT * EXCLUDE (nth) FROM (SELECT *, row_number() OVER (
          PARTITION BY {keys} ORDER BY anabranch_version DESC) AS nth FROM {files})
          WHERE nth = 1 AND {CHANGE} <> '{Change.DELETE}'"""
