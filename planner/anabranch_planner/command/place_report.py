"""Placements of the queries of a problem file, one by one: data for ``--json``, and a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from anabranch_contract.errors import PlannerError
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.documents.fields import refused
from anabranch_planner.placement.exact import exact
from anabranch_planner.placement.operators import cost
from anabranch_planner.placement.partitioners import (
    Group,
    Partitioner,
    by_hash,
    by_range,
    by_rate,
    placed,
    placed_by_plan,
)
from anabranch_planner.placement.stream_join_opt import simple, stream_join_opt
from anabranch_planner.placement.translate import (
    QueryRates,
    common_key,
    has_common_key,
    sites_of,
    value_rates,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anabranch_contract.queries.joins import JoinQuery, Label
    from anabranch_planner.command.problem_file import Problem
    from anabranch_planner.placement.operators import Operator
    from anabranch_planner.placement.rates import ValueRates

#: Values of a group that are named in a report.
MOST_NAMED = 8


class Algorithm(StrEnum):
    """The ways to place joins."""

    STREAMJOINOPT = "streamjoinopt"
    EXACT = "exact"
    SIMPLE = "simple"


PLACE = {
    Algorithm.STREAMJOINOPT: stream_join_opt,
    Algorithm.EXACT: exact,
    Algorithm.SIMPLE: simple,
}


@dataclass(frozen=True, slots=True)
class GroupReport:
    """Values of a key that are placed alike.

    Attributes:
        values: how many. ``named``: of these, those that the problem names.
        cost: tuples between hosts per unit of time.
    """

    values: int
    named: tuple[str, ...]
    plan: Operator
    cost: float


@dataclass(frozen=True, slots=True)
class Placed:
    """The placements of a problem's queries, by id.

    Attributes:
        hosts: their names. ``sites``: query -> the host of each of its members.
        assumed: what was assumed for missing statistics.
    """

    algorithm: Algorithm
    partitioner: Partitioner
    partitions: int
    hosts: tuple[str, ...]
    queries: tuple[tuple[JoinQuery, tuple[int, ...], tuple[GroupReport, ...]], ...]
    assumed: tuple[str, ...]

    @property
    def cost(self) -> float:
        """Of all queries."""
        return sum(group.cost for _, _, groups in self.queries for group in groups)


def place_queries(
    problem: Problem,
    algorithm: Algorithm,
    partitioner: Partitioner,
    partitions: int,
    hosts: int,
) -> Placed:
    """Place each query by itself.

    Raises:
        PlannerError: a number is out of range, or a query can't be placed so; ``field`` names it.
    """
    if partitions < 1:
        raise refused(f"{partitions} partitions are none", "partitions", "use 1 or more")
    names = host_names(problem, hosts)
    found, assumed = [], set(problem.assumed)
    for query in sorted(problem.queries, key=lambda query: query.id):
        model = CostModel(problem.statistics, bounds=LoosestBounds((query,)))
        stream_of = {relation.id: str(relation.stream) for relation in query.relations}
        sources = [stream_of[member.relation] for member in query.members]
        stated = {
            str(label): problem.hosts[source]
            for label, source in zip(query.labels, sources, strict=True)
            if source in problem.hosts
        }
        sites = sites_of(query.labels, stated, names)
        try:
            named = _named(problem, query, needed=partitions > 1)
            if partitions == 1 and not named:
                rates = QueryRates(query, model)
                plan = PLACE[algorithm](rates, sites)
                groups: tuple[GroupReport, ...] = (GroupReport(0, (), plan, cost(plan, rates)),)
            else:
                groups = _by_value(problem, query, named, sites, algorithm, partitioner, partitions)
        except PlannerError as cause:
            raise cause.moved(field=f"queries.{query.id}") from cause
        found.append((query, tuple(sites), groups))
        assumed.update(model.assumed)
    return Placed(algorithm, partitioner, partitions, names, tuple(found), tuple(sorted(assumed)))


def host_names(problem: Problem, hosts: int) -> tuple[str, ...]:
    """The hosts that the problem names, in order of its streams, and further ones up to ``hosts``.

    Raises:
        PlannerError: there are fewer than it names, or more than anything could arrive at.
    """
    named = list(dict.fromkeys(problem.hosts.values()))
    if hosts < max(len(named), 1):
        raise refused(
            f"{hosts} hosts are fewer than the {len(named)} that streams name"
            if named
            else f"{hosts} hosts are none",
            "hosts",
            f"use {max(len(named), 1)} or more",
        )
    dealt = sum(1 for stream in problem.streams if stream.name not in problem.hosts)
    if hosts > len(named) + dealt:
        raise refused(
            f"of {hosts} hosts {hosts - len(named) - dealt} would have no stream",
            "hosts",
            f"use {len(named) + dealt} or fewer",
        )
    further = (f"n{number}" for number in range(hosts + len(named)))
    free = [name for name in further if name not in named]
    return (*named, *free[: hosts - len(named)])


def _named(problem: Problem, query: JoinQuery, *, needed: bool) -> dict[Label, dict[str, float]]:
    """What the problem says of the values of the query's common key.

    Raises:
        PlannerError: there is no such key, and it is ``needed``.
    """
    if not needed and not has_common_key(query):
        return {}
    key = {member.label: member.attribute for member in common_key(query).members}
    stream_of = {relation.id: str(relation.stream) for relation in query.relations}
    named = {}
    for member in query.members:
        known = problem.values.get((stream_of[member.relation], key[member.label]))
        if known is not None:
            named[member.label] = dict(known)
    return named


def _by_value(
    problem: Problem,
    query: JoinQuery,
    named: Mapping[Label, Mapping[str, float]],
    sites: Sequence[int],
    algorithm: Algorithm,
    partitioner: Partitioner,
    partitions: int,
) -> tuple[GroupReport, ...]:
    texts, rates = value_rates(query, named, problem.statistics, problem.statistics.history)
    return tuple(
        GroupReport(
            len(group.values),
            tuple(texts[v] for v in group.values if v < len(texts)),
            group.plan,
            group.cost,
        )
        for group in _grouped(rates, sites, partitioner, partitions, algorithm)
    )


def _grouped(
    rates: ValueRates,
    sites: Sequence[int],
    partitioner: Partitioner,
    partitions: int,
    algorithm: Algorithm,
) -> list[Group]:
    place = PLACE[algorithm]
    if partitioner is Partitioner.PLAN:
        return placed_by_plan(rates, sites, partitions, place)
    if partitioner is Partitioner.RATE:
        return placed(rates, sites, by_rate(rates, partitions), place)
    make = by_hash if partitioner is Partitioner.HASH else by_range
    return placed(rates, sites, make(rates.values, partitions), place)


def place_document(found: Placed, seconds: float) -> dict[str, Any]:
    """The JSON document; only ``total_ms`` depends on the machine."""
    return {
        "algorithm": found.algorithm.value,
        "partitioner": found.partitioner.value,
        "partitions": found.partitions,
        "cost": found.cost,
        "hosts": list(found.hosts),
        "queries": {
            str(query.id): {
                "cost": sum(group.cost for group in groups),
                "sites": {
                    member.alias: found.hosts[site]
                    for member, site in zip(query.members, sites, strict=True)
                },
                "groups": [
                    {
                        "values": group.values,
                        "named": list(group.named),
                        "plan": _plan(query, group.plan, found.hosts),
                        "cost": group.cost,
                    }
                    for group in groups
                ],
            }
            for query, sites, groups in found.queries
        },
        "total_ms": round(seconds * 1000, 3),
        "assumed": list(found.assumed),
    }


def place_text(found: Placed, seconds: float) -> str:
    """A block of lines per query; names are never broken."""
    lines = [
        f"algorithm   {found.algorithm.value}",
        f"hosts       {', '.join(found.hosts)}",
        f"cost        {found.cost:.10g} tuples between hosts",
        f"time        {seconds * 1000:.1f} ms",
    ]
    if found.partitions > 1:
        lines.insert(1, f"partitions  {found.partitions} by {found.partitioner.value}")
    for query, sites, groups in found.queries:
        where = ", ".join(
            f"{member.alias} at {found.hosts[site]}"
            for member, site in zip(query.members, sites, strict=True)
        )
        lines += ["", f"query {query.id}  ({where})"]
        for group in groups:
            plan = _plan(query, group.plan, found.hosts)
            lines.append(f"  {plan}  cost {group.cost:.10g}{_values(group)}")
    if found.assumed:
        lines += ["", "assumed", *(f"  {line}" for line in found.assumed)]
    return "\n".join(lines) + "\n"


def _plan(query: JoinQuery, plan: Operator, hosts: Sequence[str]) -> str:
    return plan.label([member.alias for member in query.members], hosts)


def _values(group: GroupReport) -> str:
    if not group.values:
        return ""
    named = ", ".join(group.named[:MOST_NAMED])
    if len(group.named) > MOST_NAMED:
        named += ", …"
    return f"  {group.values} values{f' ({named})' if named else ''}"
