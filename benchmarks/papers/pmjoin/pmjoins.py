"""Placed plans some of whose joins are PMJoins: each group of values has a plan of its own."""

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

#: From the rates of a PMJoin's inputs and their hosts to its groups.
MakeGroups = Callable[[RatesByValue, Sequence[int]], Sequence[Group]]


class Selection(StrEnum):
    """The ways to select among the PMJoins that a plan could have."""

    INPUT_RATE = "input-rate"
    SAVING = "saving"


@dataclass(frozen=True, slots=True)
class PMJoin:
    """A join by groups of values.

    Attributes:
        candidate: the joined inputs and the key.
        groups: each with a plan over the candidate's inputs, by their positions.
        brings: tuples per second that each group's plan brings.
        saved: tuples per second that the plan sends less with this as its only PMJoin.
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
    """All PMJoins that ``plan`` could have, each before those below it, with their groups.

    Args:
        shares: per key: stream that has it -> the part of its tuples by value.
        groups: makes the groups of one.
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
    """The plan with the ``possible`` PMJoins that ``selection`` takes."""
    candidates = [one.candidate for one in possible]
    if selection is Selection.INPUT_RATE:
        chosen = by_input_rate(candidates, rates)
    else:
        chosen = by_saving(candidates, {one.candidate.streams: one.saved for one in possible})
    return with_joins(plan, rates, [one for one in possible if one.candidate in chosen])


def with_joins(plan: Operator, rates: Rates, joins: Sequence[PMJoin]) -> PartitionedPlan:
    """The plan with PMJoins that can be selected together."""
    by_streams = {one.candidate.streams: one for one in joins}
    return PartitionedPlan(plan, tuple(joins), _sent(plan, rates, by_streams))


def _sent(operator: Operator, rates: Rates, joins: Mapping[Mask, PMJoin]) -> float:
    """Tuples per second that are sent within and below an operator."""
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
    """Traffic to ``host`` from groups that end on other hosts."""
    return sum(rate for group, rate in zip(groups, brings, strict=True) if group.plan.host != host)


def _with_parents(
    operator: Operator, parent: Operator | None = None
) -> Iterator[tuple[Mask, tuple[Operator, Operator | None]]]:
    yield operator.streams, (operator, parent)
    for one in operator.inputs:
        yield from _with_parents(one, operator)


def label(found: PartitionedPlan, names: Sequence[str], hosts: Sequence[str]) -> str:
    """The plan as text; a PMJoin is at ``*``, as each of its groups has a host of its own."""
    by_streams = {one.candidate.streams: one for one in found.joins}
    return _label(found.plan, by_streams, names, hosts)


def input_labels(
    found: PartitionedPlan, join: PMJoin, names: Sequence[str], hosts: Sequence[str]
) -> list[str]:
    """The inputs of one of the plan's PMJoins as text, which its groups' plans are over."""
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
