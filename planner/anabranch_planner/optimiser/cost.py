"""The CLASH cost model: cardinalities of canonical sub-joins, probe costs, insert costs.

Source: Eq. 1 of Dossinger & Michel. A step that sends the join of ``n`` base relations to the
next store costs ``|join| / n * chi``: only the 1/n of the join in which the starting tuple came
last is made on this path, and ``chi`` is 1 where the probing tuple knows the store's partition
attribute, else the store's parallelism. (The inner index of Eq. 1 as printed ends one relation
short of what the paper's own example computes; after an MIR probe ``n`` counts base relations.)

Under the default objective a store copy costs what is inserted into it per unit of time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from anabranch_planner.errors import StatisticsError
from anabranch_planner.model import AttrRef, Equality, Label, RelationId
from anabranch_planner.plan import Objective

if TYPE_CHECKING:
    from anabranch_planner.mir import Mir, MirId
    from anabranch_planner.statistics import Statistics

#: Tuples per unit of time of a relation of which nothing is known.
DEFAULT_CARDINALITY = 1000.0


@dataclass(frozen=True, slots=True)
class _Link:
    """A candidate edge of the join tree over which a cardinality is estimated."""

    classes: tuple[int, ...]
    measured: bool
    selectivity: float
    labels: tuple[Label, Label]

    def rank(self) -> tuple[int, bool, float, tuple[Label, Label]]:
        return (-len(self.classes), not self.measured, -self.selectivity, self.labels)


class CostModel:
    """Costs under given statistics; memoised, and a function of its arguments only.

    Args:
        statistics: what is known; everything unknown is replaced by a stated default (below)
            and listed in :attr:`assumed`.
        objective: whether inserts are charged.
        parallelism: partitions per store.
        partitioning: False ignores partition attributes altogether (chi is always 1).

    Defaults: an unknown cardinality is :data:`DEFAULT_CARDINALITY`; an unknown distinct count is
    the relation's cardinality (as if it were a key), which makes an unknown selectivity
    ``1 / max(cardinalities)``; an unknown distinct count of a composite key is the product of
    its parts, at most the cardinality.
    """

    def __init__(
        self,
        statistics: Statistics,
        *,
        objective: Objective = Objective.DEFAULT,
        parallelism: int = 1,
        partitioning: bool = True,
    ) -> None:
        if parallelism < 1:
            raise StatisticsError(
                "bad-parallelism",
                f"parallelism is {parallelism}",
                field="parallelism",
                remedy="use at least one partition per store",
            )
        self.objective = objective
        self.partitioned = partitioning and parallelism > 1
        self.parallelism = parallelism
        self._statistics = statistics
        self._cardinalities: dict[MirId, float] = {}
        self._assumed: set[str] = set()

    @property
    def assumed(self) -> tuple[str, ...]:
        """What had to be assumed so far because no statistic is known, sorted."""
        return tuple(sorted(self._assumed))

    def probe(self, head: Mir) -> float:
        """Tuples per unit of time that one path sends out with ``head`` joined so far."""
        return self.cardinality(head) / len(head.members)

    def chi(self, *, broadcast: bool) -> int:
        """Partitions of a store that one probing tuple is sent to."""
        return self.parallelism if broadcast and self.partitioned else 1

    def insert(self, mir: Mir) -> float:
        """What one copy of the store of ``mir`` costs per unit of time."""
        return 0.0 if self.objective is Objective.PAPER else self.cardinality(mir)

    def cardinality(self, mir: Mir) -> float:
        """Tuples of the sub-join per unit of time: one number, whatever the path to it.

        Relations are linked into a maximum spanning tree: pairs that share most key classes
        first (so that a composite key counts as one key, not as independent parts), measured
        selectivities before derived ones, weak ones before strong ones. The last rule makes a
        class of k attributes divide by all but its smallest distinct count (containment of
        value sets). Each class is spanned exactly once, so equalities that follow from others
        are not counted twice, and a cycle of classes counts every class.
        """
        if mir.id not in self._cardinalities:
            self._cardinalities[mir.id] = self._estimate(mir)
        return self._cardinalities[mir.id]

    def _estimate(self, mir: Mir) -> float:
        relation_of = dict(zip(mir.members, mir.relations, strict=True))
        size = math.prod(self._relation(r) for r in mir.relations)
        attribute: list[dict[Label, AttrRef]] = []
        for key_class in mir.classes:
            firsts: dict[Label, AttrRef] = {}
            for member in key_class.members:
                firsts.setdefault(member.label, member)
            attribute.append(firsts)
        group = [{label: label for label in firsts} for firsts in attribute]
        while True:
            links = []
            for pair in combinations(mir.members, 2):
                open_classes = tuple(
                    i
                    for i, g in enumerate(group)
                    if pair[0] in g and pair[1] in g and g[pair[0]] != g[pair[1]]
                )
                if open_classes:
                    keys = [(attribute[i][pair[0]], attribute[i][pair[1]]) for i in open_classes]
                    measured, selectivity = self._selectivity(keys, relation_of)
                    links.append(_Link(open_classes, measured, selectivity, pair))
            if not links:
                return size
            best = min(links, key=_Link.rank)
            size *= best.selectivity
            for i in best.classes:
                old, new = (group[i][label] for label in best.labels)
                group[i] = {label: new if g == old else g for label, g in group[i].items()}

    def _selectivity(
        self, keys: list[tuple[AttrRef, AttrRef]], relation_of: dict[Label, RelationId]
    ) -> tuple[bool, float]:
        """Selectivity of one composite equality; whether it was measured throughout."""
        product, derived = 1.0, []
        for left, right in keys:
            measured = self._statistics.selectivity(Equality(*sorted((left, right))))
            if measured is None:
                derived.append((left, right))
            else:
                product *= _sane(measured, f"selectivity of {left} = {right}")
        if derived:
            sides = ([k[0] for k in derived], [k[1] for k in derived])
            product /= max(self._distinct(relation_of[s[0].label], s) for s in sides)
        return not derived, product

    def _relation(self, relation: RelationId) -> float:
        known = self._statistics.cardinality(relation)
        if known is None:
            self._assumed.add(f"cardinality of {relation} = {DEFAULT_CARDINALITY:g}")
            return DEFAULT_CARDINALITY
        return _sane(known, f"cardinality of {relation}")

    def _distinct(self, relation: RelationId, attributes: list[AttrRef]) -> float:
        names = tuple(sorted({a.attribute for a in attributes}))
        size = self._relation(relation)
        single = []
        for name in names:
            known = self._statistics.distinct(relation, (name,))
            if known is None:
                self._assumed.add(f"distinct {relation}({name}) = its cardinality")
                known = size
            single.append(_sane(known, f"distinct {relation}({name})"))
        most = math.prod(single)
        if len(names) > 1:
            known = self._statistics.distinct(relation, names)
            if known is None:
                text = ", ".join(names)
                self._assumed.add(f"distinct {relation}({text}) = product, at most cardinality")
                known = size
            most = min(most, _sane(known, f"distinct {relation}{names}"))
        return max(most, 1.0)


def _sane(value: float, what: str) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise StatisticsError(
            "bad-statistic",
            f"{what} is {value}",
            field="statistics",
            remedy="statistics are finite and not negative; leave out what is unknown",
        )
    return float(value)
