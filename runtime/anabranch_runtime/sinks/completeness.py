"""Completeness of results under load shedding: ``<results>/.completeness/<query>.json``.

The files are for readers of results without access to the service. Every query whose results were
ever withheld has a file. It describes the state as of a committed batch: while batches run, one
that is at most a few seconds old; after a start and at the end, the newest one. At a start, files
as of batches that the state lacks (after a rollback) are removed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from anabranch_contract import codec
from anabranch_contract.protocol.activations import Activation, LeftRows, counted
from anabranch_contract.queries.outer_joins import LEFT_SUFFIX, registered
from anabranch_runtime.sinks.ledger import put

#: Default of :meth:`CompletenessFiles.show`: left rows of no outer join are counted.
NONE: Mapping[str, LeftRows] = MappingProxyType({})
#: Folder below the results directory; the names of queries do not begin with a dot.
HOME = ".completeness"
#: Seconds between two updates of the files.
INTERVAL = 2.0


@dataclass(frozen=True, slots=True)
class Completeness:
    """Content of a query's file: counts of its results so far.

    Attributes:
        batch: the last batch counted. ``results``: number of results up to it; for an outer join,
            or a view over it, results of the join (``activations.counted``), whose left rows may be
            some batches behind.
        undecided: for an outer join, number of left rows not emitted, as their matches may have
            been withheld.
        withheld, owed, blind, caught_up: as in
            :class:`~anabranch_contract.protocol.activations.Activation`.
        completeness: estimated share of the results emitted so far.
    """

    query: str
    batch: int
    results: int
    withheld: float
    owed: float
    blind: int
    caught_up: int
    completeness: float
    undecided: int = 0


@dataclass(slots=True)
class CompletenessFiles:
    """The files in which one pipeline records each query's completeness (:class:`Completeness`)."""

    results: Path
    _written: dict[str, Completeness] = field(default_factory=dict)
    #: Queries at the last call of :meth:`show`; a query that is the same object is unchanged.
    _seen: Mapping[str, Activation] = field(default_factory=dict)
    _looked: float = -INTERVAL

    def show(
        self,
        queries: Mapping[str, Activation],
        batch: int,
        left_rows: Mapping[str, LeftRows] = NONE,
        *,
        at_once: bool = False,
    ) -> None:
        """Write the changed completeness files as of ``batch``, if an update is due or ``at_once``.

        Args:
            left_rows: outer join -> counts of its left rows; joins without counts are skipped.
        """
        now = time.monotonic()
        if not at_once and now - self._looked < INTERVAL:
            return
        self._looked = now
        seen, self._seen = self._seen, queries
        for name, known in queries.items():
            left = left_rows.get(name)
            if left is None and seen.get(name) is known:
                continue
            one = counted(queries, name, left)
            undecided = 0 if left is None else left.undecided
            if registered(name) == name and one is not None and (one.incomplete or undecided):
                self._write(_completeness(name, batch, one, undecided))

    def begin(self, queries: Mapping[str, Activation], batch: int) -> None:
        """Write all completeness files as of ``batch`` at a start; remove an earlier run's."""
        for path in (self.results / HOME).glob("*.json"):
            known, found = queries.get(path.stem), codec.loads(path.read_bytes(), Completeness)
            # Files of ended queries that the state no longer has stay, as do counts of left rows.
            ahead = found.batch > batch
            whole = known is not None and not known.incomplete
            if ahead or (whole and path.stem + LEFT_SUFFIX not in queries):
                path.unlink()
        self.show(queries, batch, at_once=True)

    def _write(self, found: Completeness) -> None:
        known = self._written.get(found.query)
        if known is not None and replace(known, batch=found.batch) == found:
            return
        put(self.results / HOME / f"{found.query}.json", found)
        self._written[found.query] = found


def _completeness(query: str, batch: int, one: Activation, undecided: int) -> Completeness:
    return Completeness(
        query,
        batch,
        one.results,
        one.withheld,
        one.owed,
        one.blind,
        one.caught_up,
        one.completeness,
        undecided,
    )
