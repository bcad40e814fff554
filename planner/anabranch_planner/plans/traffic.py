"""Expected traffic between hosts under the rules of an epoch, per edge.

Prices depend on sub-joins alone (:mod:`anabranch_planner.cost.exchange`). The rules also determine
the copy that each step probes, and so the host of its tuples: after a probe, a tuple is on the host
of the matching row's partition, or on one of the hosts over which a hot value's rows are spread.
The rules further determine the columns sent (:mod:`anabranch_contract.plans.needs`).

Ignored: load shedding; filters of a query before the last step; steps that replace an incomplete
intermediate result; backfills; and the spreading of rows on insert, which does not change how many
rows cross.
All stored rows of a hot value are taken to be spread over the current number of hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from anabranch_contract.plans.needs import Needed, Needs
from anabranch_contract.plans.routes import Routes
from anabranch_contract.plans.ruleset import Edge, ProbeRule, Ruleset, StoreSpec
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_planner.cost.exchange import ARRIVAL, ExchangeModel
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.steps import PlanError, SubJoins

#: Attribute whose partition is on the tuple's host; True: there is one host; None: any host.
_Place = AttrRef | bool | None


class StepTraffic(NamedTuple):
    """Traffic of a probe step to other hosts, per unit of time.

    Attributes:
        probes: number of probing tuples.
        tuples: number of copies sent to other hosts, several per broadcast tuple.
        bytes: total size of these copies.
    """

    probes: float
    tuples: float
    bytes: float


def traffic(
    ruleset: Ruleset, queries: Sequence[JoinQuery], model: CostModel, exchange: ExchangeModel
) -> dict[Edge, StepTraffic]:
    """Edge -> traffic of the probe step that produces its tuples.

    Args:
        queries: the queries of ``ruleset``.
        model: estimates the probing tuples.
        exchange: the hosts, and the widths of columns.

    Raises:
        PlanError: the ruleset does not answer ``queries``.
    """
    routes, subs = Routes(ruleset), SubJoins(queries)
    needs, paths = Needs(routes), ruleset.paths
    takers = ruleset.takers
    users = users_of(paths, routes, subs)
    heads: dict[Edge, frozenset[Label]] = {}
    places: dict[Edge, _Place] = {}
    #: Hot values of the store probed last, which determines a tuple's host: hash -> hosts.
    hot: dict[Edge, dict[int, int]] = {}
    found = {}
    for rule in paths:
        query, spec = users[rule.out], routes.specs[rule.store]
        head = heads.get(rule.edge, frozenset({rule.start}))
        heads[rule.out] = head | frozenset(rule.members)
        place = places.get(rule.edge)
        away = exchange.elsewhere if rule.edge in places else exchange.arriving
        copies, places[rule.out] = _hop(rule, spec, query, place, exchange, away)
        probes = model.probe_of(subs.of(query, head), rule.start, takers[rule.out])
        tuples = copies * probes
        hot[rule.out] = {one.hash: one.hosts for one in spec.hot}
        known = known_attribute(rule, spec)
        if known is not None and (spec.hot or hot.get(rule.edge)):
            stays = isinstance(place, AttrRef) and are_equal(query, place, known)
            more = _more_copies(hot[rule.out], hot.get(rule.edge) if stays else None, exchange)
            hashes = np.array(sorted(more), np.uint64)
            of_hot = model.probe_with(
                subs.of(query, head), rule.start, takers[rule.out], known, hashes
            )
            tuples += float(of_hot @ np.array([more[value] for value in sorted(more)]))
        width = width_of(routes, needs.probe(rule), rule.start, head, exchange)
        found[rule.out] = StepTraffic(probes, tuples, tuples * width)
    return found


def users_of(paths: Sequence[ProbeRule], routes: Routes, subs: SubJoins) -> dict[Edge, JoinQuery]:
    """Edge -> a query that contains the sub-join of the partial results sent over it.

    Raises:
        PlanError: there is no such query.
    """
    found: dict[Edge, JoinQuery] = {}
    for rule in reversed(paths):
        query = found.get(rule.out)
        for output in routes.outputs.get(rule.out, ()):
            query = query or subs.query(output.query)
        for spec in routes.inserts.get(rule.out, ()):
            query = query or subs.containing(frozenset(spec.members), spec.mir)
        if query is None:
            raise PlanError("unknown-goal", f"no query has the partial results on edge {rule.out}")
        found[rule.edge] = found[rule.out] = query
    return found


def _hop(
    rule: ProbeRule,
    spec: StoreSpec,
    query: JoinQuery,
    place: _Place,
    exchange: ExchangeModel,
    away: float,
) -> tuple[float, _Place]:
    """Expected number of copies of a tuple sent to other hosts, and the place of its matches.

    Args:
        away: probability that a tuple and a partition unrelated to ``place`` are on two hosts.
    """
    if spec.partitions == 1:
        return (0.0 if place is True else exchange.elsewhere), True
    if spec.partition is None:
        return float(exchange.hosts - 1), None
    attribute, _ = spec.partition
    rename = dict(zip(spec.members, rule.members, strict=True))
    after = AttrRef(rename[attribute.label], attribute.attribute)
    known = known_attribute(rule, spec)
    if known is None:
        return float(exchange.hosts - 1), after
    if isinstance(place, AttrRef) and are_equal(query, place, known):
        return 0.0, after
    return away, after


def _more_copies(
    hot: Mapping[int, int], before: Mapping[int, int] | None, exchange: ExchangeModel
) -> dict[int, float]:
    """Hash of a hot value -> number of additional hosts to which a tuple with the value is sent.

    Args:
        hot: hash -> number of hosts over which the probed store spreads the value's rows.
        before: the same for the previously probed store, if its key is equal; None: any host.
    """
    if before is None:
        return {value: (ways - 1) * exchange.elsewhere for value, ways in hot.items()}
    found = {}
    for value in {*hot, *before}:
        # Two stores spread a value over nested sets of hosts: one set is part of the other.
        ways, there = hot.get(value, 1), before.get(value, 1)
        found[value] = ways - min(1.0, ways / there)
    return found


def known_attribute(rule: ProbeRule, spec: StoreSpec) -> AttrRef | None:
    """The probing tuple's attribute equal to the store's partition attribute, or None."""
    return next((k.probe for k in rule.key if (k.build, k.type) == spec.partition), None)


def are_equal(query: JoinQuery, one: AttrRef, other: AttrRef) -> bool:
    """Whether two attributes are equal in every partial result sent for ``query``."""
    return one == other or any({one, other} <= set(c.members) for c in query.classes)


def width_of(
    routes: Routes, needed: Needed, start: Label, head: frozenset[Label], exchange: ExchangeModel
) -> float:
    """Bytes of a partial result over ``head``: ``needed`` columns, event times, arrival numbers."""
    read = needed.columns_of(start, routes.stream)
    times = sum(1 for label in needed.taus & head if routes.has_event_time(label))
    arrivals = len((needed.sigmas | {start}) & head)
    relation = routes.relation_of
    values = sum(exchange.column(relation[x], column) for x, column in read if x in head)
    return values + ARRIVAL * (times + arrivals)
