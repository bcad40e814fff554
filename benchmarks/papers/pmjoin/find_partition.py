"""FindPartition (PMJoin, Algorithm 2): which joins of a placed plan are done by groups of values.

An operator is *partitionable* on a key if its predicates are all on that key. From the root down
each partitionable operator becomes a PMJoin, a *candidate*, and takes in its children that are
partitionable on the same key, and theirs. The results of a PMJoin lie on several hosts. So two are
ruled out (section 3.3):

1. an input of a PMJoin is on one host, so it is no PMJoin;
2. an operator's right child, to which the other inputs are sent, is not a PMJoin.

The second holds for all candidates, the first for candidates that are selected together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.papers.pmjoin.operators import Operator
from benchmarks.papers.pmjoin.rates import Mask, Rates


@dataclass(frozen=True, slots=True)
class Candidate:
    """A PMJoin that a plan could have.

    Attributes:
        streams: of the operator that it replaces; no other operator has the same.
        key: the number of the key that it is partitioned on.
        inputs: of that operator and of the operators that it took in.
        above: the streams of the candidate that it is an input of, which can't be selected with it.
    """

    streams: Mask
    key: int
    inputs: tuple[Operator, ...]
    above: Mask | None = None


def find_partition(plan: Operator, keys: Sequence[Mask]) -> tuple[Candidate, ...]:
    """The candidates of a plan, each before those below it.

    Args:
        plan: without partitions.
        keys: the streams that have each key.
    """
    return tuple(_found(plan, keys, right=False, above=None))


def partitionable(operator: Operator, keys: Sequence[Mask]) -> int | None:
    """The key that all predicates of an operator are on; None: there are several, or none.

    Predicates between streams of one input are not the operator's.
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
    """The inputs, and whether each is the right child."""
    return [
        (one, one is operator.inputs[-1] and one.host == operator.host) for one in operator.inputs
    ]


def _merged(operator: Operator, keys: Sequence[Mask], key: int) -> list[tuple[Operator, bool]]:
    """The inputs, where operators partitionable on ``key`` are replaced by theirs (lines 4 to 6).

    Whether an input is a right child depends on its own operator, whose input it is again where the
    PMJoin is not selected.
    """
    found = []
    for one, right in _children(operator):
        if partitionable(one, keys) == key:
            found += _merged(one, keys, key)
        else:
            found.append((one, right))
    return found


def by_input_rate(candidates: Sequence[Candidate], rates: Rates) -> tuple[Candidate, ...]:
    """The paper's selection: again and again that with the largest total rate of its inputs."""
    return in_order(sorted(candidates, key=lambda one: (-_brought(one, rates), one.streams)))


def _brought(candidate: Candidate, rates: Rates) -> float:
    return sum(rates.rate(one.streams) for one in candidate.inputs)


def in_order(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Each candidate that can be selected with those before it.

    Step 3 of the heuristic restores the parent of the one that is selected. Its text has nothing
    on children, but a child that was selected later would be an input of a PMJoin: they are
    restored as well.
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
    """The selection that saves most: a heaviest independent set of a forest.

    A candidate's inputs and the operator that it sends to stay on the hosts of the plan without
    partitions, as no neighbour is selected with it. So the savings of candidates add up, and

        with(c)    = saved(c) + sum over the candidates d below c of without(d)
        without(c) =            sum over the candidates d below c of max(with(d), without(d))

    Args:
        candidates: of one plan, each before those below it.
        saved: streams of a candidate -> tuples per second that it saves alone; may be negative.
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
