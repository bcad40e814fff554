"""Cost constants: the CPU time of the operations that plans consist of (objective ``seconds``).

    step    =  call * calls  +  sent * (probe + look * looks(store) * chi)  +  made * match
               + crossing * byte
    insert  =  (write + merge * merges) * calls  +  added * (row + rewrite * rewrites)
               + crossing * byte

``sent`` tuples probe a store and make ``made`` tuples; ``looks`` are the segments of a partition
that one of them looks into. A broadcast looks into all partitions, but finds each match once.
``crossing`` are the bytes that go to other hosts (:mod:`anabranch_planner.cost.exchange`). dpPick
has ``alpha_q * f(kappa)`` for the probe and ``alpha_m`` for the match (Eq. 8); ``call`` and
``write`` are the fixed cost of a batch. A stored row is rewritten by ``rewrites`` merges, and each
write causes ``merges`` of them (:mod:`anabranch_contract.protocol.merging`).

An objective in seconds has to be linear in steps and copies. So it leaves out costs of a whole
plan: waiting for the other tasks at each level, and results, which every plan writes equally.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from anabranch_contract.errors import StatisticsError
from anabranch_contract.protocol.merging import merges
from anabranch_contract.queries.mirs import MirId

#: Segments per partition that a tuple looks into, where that has not been measured.
DEFAULT_LOOKS = 1.0
#: The operations, as attributes of :class:`CostConstants` name them.
OPERATIONS = ("call", "probe", "look", "match", "write", "row", "merge", "rewrite")
#: Seconds. No operation takes longer.
LARGEST = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class CostConstants:
    """Seconds of CPU per operation.

    The defaults are for use before anything has been measured; ``docs/cost-model.md`` says where
    they were taken.

    Attributes:
        call: one call of a step, however many tuples it sends.
        probe: one probing tuple, whatever it finds.
        look: one tuple that looks into one segment.
        match: one match.
        write: one write of a store's new rows, however many there are.
        row: one row, its index entries included.
        merge: one merge of segments, however many rows it writes.
        rewrite: one row that a merge writes.
        byte: one byte that goes to another host, of sender and receiver; it is not fitted.
        calls: calls per step and writes per store in a unit of time: batches times tasks.
        batches: of the history, by which the levels of stores are reckoned.
        looks: store -> segments of a partition that a probing tuple looks into.
        measurements: to how many measurements of steps and inserts the constants were fitted.
        error: the sum of absolute errors over these, as a share of their CPU time.

    Raises:
        StatisticsError: a figure is negative, NaN or too large; it is named.
    """

    call: float = 2.7e-4
    probe: float = 8e-8
    look: float = 1e-8
    match: float = 5e-8
    write: float = 4e-4
    row: float = 1.6e-7
    merge: float = 2e-3
    rewrite: float = 1.1e-7
    byte: float = 5e-9
    calls: float = 1.0
    batches: float = 1.0
    looks: Mapping[MirId, float] = field(default_factory=lambda: MappingProxyType({}))
    measurements: int = 0
    error: float | None = None

    def __post_init__(self) -> None:
        for name in (*OPERATIONS, "byte"):
            _check(getattr(self, name), name, LARGEST)
        _check(self.calls, "calls", math.inf)
        _check(self.batches, "batches", math.inf)
        for store, looks in self.looks.items():
            _check(looks, f"looks of {store}", math.inf)

    @property
    def tuples_per_byte(self) -> float:
        """How many tuples can be probed with in the time that one byte takes to another host."""
        return self.byte / (self.probe + self.look)

    def step(self, sent: float, made: float, store: MirId, chi: int) -> float:
        """Seconds of a step per unit of time; ``chi``: partitions that a tuple is sent to."""
        looks = self.looks.get(store, DEFAULT_LOOKS) * chi
        return self.call * self.calls + sent * (self.probe + self.look * looks) + made * self.match

    def insert(self, added: float, rewrites: float = 0.0) -> float:
        """Seconds of storing ``added`` rows per unit of time, each rewritten so often."""
        writes = (self.write + self.merge * merges(rewrites)) * self.calls
        return writes + self.stored(added, rewrites)

    def stored(self, rows: float, rewrites: float = 0.0) -> float:
        """Seconds of storing ``rows``, each rewritten so often, without writes and merges."""
        return rows * (self.row + self.rewrite * rewrites)


def _check(value: float, name: str, most: float) -> None:
    if not 0 <= value <= most or value == math.inf:
        raise StatisticsError(
            "bad-cost-constant",
            f"the cost constant {name} is {value}",
            field=name,
            remedy="cost constants are seconds per operation: numbers from 0",
        )
