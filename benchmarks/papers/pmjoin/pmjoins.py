"""Placed plans in which some joins are PMJoins: each group of key values has a separate plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.papers.pmjoin.find_partition import (
    Candidate,
    by_input_rate,
    by_saving,
    find_partition,
)
from benchmarks.papers.pmjoin.keyed_rates import by_input, key_masks
from benchmarks.papers.pmjoin.operators import Operator, cost
from benchmarks.papers.pmjoin.partitioners import Group
from benchmarks.papers.pmjoin.rates import Floats, Mask, Rates, RatesByValue

#: Function from the rates of a PMJoin's inputs and their hosts to its groups.
MakeGroups = Callable[[RatesByValue, Sequence[int]], Sequence[Group]]


class Selection(StrEnum):
    """Ways to select among the possible PMJoins of a plan."""

    INPUT_RATE = "input-rate"
    SAVING = "saving"


@dataclass(frozen=True, slots=True)
class PMJoin:
    """A join that is executed by groups of values, with a plan for each group.

    Attributes:
        candidate: the joined inputs and the key.
        groups: groups with plans, which refer to the candidate's inputs by position.
        brings: results per second of each group.
        saved: tuples per second by which the plan's traffic falls if this is its only PMJoin.
    """

    candidate: Candidate
    groups: tuple[Group, ...]
    brings: tuple[float, ...]
    saved: float


@dataclass(frozen=True, slots=True)
class PartitionedPlan:
    """A plan without partitions, and the PMJoins that replace some of its joins.

    Attributes:
        joins: the PMJoins; none is an input of another.
        cost: tuples per second between hosts.
    """

    plan: Operator
    joins: tuple[PMJoin, ...]
    cost: float


def pmjoins(
    plan: Operator,
    rates: Rates,
    shares: Sequence[Mapping[int, Floats]],
    groups: MakeGroups,
) -> tuple[PMJoin, ...]:
    """Return all possible PMJoins of ``plan`` with their groups, each before those below it.

    Args:
        shares: for each key: stream that has it -> the shares of its tuples by value.
        groups: function that makes the groups of a PMJoin.
    """
    above = dict(_with_parents(plan))
    found = []
    for candidate in find_partition(plan, key_masks(shares)):
        inputs = by_input(rates, shares[candidate.key], [one.streams for one in candidate.inputs])
        made = tuple(groups(inputs, [one.host for one in candidate.inputs]))
        every = (1 << len(candidate.inputs)) - 1
        brings = tuple(inputs.of(group.values).rate(every) for group in made)
        operator, parent = above[candidate.streams]
        before = cost(operator, rates) - sum(cost(one, rates) for one in candidate.inputs)
        after = sum(group.cost for group in made)
        if parent is not None:
            if operator.host != parent.host:
                before += rates.rate(operator.streams)
            after += _delivered(made, brings, parent.host)
        found.append(PMJoin(candidate, made, brings, before - after))
    return tuple(found)


def selected(
    plan: Operator, rates: Rates, possible: Sequence[PMJoin], selection: Selection
) -> PartitionedPlan:
    """Return the plan with the ``possible`` PMJoins that ``selection`` takes."""
    candidates = [one.candidate for one in possible]
    if selection is Selection.INPUT_RATE:
        chosen = by_input_rate(candidates, rates)
    else:
        chosen = by_saving(candidates, {one.candidate.streams: one.saved for one in possible})
    return with_joins(plan, rates, [one for one in possible if one.candidate in chosen])


def with_joins(plan: Operator, rates: Rates, joins: Sequence[PMJoin]) -> PartitionedPlan:
    """Return the plan with the given PMJoins, which can be selected together."""
    by_streams = {one.candidate.streams: one for one in joins}
    return PartitionedPlan(plan, tuple(joins), _sent(plan, rates, by_streams))


def _sent(operator: Operator, rates: Rates, joins: Mapping[Mask, PMJoin]) -> float:
    """Return the tuples per second that an operator and all operators below it send."""
    join = joins.get(operator.streams)
    if join is not None:
        below = sum(_sent(one, rates, joins) for one in join.candidate.inputs)
        return below + sum(group.cost for group in join.groups)
    total = 0.0
    for one in operator.inputs:
        total += _sent(one, rates, joins)
        join = joins.get(one.streams)
        if join is not None:
            total += _delivered(join.groups, join.brings, operator.host)
        elif one.host != operator.host:
            total += rates.rate(one.streams)
    return total


def _delivered(groups: Sequence[Group], brings: Sequence[float], host: int) -> float:
    """Return the traffic to ``host`` from groups whose results are on other hosts."""
    return sum(rate for group, rate in zip(groups, brings, strict=True) if group.plan.host != host)


def _with_parents(
    operator: Operator, parent: Operator | None = None
) -> Iterator[tuple[Mask, tuple[Operator, Operator | None]]]:
    yield operator.streams, (operator, parent)
    for one in operator.inputs:
        yield from _with_parents(one, operator)


def label(found: PartitionedPlan, names: Sequence[str], hosts: Sequence[str]) -> str:
    """Return the plan as text; a PMJoin is at ``*``, since each group has a separate host."""
    by_streams = {one.candidate.streams: one for one in found.joins}
    return _label(found.plan, by_streams, names, hosts)


def input_labels(
    found: PartitionedPlan, join: PMJoin, names: Sequence[str], hosts: Sequence[str]
) -> list[str]:
    """Return the inputs of a PMJoin as text, which occur in the plans of its groups."""
    by_streams = {one.candidate.streams: one for one in found.joins}
    return [_label(one, by_streams, names, hosts) for one in join.candidate.inputs]


def _label(
    operator: Operator,
    joins: Mapping[Mask, PMJoin],
    names: Sequence[str],
    hosts: Sequence[str],
) -> str:
    if not operator.inputs:
        return operator.label(names, hosts)
    join = joins.get(operator.streams)
    inputs = operator.inputs if join is None else join.candidate.inputs
    inside = " ⋈ ".join(_label(one, joins, names, hosts) for one in inputs)
    return f"({inside})@{'*' if join else hosts[operator.host]}"
