"""dpPick as printed: all sequences by depth-first search, memoised costs of what follows.

Source: Hu & Qiu, Algorithms 3 (``optimizeProbeOrder_dpPick``) and 4 (``getSequences``).

Algorithm 3 keys its memo by the sequence that is left. That is right where figures depend on the
visited set as well, since the set is what the sequence left does not contain; where they depend on
the start, every start has a memo of its own. Memoising saves arithmetic, not enumeration: a chain
of n streams has 2^(n-1) sequences, a clique n! (n-1)! (n! where the probing side is of no account;
then one edge to each target stands for all). :mod:`~benchmarks.papers.dppick.exact` finds the same
costs without enumeration.
"""

from __future__ import annotations

from typing import TypeAlias

from anabranch_contract.errors import PlannerError
from benchmarks.papers.dppick.problem import Operator

#: Sequences that are enumerated for one operator (about a second), all starts together.
MAX_SEQUENCES = 100_000

#: Probe pairs (probing side, probed side).
_Sequence: TypeAlias = tuple[tuple[int, int], ...]


def dppick_orders(operator: Operator) -> tuple[tuple[int, ...], ...]:
    """The cheapest order of each start, as targets; of equal ones the first in stream order.

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
    """Algorithm 4 from one start: all sequences of probe pairs that visit every stream."""
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
    """``calculateCost`` of Algorithm 3."""
    if not sequence:
        return 0.0
    cost = memo.get(sequence)
    if cost is None:
        (side, target), rest = sequence[0], sequence[1:]
        own, factor = operator.step(start, visited, side, target)
        cost = own + factor * _cost(operator, start, visited | 1 << target, rest, memo)
        memo[sequence] = cost
    return cost
