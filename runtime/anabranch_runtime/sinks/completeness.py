"""Completeness of results: ``<results>/.completeness/<query>.json``, beside the results.

For readers of results without access to the service. There is a file for each query that has ever
had results withheld. It is of a committed batch, some seconds old at most while batches go on, and
up to date after a start and at the end. A start removes entries of batches that the state does not
have (any more).
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

#: Of no outer join anything is known.
NONE: Mapping[str, LeftRows] = MappingProxyType({})
#: The folder below the results. No query can have a name that begins with a dot.
HOME = ".completeness"
#: Seconds between two updates.
INTERVAL = 2.0


@dataclass(frozen=True, slots=True)
class Completeness:
    """A query's results so far.

    Attributes:
        batch: the last one that counts. ``results``: found in and before it; of an outer join, or
            a view over one, what the join has given (``activations.counted``): left rows may be
            some batches behind.
        undecided: of an outer join, left rows that were not emitted.
        withheld, owed, blind, caught_up: as of
            :class:`~anabranch_contract.protocol.activations.Activation`.
        completeness: the share of the results that is there, estimated.
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
    """The files of one pipeline."""

    results: Path
    _written: dict[str, Completeness] = field(default_factory=dict)
    _looked: float = -INTERVAL

    def show(
        self,
        queries: Mapping[str, Activation],
        batch: int,
        left_rows: Mapping[str, LeftRows] = NONE,
        *,
        at_once: bool = False,
    ) -> None:
        """Write the changes as of ``batch``, where that is due or has to be ``at_once``.

        Args:
            left_rows: outer join -> its left rows; a missing one is skipped.
        """
        now = time.monotonic()
        if not at_once and now - self._looked < INTERVAL:
            return
        self._looked = now
        for name in queries:
            left = left_rows.get(name)
            one = counted(queries, name, left)
            undecided = 0 if left is None else left.undecided
            if registered(name) == name and one is not None and (one.incomplete or undecided):
                self._write(_completeness(name, batch, one, undecided))

    def begin(self, queries: Mapping[str, Activation], batch: int) -> None:
        """Write all as of ``batch`` at a start; remove an earlier run's other entries."""
        for path in (self.results / HOME).glob("*.json"):
            known, found = queries.get(path.stem), codec.loads(path.read_bytes(), Completeness)
            # The state has forgotten queries that ended long ago, and left rows are in views.
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
