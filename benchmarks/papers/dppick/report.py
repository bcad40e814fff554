"""Probe orders of each query of a problem file, as a JSON document and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.command.problem_file import ProblemFile
from anabranch_planner.cost.candidates import connected_sets
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import LoosestBounds
from benchmarks.papers.dppick.problem import Accounting, Prices
from benchmarks.papers.dppick.search import Ablation, Algorithm, Orders, search_orders
from benchmarks.papers.dppick.translate import operator_of

#: Maximum number of sub-joins that an exact search estimates for one query (12 s); queries of 16
#: relations never have more.
MAX_SETS = 70_000


@dataclass(frozen=True, slots=True)
class Ordered:
    """The probe orders of a problem's queries, by query id.

    Attributes:
        assumed: assumptions made for missing statistics.
    """

    algorithm: Algorithm
    ablation: Ablation | None
    accounting: Accounting
    queries: tuple[tuple[JoinQuery, Orders], ...]
    assumed: tuple[str, ...]

    @property
    def cost(self) -> float:
        """Sum of the costs of all queries."""
        return sum(orders.cost for _, orders in self.queries)


def order_queries(
    problem: ProblemFile,
    algorithm: Algorithm,
    ablation: Ablation | None,
    accounting: Accounting,
    prices: Prices,
) -> Ordered:
    """Return the orders that ``algorithm`` chooses for each query, independently of the others.

    Raises:
        PlannerError: a query is too large for the algorithm; ``field`` names it.
    """
    queries = sorted(problem.queries, key=lambda query: query.id)
    found, assumed = [], set(problem.assumed)
    for query in queries:
        model = CostModel(problem.statistics, bounds=LoosestBounds((query,)))
        operator = operator_of(
            query, model, problem.statistics, prices=prices, accounting=accounting
        )
        try:
            if algorithm is Algorithm.EXACT and connected_sets(query, MAX_SETS) is None:
                raise PlannerError(
                    "too-many-streams",
                    f"its {len(query.members)} relations have more than {MAX_SETS} connected"
                    " sub-joins, all of which an exact search estimates",
                    remedy="use greedy",
                )
            found.append((query, search_orders(operator, algorithm, ablation)))
        except PlannerError as cause:
            raise cause.moved(field=f"queries.{query.id}") from cause
        assumed.update(model.assumed)
    return Ordered(algorithm, ablation, accounting, tuple(found), tuple(sorted(assumed)))


def order_document(ordered: Ordered, seconds: float) -> dict[str, Any]:
    """Return the orders as JSON; only ``total_ms`` depends on the machine."""
    return {
        "algorithm": ordered.algorithm.value,
        "ablation": None if ordered.ablation is None else ordered.ablation.value,
        "common_cost": ordered.accounting.value,
        "cost": ordered.cost,
        "queries": {str(query.id): orders.cost for query, orders in ordered.queries},
        "orders": {str(query.id): by_alias(query, orders) for query, orders in ordered.queries},
        "total_ms": round(seconds * 1000, 3),
        "assumed": list(ordered.assumed),
    }


def by_alias(query: JoinQuery, orders: Orders) -> Mapping[str, list[str]]:
    """Return the probe orders of a query by alias: start -> targets."""
    names = [member.alias for member in query.members]
    return {names[s]: [names[t] for t in order] for s, order in orders.orders.items()}


def order_text(ordered: Ordered, seconds: float) -> str:
    """Return the orders as text, a block of lines per query; names are never broken."""
    algorithm = ordered.algorithm.value
    if ordered.ablation is not None:
        algorithm += f", {ordered.ablation.value} only"
    lines = [
        f"algorithm  {algorithm}",
        f"cost       {ordered.cost:.10g} ({ordered.accounting.value})",
        f"time       {seconds * 1000:.1f} ms",
    ]
    for query, orders in ordered.queries:
        lines += ["", f"query {query.id}  cost {orders.cost:.10g}"]
        found = by_alias(query, orders)
        width = max(map(len, found))
        lines += [
            f"  {start:<{width}}  {' → '.join(order)}".rstrip() for start, order in found.items()
        ]
    if ordered.assumed:
        lines += ["", "assumed", *(f"  {line}" for line in ordered.assumed)]
    return "\n".join(lines) + "\n"
