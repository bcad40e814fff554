"""The paper's rival policies, adapted from binary plans to the runtime's probe trees.

**Half-way joins.** An edge of a probe tree is a half-way join: tuples of its head probe the store
of its target. In a binary plan one half-way join serves all paths through it; here every start has
its own edges, and queries share the edges of equal beginnings of their trees.

**Joins.** Edges that lead to the same sub-join are the halves of one join. A binary plan's join has
two halves; a sub-join of n members has one for each start that visits these members first.

**Resources** are CPU seconds instead of probes, since probes cost differently here. An edge costs
its step and the results that arrive on it, as the service's forest has them. Productivity is the
tuples that an edge makes per CPU second; with a price of one per probe it is the paper's ``ρ_h``.
``σ`` is the measured share of stored tuples that have a probing tuple's key, and a join's is the
mean of its halves'.

**Allowances** are computed as in :mod:`benchmarks.papers.jaqpot.printed.rivals`. Within a join
EBestHJP and SBestHJP give the most productive half what it can use, then the next one.

**Limits.** In the paper each hop probes with as many of the tuples that reach it as its allowance
permits, whichever they are. Here a tuple uses an edge if its start's rank is below the edge's
limit. A limit is the product of the shares of the hops so far, so limits fall along a path. In
expectation each hop gets as many tuples as with independent samples of these shares, and tuples
that one hop makes and the next does not process are lost as in the paper.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch_contract.plans.rations import Ranking, RationedGoal
from anabranch_contract.plans.ruleset import Edge, Ruleset
from anabranch_contract.plans.steps import SubJoinStep, steps_of
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_runtime.index.ranks import limit
from anabranch_runtime.rations.limits import RationLimits
from anabranch_service.planning.rations import flows
from benchmarks.papers.jaqpot.printed.grepp import check_resources
from benchmarks.papers.jaqpot.printed.rivals import Rival


@dataclass(frozen=True, slots=True)
class HalfWay:
    """An edge of a probe tree.

    Attributes:
        edge: its name. ``parent``: of the edge before it; None: arrivals probe.
        join: the sub-join that it leads to, and its number of ``members``.
        cost: CPU seconds if all tuples take it, of its results as well. ``made``: tuples then.
        selectivity: ``σ`` of the probed store.
    """

    edge: Edge
    parent: Edge | None
    join: str
    members: int
    cost: float
    made: float
    selectivity: float

    @property
    def productivity(self) -> float:
        """Tuples per CPU second; infinite where they cost nothing."""
        return self.made / self.cost if self.cost > 0 else math.inf


def half_ways(ruleset: Ruleset, period: Interim) -> tuple[HalfWay, ...]:
    """All edges, parents first, with the costs of ``period``, per second of it."""
    found, steps = flows(ruleset, [period]), steps_of(ruleset)
    counts: dict[SubJoinStep, EdgeStatistics] = {}
    for one in period.steps:
        counts[one.step.whole] = counts.get(one.step.whole, EdgeStatistics()) + one.counts
    rows = period.results.rows
    each = period.results.seconds / rows if rows else 0.0
    results: dict[Edge, int] = defaultdict(int)
    for output in ruleset.output_rules:
        results[output.edge] += 1
    made = {rule.out for rule in ruleset.paths}
    halves = []
    for rule in ruleset.paths:
        joined, head, target, _ = steps[rule.out]
        measured, flow = counts.get(steps[rule.out]), found[rule.out]
        pairs = 0 if measured is None else measured.pairs
        halves.append(
            HalfWay(
                rule.out,
                rule.edge if rule.edge in made else None,
                str(joined),
                len(head) + len(target),
                flow.seconds + results[rule.out] * each * flow.tuples,
                flow.tuples,
                0.0 if measured is None or not pairs else measured.hits / pairs,
            )
        )
    return tuple(halves)


def rival_shares(halves: Sequence[HalfWay], mu: float, rival: Rival) -> dict[Edge, float]:
    """Edge -> the share of its start's tuples that go over it.

    Args:
        halves: parents first.
        mu: CPU seconds, in the unit of their costs.

    Raises:
        PlannerError: ``mu`` is negative or no number (``bad-resources``).
    """
    check_resources(mu)
    if rival is Rival.EQUAL_HJ:
        return _pushed(halves, {half.edge: mu / len(halves) for half in halves})
    if rival is Rival.GLOBAL_HJPR:
        return _pushed(halves, _in_ratio(mu, {half.edge: half.productivity for half in halves}))
    joins: dict[str, list[HalfWay]] = defaultdict(list)
    for half in halves:
        joins[half.join].append(half)
    weights = {
        join: 1.0
        if rival is Rival.E_BEST_HJP
        else math.fsum(half.selectivity for half in of) / len(of)
        for join, of in joins.items()
    }
    return _best_halves(joins, _in_ratio(mu, weights))


def used(halves: Sequence[HalfWay], shares: Mapping[Edge, float]) -> float:
    """CPU seconds that the edges take with these shares."""
    return math.fsum(half.cost * shares[half.edge] for half in halves)


def limits(
    ruleset: Ruleset, goals: Sequence[RationedGoal], shares: Mapping[Edge, float]
) -> RationLimits:
    """The limits of the ruleset's edges; tuples are ranked as goals with their label are.

    Args:
        goals: goals with the same label rank alike.
    """
    ranking: dict[str, Ranking] = {str(goal.start): goal.ranking for goal in goals}
    found = {
        rule.out: frozenset({(ranking[str(rule.start)], limit(shares[rule.out]))})
        for rule in ruleset.paths
        if shares[rule.out] < 1
    }
    return RationLimits(found, {})


def _pushed(halves: Sequence[HalfWay], allowances: Mapping[str, float]) -> dict[Edge, float]:
    found: dict[Edge, float] = {}
    for half in halves:
        found[half.edge] = _bought(half, allowances[half.edge], found)
    return found


def _best_halves(
    joins: Mapping[str, Sequence[HalfWay]], allowances: Mapping[str, float]
) -> dict[Edge, float]:
    found: dict[Edge, float] = {}
    # The halves of a sub-join take the tuples of smaller sub-joins.
    for join, halves in sorted(joins.items(), key=lambda item: item[1][0].members):
        left = allowances[join]
        for half in sorted(halves, key=lambda half: -half.productivity):
            share = found[half.edge] = _bought(half, left, found)
            left = max(left - share * half.cost, 0.0)
    return found


def _bought(half: HalfWay, seconds: float, known: Mapping[Edge, float]) -> float:
    """The share of the start's tuples that reach the edge and for which ``seconds`` suffice."""
    reaching = 1.0 if half.parent is None else known[half.parent]
    return min(reaching, seconds / half.cost) if half.cost > 0 else reaching


def _in_ratio(mu: float, weights: Mapping[str, float]) -> dict[str, float]:
    """``mu`` in the ratio of finite ``weights``; what costs nothing needs nothing. Equally where
    all are 0.
    """
    finite = {name: 0.0 if math.isinf(weight) else weight for name, weight in weights.items()}
    total = math.fsum(finite.values())
    if total == 0:
        return dict.fromkeys(weights, mu / len(weights))
    return {name: mu * weight / total for name, weight in finite.items()}
