"""Conversion of a join query, with the planner's cost model, into dpPick's operator.

Aliases are numbered as in FROM. The weight of a start is its arrival rate. A step's mean number of
matches is the ratio of the tuples after the step to those before it, as :meth:`CostModel.probe`
estimates them. So it depends on the visited set and, under time bounds, on the start. With
tuple-at-a-time accounting and both prices 1, a cost is the number of probes plus matches per unit
of time. ``kappa`` of a store is the greatest known distinct count among its join attributes, else
its cardinality, which it never exceeds. Intermediate results, partitions and other queries are
ignored.
"""

from __future__ import annotations

from functools import cache

from anabranch_contract.queries.joins import JoinQuery, QueryMember
from anabranch_contract.queries.mirs import base_mir, sub_join
from anabranch_planner.cost.candidates import adjacency
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from benchmarks.papers.dppick.figures import SizeFigures
from benchmarks.papers.dppick.problem import Accounting, Operator, Prices


def operator_of(
    query: JoinQuery,
    model: CostModel,
    statistics: Statistics,
    *,
    prices: Prices | None = None,
    accounting: Accounting = Accounting.TUPLE,
) -> Operator:
    """Return the operator of ``query``; the sizes of sub-joins are computed on first use.

    Args:
        statistics: the statistics of ``model``, for the numbers of keys.
    """
    labels = [member.label for member in query.members]
    number = {label: i for i, label in enumerate(labels)}
    near = adjacency(query)

    @cache
    def size(start: int, mask: int) -> float:
        inside = frozenset(label for i, label in enumerate(labels) if mask >> i & 1)
        return model.probe(sub_join(query, inside), labels[start] if bounded else None)

    bounded = model.by_start or bool(model.bounds(sub_join(query, frozenset(labels))))
    bases = [base_mir(m.relation) for m in query.members]
    rows = tuple(model.cardinality(base) for base in bases)
    return Operator(
        names=tuple(member.alias for member in query.members),
        weights=tuple(model.added(base) for base in bases),
        keys=tuple(
            _keys(query, member, statistics, row)
            for member, row in zip(query.members, rows, strict=True)
        ),
        rows=rows,
        near=tuple(sum(1 << number[other] for other in near[label]) for label in labels),
        figures=SizeFigures(len(labels), size, bounded),
        prices=prices or Prices(),
        accounting=accounting,
    )


def _keys(query: JoinQuery, member: QueryMember, statistics: Statistics, rows: float) -> float:
    known = [
        count
        for key_class in query.classes
        for attribute in key_class.members
        if attribute.label == member.label
        and (count := statistics.distinct(member.relation, (attribute.attribute,))) is not None
    ]
    return min(max(known, default=rows), rows)
