"""What the stores of a pipeline hold: the document that the runtime reports and the service shows.

Sizes are bytes on disk. Totals are of the newest committed state, amplification of the pipeline's
whole life (``docs/state.md``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeAlias

from anabranch_planner.plain import plain

#: JSON as it is read; a name of its own, because reports have a field ``bytes``.
Text: TypeAlias = str | bytes


@dataclass(frozen=True, slots=True)
class LevelReport:
    """The segments of a store that have been merged ``level`` times."""

    level: int
    segments: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StoreReport:
    """One store.

    Attributes:
        store: its id.
        kind: ``stream`` or ``intermediate result``.
        mir: the canonical relation or intermediate result that it holds.
        members: labels of an intermediate result; none for a stream.
        streams: whose tuples it holds.
        filter: conjuncts that its rows satisfy.
        partition: the attribute by which rows are partitioned; None: none.
        partitions: how many there are.
        batches: the runs of batches that it has all rows of.
        growing: whether the running epoch adds to it.
        queries: those whose results depend on it.
        rows, bytes, index_bytes, segments: of its segments; ``bytes`` includes the indexes.
        levels: the same by level, smallest first.
        expired_below: per member, event time (microseconds) below which rows may be gone.
        backfill: whether its past is being computed.
        ttl: per member, its stream's in microseconds; None: it has none. Empty in documents of
            earlier releases.
    """

    store: str
    kind: str
    mir: str
    members: tuple[str, ...]
    streams: tuple[str, ...]
    filter: tuple[str, ...]
    partition: str | None
    partitions: int
    batches: tuple[tuple[int, int], ...]
    growing: bool
    queries: tuple[str, ...]
    rows: int
    bytes: int
    index_bytes: int
    segments: int
    levels: tuple[LevelReport, ...]
    expired_below: tuple[int | None, ...]
    backfill: bool
    ttl: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class StateReport:
    """All stores, and what keeping them has cost.

    Attributes:
        next_batch, epoch, ruleset_epoch: where the pipeline stands.
        bytes: of all segments of the newest state.
        packs: files that it names. ``disk_bytes``: of these files, which may still hold segments
            that have been merged or dropped.
        space_amplification: ``disk_bytes`` over ``bytes``; None where nothing is stored.
        inserted_bytes, merged_bytes: what batches, and merges, have ever written.
        write_amplification: both over ``inserted_bytes``; None before the first.
    """

    next_batch: int
    epoch: int
    ruleset_epoch: int
    bytes: int
    packs: int
    disk_bytes: int
    space_amplification: float | None
    inserted_bytes: int
    merged_bytes: int
    write_amplification: float | None
    stores: tuple[StoreReport, ...]

    def dumps(self) -> str:
        """JSON text."""
        return json.dumps(self, default=plain, sort_keys=True)

    @staticmethod
    def loads(text: Text) -> StateReport:
        """The report that :meth:`dumps` wrote."""
        doc = json.loads(text)
        return StateReport(**{**doc, "stores": tuple(map(_store, doc["stores"]))})


def _store(doc: dict[str, Any]) -> StoreReport:
    found: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in doc.items()}
    found["batches"] = tuple((first, last) for first, last in doc["batches"])
    found["levels"] = tuple(LevelReport(**level) for level in doc["levels"])
    return StoreReport(**found)
