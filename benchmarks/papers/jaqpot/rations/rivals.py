"""JAQPOT's rival policies, adapted from binary plans to the runtime's probe trees.

**Half-way joins.** An edge of a probe tree corresponds to a half-way join: tuples of its head probe
the store of its target. In a binary plan one half-way join serves all paths through it; in the
runtime every start has separate edges, and queries with equal prefixes of probe orders share edges.

**Joins.** Edges that lead to the same sub-join are the halves of one join. A join of a binary plan
has two halves; a sub-join of n members has one half for each start that visits these members first.

**Resources** are CPU seconds instead of probes, since probes cost differently here. The cost of an
edge is that of its step and of the results that arrive on it, as in the service's forest. Its
productivity is the number of tuples that it makes per CPU second; with a price of one per probe
this is the paper's ``ρ_h``. ``σ`` is the measured share of stored tuples that match a probing
tuple; the ``σ`` of a join is the mean over its halves.

**Allowances** are computed as in :mod:`benchmarks.papers.jaqpot.printed.rivals`. Within a join
EBestHJP and SBestHJP give the most productive half what it can use, then the next one.

**Limits.** In the paper each hop probes with any of the tuples that reach it, up to its allowance.
Here a tuple takes an edge if the rank of its starting tuple is below the edge's limit. A limit is
the product of the shares of the hops so far, so limits fall along a path. In expectation each hop
gets as many tuples as with independent samples of these shares, and tuples that one hop makes and
the next does not process are lost as in the paper.
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
    """An edge of a probe tree as a half-way join.

    Attributes:
        edge: name of the edge. ``parent``: name of the edge before it; None: arriving tuples probe.
        join: the sub-join that its tuples are results of. ``members``: number of the sub-join's
            members.
        cost: CPU seconds of the edge and its results if all tuples take the edge. ``made``: number
            of tuples on the edge in this case.
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
        """Tuples made per CPU second; infinite if the edge costs nothing."""
        return self.made / self.cost if self.cost > 0 else math.inf


def half_ways(ruleset: Ruleset, period: Interim) -> tuple[HalfWay, ...]:
    """Return all edges, parents first, with costs per second of ``period``."""
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
    """Return, for each edge, the share of its starting tuples that take it.

    Args:
        halves: the edges, parents first.
        mu: CPU seconds to divide, in the unit of the edges' costs.

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
    """Return the CPU seconds that the edges take under these shares."""
    return math.fsum(half.cost * shares[half.edge] for half in halves)


def limits(
    ruleset: Ruleset, goals: Sequence[RationedGoal], shares: Mapping[Edge, float]
) -> RationLimits:
    """Return the limits of the ruleset's edges on the ranks of starting tuples.

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
    # A sub-join's halves process the tuples of smaller sub-joins, so these come first.
    for join, halves in sorted(joins.items(), key=lambda item: item[1][0].members):
        left = allowances[join]
        for half in sorted(halves, key=lambda half: -half.productivity):
            share = found[half.edge] = _bought(half, left, found)
            left = max(left - share * half.cost, 0.0)
    return found


def _bought(half: HalfWay, seconds: float, known: Mapping[Edge, float]) -> float:
    """Return the share of the start's tuples that reach the edge and that ``seconds``
    suffice for.
    """
    reaching = 1.0 if half.parent is None else known[half.parent]
    return min(reaching, seconds / half.cost) if half.cost > 0 else reaching


def _in_ratio(mu: float, weights: Mapping[str, float]) -> dict[str, float]:
    """Divide ``mu`` in proportion to the finite ``weights`` (an edge that costs nothing needs
    nothing); equally if all are 0.
    """
    finite = {name: 0.0 if math.isinf(weight) else weight for name, weight in weights.items()}
    total = math.fsum(finite.values())
    if total == 0:
        return dict.fromkeys(weights, mu / len(weights))
    return {name: mu * weight / total for name, weight in finite.items()}
