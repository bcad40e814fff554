"""Pieces of a batch's input dealt to tasks, so that all are expected to take equally long.

Tasks wait for the slowest at every exchange. A tuple of one stream may cost many times what one of
another does, because it is sent down other probe trees. So pieces weigh what their rows are
expected to cost, not how many they are.

The heaviest piece comes first, each to the task that has least (Graham's LPT rule). Where tasks
start with nothing, no task gets more than ``4/3 - 1/(3 tasks)`` times what the slowest has in the
best deal. In any case the heaviest task that is dealt something has at most one piece more than
the mean.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anabranch_runtime.sources.feed import Piece

#: A deal is uneven if the slowest task has more than so many times the mean.
UNEVEN = 1.1
#: Fewer rows are not divided any finer: what a piece costs by itself would be more than is gained.
WORTH = 1 << 14


def prices(pieces: Sequence[Piece], costs: Mapping[str, float]) -> dict[str, float]:
    """Stream -> what a row of it weighs, for each stream that ``pieces`` have rows of.

    Args:
        pieces: all of a batch's; weights can be compared within one call only.
        costs: stream -> seconds per row, where they are known; all above 0. Rows of other streams
            weigh what rows of the known streams among ``pieces`` do on average, and all rows weigh
            1 where none of those is known.
    """
    rows: dict[str, int] = defaultdict(int)
    for piece in pieces:
        rows[piece.stream] += piece.rows
    known = {stream: count for stream, count in rows.items() if stream in costs}
    total = sum(known.values())
    mean = sum(count * costs[stream] for stream, count in known.items()) / total if total else 1.0
    return {stream: costs[stream] if stream in known and total else mean for stream in rows}


def deal(weights: Sequence[float], loads: Sequence[float]) -> list[int]:
    """The task of each weight: a function of its arguments alone.

    Args:
        weights: of what is dealt, in any order; of equal ones the first is dealt first.
        loads: what each task has already; at least one task.
    """
    loads, found = list(loads), [0] * len(weights)
    for number in sorted(range(len(weights)), key=lambda n: -weights[n]):
        task = min(range(len(loads)), key=loads.__getitem__)
        loads[task] += weights[number]
        found[number] = task
    return found


def is_uneven(weights: Sequence[float], tasks: Sequence[int], loads: Sequence[float]) -> bool:
    """Whether the slowest task has much more than the mean, ``weights`` being dealt to ``tasks``
    that had ``loads`` before.
    """
    totals = list(loads)
    for weight, task in zip(weights, tasks, strict=True):
        totals[task] += weight
    return max(totals) * len(totals) > UNEVEN * sum(totals)
