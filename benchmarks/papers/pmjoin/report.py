"""Placements of the queries of a problem file, as a JSON document and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.joins import JoinQuery, KeyClass, Label
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.documents.fields import refused
from benchmarks.papers.pmjoin.exact import exact
from benchmarks.papers.pmjoin.hosted import Hosted
from benchmarks.papers.pmjoin.operators import Operator, cost
from benchmarks.papers.pmjoin.partitioners import Group, Partitioner, grouped
from benchmarks.papers.pmjoin.pmjoins import (
    Selection,
    input_labels,
    label,
    pmjoins,
    selected,
)
from benchmarks.papers.pmjoin.rates import Mask, RatesByValue
from benchmarks.papers.pmjoin.stream_join_opt import simple, stream_join_opt
from benchmarks.papers.pmjoin.translate import (
    QueryRates,
    common_key,
    key_shares,
    sites_of,
    value_rates,
)

#: Maximum number of a group's values that are named in text.
MOST_NAMED = 8


class Algorithm(StrEnum):
    """Algorithms for the placement of joins."""

    STREAMJOINOPT = "streamjoinopt"
    EXACT = "exact"
    SIMPLE = "simple"


PLACE = {
    Algorithm.STREAMJOINOPT: stream_join_opt,
    Algorithm.EXACT: exact,
    Algorithm.SIMPLE: simple,
}


#: Placement algorithm -> its selection of PMJoins.
SELECT = {
    Algorithm.STREAMJOINOPT: Selection.INPUT_RATE,
    Algorithm.EXACT: Selection.SAVING,
    Algorithm.SIMPLE: Selection.INPUT_RATE,
}


@dataclass(frozen=True, slots=True)
class GroupReport:
    """Values of a key with the same placement.

    Attributes:
        values: number of values; 0: all values, which are not distinguished. ``named``: values
            that the problem names.
        plan: the plan as text.
        cost: tuples between hosts per unit of time.
    """

    values: int
    named: tuple[str, ...]
    plan: str
    cost: float


@dataclass(frozen=True, slots=True)
class PartitionedReport:
    """A join that is executed by groups of values (a PMJoin).

    Attributes:
        inputs: inputs of the join as text: streams, or results of other joins.
        attributes: attributes of the key, whose values are grouped; one per stream that has the
            key.
        groups: the groups, with plans over the inputs.
    """

    inputs: tuple[str, ...]
    attributes: tuple[str, ...]
    groups: tuple[GroupReport, ...]


@dataclass(frozen=True, slots=True)
class QueryReport:
    """The placement of one query.

    Attributes:
        sites: number of the host of each member.
        groups: groups of values of the key that joins all members; a single group if there is no
            such key.
        partitioned: joins that are executed by groups of values.
    """

    query: JoinQuery
    sites: tuple[int, ...]
    groups: tuple[GroupReport, ...]
    partitioned: tuple[PartitionedReport, ...]

    @property
    def cost(self) -> float:
        """Tuples between hosts per unit of time."""
        return sum(group.cost for group in self.groups)


@dataclass(frozen=True, slots=True)
class Placed:
    """The placements of a problem's queries, by id.

    Attributes:
        hosts: names of the hosts.
        assumed: assumptions made for missing statistics.
    """

    algorithm: Algorithm
    partitioner: Partitioner
    partitions: int
    hosts: tuple[str, ...]
    queries: tuple[QueryReport, ...]
    assumed: tuple[str, ...]

    @property
    def cost(self) -> float:
        """Tuples between hosts per unit of time, of all queries."""
        return sum(query.cost for query in self.queries)


def place_queries(
    given: Hosted,
    algorithm: Algorithm,
    partitioner: Partitioner,
    partitions: int,
    hosts: int,
) -> Placed:
    """Place the joins of each query, independently of the others.

    Raises:
        PlannerError: a number is out of range, or a query can't be placed in this way; ``field``
            names it.
    """
    if partitions < 1:
        raise refused(f"{partitions} partitions are none", "partitions", "use 1 or more")
    names = host_names(given, hosts)
    found, assumed = [], set(given.problem.assumed)
    for query in sorted(given.problem.queries, key=lambda query: query.id):
        model = CostModel(given.problem.statistics, bounds=LoosestBounds((query,)))
        sites = tuple(sites_of(query.labels, _stated(given, query), names))
        placing = _Placing(given, query, sites, names, algorithm, partitioner, partitions)
        try:
            found.append(placing.report(QueryRates(query, model)))
        except PlannerError as cause:
            raise cause.moved(field=f"queries.{query.id}") from cause
        assumed.update(model.assumed)
    return Placed(algorithm, partitioner, partitions, names, tuple(found), tuple(sorted(assumed)))


@dataclass(frozen=True, slots=True)
class _Placing:
    """Input of the placement of one query."""

    given: Hosted
    query: JoinQuery
    sites: tuple[int, ...]
    hosts: tuple[str, ...]
    algorithm: Algorithm
    partitioner: Partitioner
    partitions: int

    def report(self, rates: QueryRates) -> QueryReport:
        """Place the query: by values of the key that joins all members, if there is one; else by
        values of the keys of some joins.
        """
        key = common_key(self.query)
        named = {} if key is None else _named(self.given, self.query, key)
        if key is not None and (self.partitions > 1 or named):
            return self._by_one_key(key, named)
        plan = PLACE[self.algorithm](rates, self.sites)
        if self.partitions > 1:
            return self._by_several_keys(rates, plan)
        text = plan.label(self._aliases, self.hosts)
        groups = (GroupReport(0, (), text, cost(plan, rates)),)
        return QueryReport(self.query, self.sites, groups, ())

    @property
    def _aliases(self) -> tuple[str, ...]:
        return tuple(member.alias for member in self.query.members)

    def _by_one_key(self, key: KeyClass, named: Mapping[Label, Mapping[str, float]]) -> QueryReport:
        statistics = self.given.problem.statistics
        texts, rates = value_rates(self.query, key, named, statistics, statistics.history)
        made = grouped(rates, self.sites, self.partitioner, self.partitions, PLACE[self.algorithm])
        aliases = self._aliases
        groups = self._groups(made, texts, aliases)
        joins = (PartitionedReport(aliases, _attributes(self.query, key), groups),)
        return QueryReport(self.query, self.sites, groups, joins if self.partitions > 1 else ())

    def _by_several_keys(self, rates: QueryRates, plan: Operator) -> QueryReport:
        """Place the query with PMJoins, for operators of ``plan`` with predicates on one key only.

        Raises:
            PlannerError: there is no such operator, or a key has too many values.
        """
        query, place = self.query, PLACE[self.algorithm]
        keys = [
            key_shares(query, key, _named(self.given, query, key), self.given.problem.statistics)
            for key in query.classes
        ]

        def groups(inputs: RatesByValue, sites: Sequence[int]) -> Sequence[Group]:
            return grouped(inputs, sites, self.partitioner, self.partitions, place)

        possible = pmjoins(plan, rates, [shares for _, shares in keys], groups)
        if not possible:
            raise PlannerError(
                "no-partition",
                f"no key joins all of {', '.join(query.labels)}, and each join of the plan"
                f" {plan.label(self._aliases, self.hosts)} is by several keys, or is what other"
                " inputs are sent to: none can be partitioned",
                remedy="place it with one partition, or by another algorithm",
            )
        chosen = selected(plan, rates, possible, SELECT[self.algorithm])
        joins = []
        for join in chosen.joins:
            inputs = tuple(input_labels(chosen, join, self._aliases, self.hosts))
            number = join.candidate.key
            made = self._groups(join.groups, keys[number][0], inputs)
            within = join.candidate.streams
            attributes = _attributes(query, query.classes[number], within)
            joins.append(PartitionedReport(inputs, attributes, made))
        whole = GroupReport(0, (), label(chosen, self._aliases, self.hosts), chosen.cost)
        return QueryReport(query, self.sites, (whole,), tuple(joins))

    def _groups(
        self, groups: Sequence[Group], texts: Sequence[str], inputs: Sequence[str]
    ) -> tuple[GroupReport, ...]:
        return tuple(
            GroupReport(
                len(group.values),
                tuple(texts[v] for v in group.values if v < len(texts)),
                group.plan.label(inputs, self.hosts),
                group.cost,
            )
            for group in groups
        )


def _attributes(query: JoinQuery, key: KeyClass, within: Mask | None = None) -> tuple[str, ...]:
    """Return the members of a key within the set ``within``, as ``alias.attribute``, in order."""
    return tuple(
        f"{member.alias}.{one.attribute}"
        for number, member in enumerate(query.members)
        for one in key.members
        if one.label == member.label and (within is None or within >> number & 1)
    )


def _stated(given: Hosted, query: JoinQuery) -> dict[str, str]:
    """Map each label to the host that its stream names."""
    stream_of = {relation.id: str(relation.stream) for relation in query.relations}
    return {
        str(member.label): given.hosts[stream_of[member.relation]]
        for member in query.members
        if stream_of[member.relation] in given.hosts
    }


def host_names(given: Hosted, hosts: int) -> tuple[str, ...]:
    """Return the hosts that the problem names, in order of its streams, and invented names of
    further ones, ``hosts`` in all.

    Raises:
        PlannerError: ``hosts`` is less than the number of named hosts, or some hosts would have no
            stream.
    """
    named = list(dict.fromkeys(given.hosts.values()))
    if hosts < max(len(named), 1):
        raise refused(
            f"{hosts} hosts are fewer than the {len(named)} that streams name"
            if named
            else f"{hosts} hosts are none",
            "hosts",
            f"use {max(len(named), 1)} or more",
        )
    dealt = sum(1 for stream in given.problem.streams if stream.name not in given.hosts)
    if hosts > len(named) + dealt:
        raise refused(
            f"of {hosts} hosts {hosts - len(named) - dealt} would have no stream",
            "hosts",
            f"use {len(named) + dealt} or fewer",
        )
    further = (f"n{number}" for number in range(hosts + len(named)))
    free = [name for name in further if name not in named]
    return (*named, *free[: hosts - len(named)])


def _named(given: Hosted, query: JoinQuery, key: KeyClass) -> dict[Label, dict[str, float]]:
    """Map labels to the rates of key values that the problem states."""
    attribute = {member.label: member.attribute for member in key.members}
    stream_of = {relation.id: str(relation.stream) for relation in query.relations}
    named = {}
    for member in query.members:
        if member.label in attribute:
            column = stream_of[member.relation], attribute[member.label]
            if column in given.values:
                named[member.label] = dict(given.values[column])
    return named


def place_document(found: Placed, seconds: float) -> dict[str, Any]:
    """Return the placements as JSON; only ``total_ms`` depends on the machine."""
    return {
        "algorithm": found.algorithm.value,
        "partitioner": found.partitioner.value,
        "partitions": found.partitions,
        "cost": found.cost,
        "hosts": list(found.hosts),
        "queries": {
            str(one.query.id): {
                "cost": one.cost,
                "sites": {
                    member.alias: found.hosts[site]
                    for member, site in zip(one.query.members, one.sites, strict=True)
                },
                "groups": _documents(one.groups),
                "partitioned": [
                    {
                        "inputs": list(join.inputs),
                        "by": list(join.attributes),
                        "groups": _documents(join.groups),
                    }
                    for join in one.partitioned
                ],
            }
            for one in found.queries
        },
        "total_ms": round(seconds * 1000, 3),
        "assumed": list(found.assumed),
    }


def _documents(groups: Sequence[GroupReport]) -> list[dict[str, Any]]:
    return [
        {"values": one.values, "named": list(one.named), "plan": one.plan, "cost": one.cost}
        for one in groups
    ]


def place_text(found: Placed, seconds: float) -> str:
    """Return the placements as text, a block of lines per query; names are never broken."""
    lines = [
        f"algorithm   {found.algorithm.value}",
        f"hosts       {', '.join(found.hosts)}",
        f"cost        {found.cost:.10g} tuples between hosts",
        f"time        {seconds * 1000:.1f} ms",
    ]
    if found.partitions > 1:
        lines.insert(1, f"partitions  {found.partitions} by {found.partitioner.value}")
    for one in found.queries:
        where = ", ".join(
            f"{member.alias} at {found.hosts[site]}"
            for member, site in zip(one.query.members, one.sites, strict=True)
        )
        lines += ["", f"query {one.query.id}  ({where})"]
        lines += [f"  {_line(group)}" for group in one.groups]
        for join in one.partitioned:
            lines.append(f"  partitioned by {' = '.join(join.attributes)}")
            if join.groups != one.groups:
                lines += [f"    {_line(group)}" for group in join.groups]
    if found.assumed:
        lines += ["", "assumed", *(f"  {line}" for line in found.assumed)]
    return "\n".join(lines) + "\n"


def _line(group: GroupReport) -> str:
    return f"{group.plan}  cost {group.cost:.10g}{_values(group)}"


def _values(group: GroupReport) -> str:
    if not group.values:
        return ""
    named = ", ".join(group.named[:MOST_NAMED])
    if len(group.named) > MOST_NAMED:
        named += ", …"
    return f"  {group.values} values{f' ({named})' if named else ''}"
