"""Expected results of a run under rations, computed by DuckDB over the whole input.

A result's last member is the member that arrived in the latest batch; of several members of this
batch, the one whose stream's name is last in alphabetical order. The result is kept if that
member's rank is below its limit (``docs/semantics.md``, "Rations"). For rival policies, the limit
is that of the edge on which the results arrive. The queries here have each stream only once. Sets
of rows are compared by their sizes and the sums of the rows' hashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_client.replay.tpch import DemoQuery
from anabranch_contract.plans.rations import Ranking, RationedGoal
from anabranch_runtime.index.ranks import WHOLE, limit, ranks
from benchmarks.papers.jaqpot.rations.runs import Division, Outcome, Planned
from benchmarks.papers.jaqpot.rations.workloads import Workload
from benchmarks.session import WrongResultError
from tests.support.oracles.ledger import read_rations

_BATCH, _RANK = "__batch", "__rank"
_WORD = 1 << 64


@dataclass(frozen=True, slots=True)
class _Full:
    """All results of a query without rations, as arrays with an entry per result.

    Attributes:
        columns: columns of the query's result files.
        last: position of the last member's table among the query's tables. ``rank``: the last
            member's rank.
        hashes: hashes of the rows.
    """

    columns: tuple[str, ...]
    last: NDArray[np.int64]
    rank: NDArray[np.int64]
    hashes: NDArray[np.uint64]


class Expected:
    """All results of a workload's queries, and the check of the part that rations keep."""

    def __init__(self, plan: Planned, goals: tuple[RationedGoal, ...]) -> None:
        """``goals``: goals whose rankings apply, equal for goals with the same label."""
        self._plan = plan
        self._ranking: dict[str, Ranking] = {str(goal.start): goal.ranking for goal in goals}
        workload = plan.workload
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            for name in workload.tables:
                placed = self._placed(workload, name)
                database.execute(f'CREATE TABLE "{name}" AS SELECT * FROM placed')
                del placed
            self._full = {query.name: _all_results(database, query) for query in workload.queries}

    @property
    def counts(self) -> dict[str, int]:
        """Query -> number of its results without rations."""
        return {name: len(full.rank) for name, full in self._full.items()}

    def check(self, results: Path, outcome: Outcome, division: Division) -> None:
        """Compare the result files of a run with the results that its rations keep.

        Raises:
            WrongResultError: the files differ from the results that the ledger's rations (or the
                limits) keep.
        """
        wanted = self._limits(results, division)
        for query in self._plan.workload.queries:
            full = self._full[query.name]
            most = np.array([wanted.get((query.name, table), WHOLE) for table in query.tables])
            kept = full.rank < most[full.last]
            count = int(np.count_nonzero(kept))
            total = int(full.hashes[kept].sum(dtype=np.uint64))
            found = _found(results / query.name, full.columns)
            if found != (count, total) or outcome.results[query.name] != count:
                raise WrongResultError(
                    f"{query.name}: {found[0]} rows in files, {outcome.results[query.name]} "
                    f"reported, {count} expected; or other rows"
                )

    def _limits(self, results: Path, division: Division) -> dict[tuple[str, str], int]:
        """Map (query, table of the last member) to an exclusive upper limit of this
        member's rank.
        """
        rules, found = self._plan.rules, dict[tuple[str, str], int]()
        if division.limits is not None:
            start = {rule.out: str(rule.start) for rule in rules.paths}
            for output in rules.output_rules:
                limits = division.limits.edge(output.edge) or ()
                alias = self._table(str(output.query), start[output.edge])
                found |= {(str(output.query), alias): most for _, most in limits}
            return found
        ledger = read_rations(results)
        if ledger:
            if len({one.rations for one in ledger}) > 1:
                raise WrongResultError("not all batches have had the same rations")
            if len(ledger) != self._plan.workload.batches:
                raise WrongResultError("not all batches have had rations")
            for ration in ledger[0].rations:
                alias = self._table(str(ration.query), str(ration.start))
                found[str(ration.query), alias] = limit(ration.share)
        return found

    def _table(self, query: str, label: str) -> str:
        spec = next(q for q in self._plan.rules.queries if str(q.id) == query)
        return next(str(alias) for alias, own, _ in spec.members if str(own) == label)

    def _placed(self, workload: Workload, name: str) -> pa.Table:
        """Return a table with the batch and the rank of each row added."""
        table, batches = workload.tables[name], workload.arrivals(name)
        ranking = self._ranking_of(name)

        def column(of: str) -> pa.Array:
            found = table.column(of).combine_chunks()
            # The runtime computes ranks from microseconds without a time zone.
            return found.cast(pa.timestamp("us")) if pa.types.is_timestamp(found.type) else found

        rank = ranks(ranking, column, table.num_rows, batches)
        return table.append_column(_BATCH, pa.array(batches)).append_column(_RANK, pa.array(rank))

    def _ranking_of(self, stream: str) -> Ranking:
        for spec in self._plan.rules.queries:
            for alias, label, _ in spec.members:
                if str(alias) == stream and str(label) in self._ranking:
                    return self._ranking[str(label)]
        raise KeyError(stream)


def _all_results(database: duckdb.DuckDBPyConnection, query: DemoQuery) -> _Full:
    described = database.execute(f"DESCRIBE SELECT {query.select} FROM {query.source}").fetchall()
    columns = tuple(str(row[0]) for row in described)
    newest = "greatest(" + ", ".join(f"{table}.{_BATCH}" for table in query.tables) + ")"
    ordered = sorted(enumerate(query.tables), key=lambda item: item[1], reverse=True)

    def of_last(pick: str) -> str:
        cases = (
            f"WHEN {table}.{_BATCH} = {newest} THEN {pick.format(number=number, table=table)}"
            for number, table in ordered
        )
        return f"CASE {' '.join(cases)} END"

    found = database.execute(
        f"SELECT __last, __own, hash({_listed(columns)}) AS hash FROM ("
        f"SELECT {query.select}, {of_last('{number}')} AS __last, "
        f"{of_last('{table}.' + _RANK)} AS __own FROM {query.source})"
    ).fetchnumpy()
    return _Full(
        columns,
        np.asarray(found["__last"], np.int64),
        np.asarray(found["__own"], np.int64),
        np.asarray(found["hash"], np.uint64),
    )


def _found(folder: Path, columns: tuple[str, ...]) -> tuple[int, int]:
    """Return the number of rows in result files, and the sum of the rows' hashes."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        row = database.execute(
            f"SELECT count(*), coalesce(sum(hash({_listed(columns)})::HUGEINT), 0) "
            f"FROM read_parquet('{folder}/*.parquet')"
        ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1]) % _WORD


def _listed(columns: tuple[str, ...]) -> str:
    return ", ".join(f'"{column}"' for column in columns)
