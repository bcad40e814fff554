"""Tests of PMJoin's FindPartition: its candidates and selections, by hand and against
brute force.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random

import pytest

from benchmarks.papers.pmjoin.find_partition import (
    Candidate,
    by_input_rate,
    by_saving,
    find_partition,
    in_order,
    partitionable,
)
from benchmarks.papers.pmjoin.operators import Operator, arrivals, joined
from benchmarks.papers.pmjoin.rates import Mask, members

A, B, C, D, E = arrivals([0, 1, 2, 3, 4])


class Sums:
    """Rates that equal the sum of the streams' numbers."""

    def rate(self, streams: Mask) -> float:
        return float(sum(number + 1 for number in members(streams)))

    def joinable(self, one: Mask, other: Mask) -> bool:
        return bool(one and other)


def test_an_operator_is_partitionable_on_the_only_key_of_its_predicates() -> None:
    inner = joined(1, [A, B])
    outer = joined(2, [inner, C])
    # Key a joins A and B; b joins B and C.
    assert partitionable(inner, [0b011, 0b110]) == 0
    assert partitionable(outer, [0b011, 0b110]) == 1
    # The inner join's key does not count as a key of the outer operator.
    assert partitionable(outer, [0b111, 0b010]) == 0
    assert partitionable(outer, [0b111, 0b110]) is None
    assert partitionable(joined(2, [A, B, C]), [0b011, 0b110]) is None
    assert partitionable(A, [0b111]) is None


def test_children_on_the_same_key_are_merged_and_so_are_theirs() -> None:
    deepest = joined(1, [A, B])
    plan = joined(3, [joined(2, [deepest, C]), D])
    (found,) = find_partition(plan, [0b1111])
    assert found == Candidate(0b1111, 0, (A, B, C, D))


def test_a_merged_childs_children_are_marked_below_what_took_it_in() -> None:
    below = joined(1, [A, B])  # by b, sent on
    plan = joined(4, [joined(2, [below, C]), E])  # by a, both operators
    keys = [0b10110, 0b00011]
    found = find_partition(plan, keys)
    assert [(one.streams, one.key, one.above) for one in found] == [
        (plan.streams, 0, None),
        (below.streams, 1, plan.streams),
    ]
    assert found[0].inputs == (below, C, E)


def test_a_right_child_is_no_pmjoin_but_those_below_it_are() -> None:
    below = joined(1, [A, B])
    right = joined(2, [below, C])
    plan = joined(2, [D, right])
    assert plan.inputs[-1] is right
    # Key a: A B; b: B C; c: C D; the last one: D and A, so the root has two keys.
    keys = [0b0011, 0b0110, 0b1100, 0b1001]
    assert [one.streams for one in find_partition(plan, keys)] == [below.streams]
    # It is merged into the root by the root's key, although it is the right child.
    assert find_partition(plan, [0b0011, 0b1110])[0].inputs == (D, below, C)


def test_a_stream_on_the_host_is_the_right_child_rather_than_an_operator() -> None:
    there = joined(1, [A, B])
    stream = Operator(0b100, 1)
    assert joined(1, [there, stream]).inputs[-1] is stream
    assert joined(1, [Operator(0b1000, 1), there]).inputs[-1].streams == 0b1000


def test_the_largest_input_rate_is_first_and_its_neighbours_are_restored() -> None:
    chain = [
        Candidate(0b1, 0, (A, B), 0b10),
        Candidate(0b10, 1, (C, D), 0b100),
        Candidate(0b100, 2, (E,), None),
    ]
    # Input rates 3, 7 and 5: the one in the middle excludes the others.
    assert by_input_rate(chain, Sums()) == (chain[1],)
    assert in_order(chain) == (chain[0], chain[2])
    # The other two together save more.
    assert by_saving(chain[::-1], {0b1: 4.0, 0b10: 5.0, 0b100: 2.0}) == (chain[2], chain[0])
    assert by_saving(chain[::-1], {0b1: -4.0, 0b10: 0.0, 0b100: -1.0}) == ()


