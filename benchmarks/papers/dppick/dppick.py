"""dpPick as printed: all sequences of steps by depth-first search, with memoised costs of their
tails.

Source: Hu & Qiu, Algorithms 3 (``optimizeProbeOrder_dpPick``) and 4 (``getSequences``).

Algorithm 3 memoises by the remaining sequence. That is correct even if selectivities depend on the
visited set, since this set consists of the streams that are not in the remaining sequence. If they
depend on the start, every start has a separate memo. Memoising saves arithmetic, not enumeration: a
chain of n streams has 2^(n-1) sequences, a clique n! (n-1)!; only n! if selectivities do not depend
on the probing side, when one edge to each target represents all.
:mod:`~benchmarks.papers.dppick.exact` finds the same costs without enumeration.
"""

from __future__ import annotations

from typing import TypeAlias

from anabranch_contract.errors import PlannerError
from benchmarks.papers.dppick.problem import Operator

#: Maximum number of sequences of an operator, over all starts (about a second of enumeration).
MAX_SEQUENCES = 100_000

#: Steps as pairs (probing side, probed side).
_Sequence: TypeAlias = tuple[tuple[int, int], ...]


def dppick_orders(operator: Operator) -> tuple[tuple[int, ...], ...]:
    """Return the cheapest order of each start, as a list of targets; of equally cheap ones the
    first in stream order.

    Raises:
        PlannerError: there are more than :data:`MAX_SEQUENCES` sequences.
    """
    memo: dict[_Sequence, float] = {}
    found, left = [], MAX_SEQUENCES
    for start in range(len(operator.names)):
        if operator.figures.by_start:
            memo = {}
        sequences = _sequences(operator, start, left)
        left -= len(sequences)
        costs = [_cost(operator, start, 1 << start, sequence, memo) for sequence in sequences]
        best = sequences[min(range(len(costs)), key=costs.__getitem__)]
        found.append(tuple(target for _, target in best))
    return tuple(found)


def _sequences(operator: Operator, start: int, most: int) -> list[_Sequence]:
    """Algorithm 4 for one start: return all sequences of steps that visit every stream."""
    found: list[_Sequence] = []
    current: list[tuple[int, int]] = []
    steps: dict[int, list[tuple[int, int]]] = {}

    def search(visited: int) -> None:
        if len(current) == len(operator.names) - 1:
            if len(found) == most:
                raise PlannerError(
                    "too-many-sequences",
                    f"these {len(operator.names)} streams have more than {MAX_SEQUENCES} probe"
                    " sequences, all of which dppick enumerates",
                    field="algorithm",
                    remedy="use exact, which finds orders of the same cost",
                )
            found.append(tuple(current))
            return
        if visited not in steps:
            steps[visited] = list(operator.steps(visited))
        for side, target in steps[visited]:
            current.append((side, target))
            search(visited | 1 << target)
            current.pop()

    search(1 << start)
    return found


def _cost(
    operator: Operator, start: int, visited: int, sequence: _Sequence, memo: dict[_Sequence, float]
) -> float:
    """``calculateCost`` of Algorithm 3: return the cost of a sequence after ``visited``."""
    if not sequence:
        return 0.0
    cost = memo.get(sequence)
    if cost is None:
        (side, target), rest = sequence[0], sequence[1:]
        own, factor = operator.step(start, visited, side, target)
        cost = own + factor * _cost(operator, start, visited | 1 << target, rest, memo)
        memo[sequence] = cost
    return cost
