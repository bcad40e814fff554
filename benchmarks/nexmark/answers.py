"""Rows of queries in their result files, against DuckDB's answer over the same input."""

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
    """Query or part -> normal form."""
    records = [record(name, one.table, Path()) for name, one in streams.items()]
    registry = Registry(records, Keys("forms"))
    for query in queries:
        registry.register(query.name, query.sql, past=False)
    return registry.forms


class Answers(Oracle):
    """The oracle beside the files in ``results``."""

    def __init__(
        self, streams: Mapping[str, Events], queries: Sequence[Nexmark], results: Path
    ) -> None:
        super().__init__({name: one.table for name, one in streams.items()})
        self._forms, self._results = forms_of(streams, queries), results

    def check(self, query: Nexmark) -> int:
        """Number of rows of a query's answer.

        Raises:
            WrongResultError: its files have another answer.
        """
        return self.compare(query.name, query.oracle, self._found(query.name))

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