@pytest.mark.parametrize("chunk", range(10))
def test_a_thousand_random_plans(chunk: int) -> None:
    for seed in range(100 * chunk, 100 * chunk + 100):
        rng = Random(seed)
        streams = rng.randint(2, 16)
        sites = [rng.randrange(4) for _ in range(streams)]
        plan = grown(rng, arrivals(sites))
        keys = drawn_keys(rng, streams)
        candidates = find_partition(plan, keys)
        check(plan, keys, candidates)
        if len(candidates) > 12:
            continue
        saved = {one.streams: rng.uniform(-10, 20) for one in candidates}
        chosen = by_saving(candidates, saved)
        check_selection(chosen)
        best = max(
            sum(saved[one.streams] for one in some)
            for size in range(len(candidates) + 1)
            for some in combinations(candidates, size)
            if apart(some)
        )
        assert sum(saved[one.streams] for one in chosen) == pytest.approx(best), seed
        heuristic = by_input_rate(candidates, Sums())
        check_selection(heuristic)
        assert sum(saved[one.streams] for one in heuristic) <= best + 1e-9
        # No candidate can be added, and no rejected one ranks before its neighbour.
        for one in candidates:
            if one in heuristic:
                continue
            rate = brought(one)
            near = [c for c in heuristic if c.above == one.streams or one.above == c.streams]
            assert max(map(brought, near)) >= rate


def brought(one: Candidate) -> float:
    return sum(Sums().rate(single.streams) for single in one.inputs)


def apart(some: Sequence[Candidate]) -> bool:
    streams = {one.streams for one in some}
    return not any(one.above in streams for one in some)


def check_selection(some: Sequence[Candidate]) -> None:
    assert apart(some)
    assert len({one.streams for one in some}) == len(some)


def check(plan: Operator, keys: Sequence[Mask], found: Sequence[Candidate]) -> None:
    """Check each candidate by its definition, and that each operator is one, is part of one, or
    can't be one.
    """
    operators = dict(walked(plan))
    taken: set[Mask] = set()
    order = {one.streams: at for at, one in enumerate(found)}
    for one in found:
        operator, right = operators[one.streams]
        assert not right
        assert partitionable(operator, keys) == one.key
        assert all(single.streams & keys[one.key] for single in one.inputs)
        assert sum(single.streams for single in one.inputs) == one.streams
        inside = {s for s in operators if s & one.streams == s}
        for single in one.inputs:
            assert partitionable(single, keys) != one.key
            inside -= {s for s in operators if s & single.streams == s}
        for streams in inside - {one.streams}:
            assert partitionable(operators[streams][0], keys) == one.key
        taken |= inside
        if one.above is not None:
            (above,) = (c for c in found if c.streams == one.above)
            assert order[one.above] < order[one.streams]
            assert one.streams in {single.streams for single in above.inputs}
    for streams, (operator, right) in operators.items():
        if streams not in taken and partitionable(operator, keys) is not None:
            assert right


def walked(
    operator: Operator, *, right: bool = False
) -> Iterator[tuple[Mask, tuple[Operator, bool]]]:
    if operator.inputs:
        yield operator.streams, (operator, right)
    for one in operator.inputs:
        is_right = one is operator.inputs[-1] and one.host == operator.host
        yield from walked(one, right=is_right)


def grown(rng: Random, left: list[Operator]) -> Operator:
    """Return a random operator tree over streams, regardless of its cost."""
    while len(left) > 1:
        inputs = rng.sample(left, rng.randint(2, min(4, len(left))))
        left = [one for one in left if one not in inputs]
        left.append(joined(rng.choice(inputs).host, inputs))
    return left[0]


def drawn_keys(rng: Random, streams: int) -> list[Mask]:
    count = rng.randint(1, 4)
    keys = [0] * count
    for stream in range(streams):
        for number in rng.sample(range(count), rng.randint(1, min(2, count))):
            keys[number] |= 1 << stream
    return keys
