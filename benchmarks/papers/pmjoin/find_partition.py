"""FindPartition (PMJoin, Algorithm 2): the joins of a placed plan that are executed by groups of
key values.

An operator is *partitionable* on a key if its predicates are all on that key. From the root down,
each partitionable operator becomes a *candidate* for a PMJoin (a join with a separate placement for
each group of key values). It includes its children that are partitionable on the same key, their
children, and so on. The results of a PMJoin are on several hosts. So two combinations are excluded
(section 3.3):

1. an input of a PMJoin must be on one host, so it is not a PMJoin;
2. an operator's right child, to whose host the other inputs are sent, is not a PMJoin.

Candidates obey the second rule by construction; the first one restricts which are selected
together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.papers.pmjoin.operators import Operator
from benchmarks.papers.pmjoin.rates import Mask, Rates


@dataclass(frozen=True, slots=True)
class Candidate:
    """A join of a plan that could be a PMJoin.

    Attributes:
        streams: streams of the operator that it replaces, which identify the operator.
        key: number of the key on which it is partitioned.
        inputs: inputs of the operator, with children on the same key replaced by their inputs.
        above: streams of the candidate that has it as an input; at most one of the two can be
            selected.
    """

    streams: Mask
    key: int
    inputs: tuple[Operator, ...]
    above: Mask | None = None


def find_partition(plan: Operator, keys: Sequence[Mask]) -> tuple[Candidate, ...]:
    """Return the candidates of a plan, each before those below it.

    Args:
        plan: plan without PMJoins.
        keys: for each key, the streams that have it.
    """
    return tuple(_found(plan, keys, right=False, above=None))


def partitionable(operator: Operator, keys: Sequence[Mask]) -> int | None:
    """Return the key of all predicates of an operator; None if they have several keys, or there are
    none.

    Predicates between streams of one input do not belong to the operator.
    """
    shared = [
        number
        for number, having in enumerate(keys)
        if sum(1 for one in operator.inputs if one.streams & having) > 1
    ]
    if len(shared) != 1 or not all(one.streams & keys[shared[0]] for one in operator.inputs):
        return None
    return shared[0]


def _found(
    operator: Operator, keys: Sequence[Mask], *, right: bool, above: Mask | None
) -> Iterable[Candidate]:
    key = None if right else partitionable(operator, keys)
    inputs = _children(operator) if key is None else _merged(operator, keys, key)
    this = None
    if key is not None:
        this = operator.streams
        yield Candidate(this, key, tuple(one for one, _ in inputs), above)
    for one, is_right in inputs:
        yield from _found(one, keys, right=is_right, above=this)


def _children(operator: Operator) -> list[tuple[Operator, bool]]:
    """Return the inputs of an operator, each with whether it is the right child."""
    return [
        (one, one is operator.inputs[-1] and one.host == operator.host) for one in operator.inputs
    ]


def _merged(operator: Operator, keys: Sequence[Mask], key: int) -> list[tuple[Operator, bool]]:
    """Return an operator's inputs, with inputs partitionable on ``key`` replaced by their inputs
    (lines 4 to 6).

    Whether an input is a right child is decided by its original operator: if the PMJoin is not
    selected, it is an input of this operator again.
    """
    found = []
    for one, right in _children(operator):
        if partitionable(one, keys) == key:
            found += _merged(one, keys, key)
        else:
            found.append((one, right))
    return found


def by_input_rate(candidates: Sequence[Candidate], rates: Rates) -> tuple[Candidate, ...]:
    """Select as in the paper: always the candidate with the largest total rate of its inputs."""
    return in_order(sorted(candidates, key=lambda one: (-_brought(one, rates), one.streams)))


def _brought(candidate: Candidate, rates: Rates) -> float:
    return sum(rates.rate(one.streams) for one in candidate.inputs)


def in_order(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return each candidate that can be selected together with those before it.

    When a candidate is selected, step 3 of the heuristic excludes its parent. The paper's text does
    not mention children; they are excluded here as well, since a child selected later would be an
    input of a PMJoin.
    """
    chosen: dict[Mask, Candidate] = {}
    taken: set[Mask | None] = set()
    for one in candidates:
        if one.above not in chosen and one.streams not in taken:
            chosen[one.streams] = one
            taken.add(one.above)
    return tuple(chosen.values())


def by_saving(
    candidates: Sequence[Candidate], saved: Mapping[Mask, float]
) -> tuple[Candidate, ...]:
    """Select the candidates that save the most: a heaviest independent set of a forest.

    Since no neighbour of a selected candidate is selected, its inputs and the operator to which it
    sends stay on the hosts of the plan without partitions. So the savings of candidates add up, and

        with(c)    = saved(c) + sum over the candidates d below c of without(d)
        without(c) =            sum over the candidates d below c of max(with(d), without(d))

    Args:
        candidates: candidates of one plan, each before those below it.
        saved: streams of a candidate -> tuples per second that it alone saves; may be negative.
    """
    below: dict[Mask, list[Candidate]] = {one.streams: [] for one in candidates}
    for one in candidates:
        if one.above is not None:
            below[one.above].append(one)
    best: dict[Mask, tuple[float, float]] = {}
    for one in reversed(candidates):
        under = [best[child.streams] for child in below[one.streams]]
        with_it = saved[one.streams] + sum(without for _, without in under)
        best[one.streams] = with_it, sum(max(pair) for pair in under)
    chosen: dict[Mask, Candidate] = {}
    for one in candidates:
        with_it, without = best[one.streams]
        if one.above not in chosen and with_it > without:
            chosen[one.streams] = one
    return tuple(chosen.values())
