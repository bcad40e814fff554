"""Cost constants: the CPU time of the operations that plans consist of (objective ``seconds``).

    step    =  call * calls  +  sent * (probe + look * looks(store) * chi)  +  made * match
               + crossing * byte
    insert  =  (write + derive + merge * merges) * calls  +  added * (row + rewrite * rewrites)
               + crossing * byte

``sent`` tuples probe a store and produce ``made`` matches; ``looks(store)`` is the number of
segments per partition that one tuple searches. A broadcast searches all partitions, but finds each
match once. ``crossing`` is the number of bytes sent to other hosts
(:mod:`anabranch_planner.cost.exchange`). dpPick has ``alpha_q * f(kappa)`` for the probe and
``alpha_m`` for the match (Eq. 8). ``call`` and ``write`` are the fixed costs per batch; ``derive``
is a further fixed cost of an intermediate result. Each stored row is rewritten ``rewrites`` times
by merges, and each write causes ``merges`` of them (:mod:`anabranch_contract.protocol.merging`).

The objective has to be linear in steps and copies. So it omits writing results, whose cost is equal
for every plan, and charges each intermediate result for its level although several may share one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from anabranch_contract.errors import StatisticsError
from anabranch_contract.protocol.merging import merges
from anabranch_contract.queries.mirs import MirId

#: Default number of segments per partition that a tuple searches, before it is measured.
DEFAULT_LOOKS = 1.0
#: The operations with a CPU cost, named like the attributes of :class:`CostConstants`.
OPERATIONS = ("call", "probe", "look", "match", "write", "row", "merge", "rewrite", "derive")
#: Upper limit of every cost constant, in seconds.
LARGEST = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class CostConstants:
    """Seconds of CPU per operation.

    The defaults are used before the first measurement; ``docs/cost-model.md`` has their origin.

    Attributes:
        call: one call of a step, independent of the number of tuples.
        probe: one probing tuple, independent of its matches.
        look: one search of one segment by one tuple.
        match: one match.
        write: one write of a store's new rows, independent of their number.
        row: one stored row and its index entries.
        merge: one merge of segments, independent of the number of rows.
        rewrite: one row written by a merge.
        derive: one batch's write of an intermediate result, beyond ``write``: its rows are put
            together, tasks wait for each other, and the steps of its level begin later. Not
            measured alone; :mod:`.fit` sets it by the machine's speed.
        byte: one byte sent to another host, for sender and receiver; a fixed value, not fitted.
        calls: calls per step, and writes per store, in a unit of time: batches times tasks.
        batches: number of batches in the history; determines the levels of stores.
        looks: store -> segments per partition that a probing tuple searches.
        measurements: number of measured steps and inserts from which the constants were fitted.
        error: sum of absolute errors of these measurements, relative to their CPU time.

    Raises:
        StatisticsError: a constant is negative, NaN or too large; the message names it.
    """

    call: float = 2.7e-4
    probe: float = 8e-8
    look: float = 1e-8
    match: float = 5e-8
    write: float = 4e-4
    row: float = 1.6e-7
    merge: float = 2e-3
    rewrite: float = 1.1e-7
    derive: float = 0.0
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
        """Tuples that could be probed in the CPU time of sending one byte to another host."""
        return self.byte / (self.probe + self.look)

    def step(self, sent: float, made: float, store: MirId, chi: int) -> float:
        """CPU seconds of a step per unit of time; ``chi``: partitions probed."""
        looks = self.looks.get(store, DEFAULT_LOOKS) * chi
        return self.call * self.calls + sent * (self.probe + self.look * looks) + made * self.match

    def insert(self, added: float, rewrites: float = 0.0, *, derived: bool = False) -> float:
        """CPU seconds per unit of time to store ``added`` rows with ``rewrites`` rewrites each;
        ``derived``: rows of an intermediate result."""
        write = self.write + derived * self.derive + self.merge * merges(rewrites)
        return write * self.calls + self.stored(added, rewrites)

    def stored(self, rows: float, rewrites: float = 0.0) -> float:
        """CPU seconds to store ``rows`` with ``rewrites`` each, without fixed costs per batch."""
        return rows * (self.row + self.rewrite * rewrites)


def _check(value: float, name: str, most: float) -> None:
    if not 0 <= value <= most or value == math.inf:
        raise StatisticsError(
            "bad-cost-constant",
            f"the cost constant {name} is {value}",
            field=name,
            remedy="cost constants are seconds per operation: numbers from 0",
        )
