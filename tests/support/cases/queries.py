"""Join queries and statistics written by hand, for tests that do without the SQL parser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anabranch_contract.protocol.measurements import FrequentValues, JoinSample
from anabranch_contract.queries.expressions import Column, Output
from anabranch_contract.queries.joins import (
    AttrRef,
    Equality,
    JoinQuery,
    KeyClass,
    Label,
    QueryId,
    QueryMember,
    RelationId,
    StreamName,
    label_for,
    make_relation,
)
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_planner.cost.exchange import ExchangeModel
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import PeriodForecast
from tests.support.oracles.closure import equal_groups

INT = DataType(TypeKind.INT)


def attribute(text: str) -> AttrRef:
    """``"S#1.a"`` as an attribute of a label."""
    label, _, name = text.strip().rpartition(".")
    return AttrRef(Label(label), name)


def equality(text: str) -> Equality:
    """``"R.a=S.a"`` as a predicate, sides sorted."""
    left, right = sorted(attribute(side) for side in text.split("="))
    return Equality(left, right)


def chain(*predicates: str, id: str = "q") -> JoinQuery:
    """A query from predicates such as ``"R.a=S.a"`` over int columns.

    Labels are canonical (``S``, ``S#1``); members are in order of appearance; there are no
    time bounds, residuals or filters; the projection is every attribute that is named.
    """
    return join_query(predicates, id=id)


def single(label: str = "R", *, id: str = "q") -> JoinQuery:
    """A query over one relation."""
    return join_query((), id=id, labels=(label,))


def join_query(
    predicates: Iterable[str], *, id: str = "q", labels: Iterable[str] = ()
) -> JoinQuery:
    """The query of :func:`chain`, with further labels in front."""
    equalities = [equality(p) for p in predicates]
    written = [s for p in predicates for s in p.split("=")]
    names = dict.fromkeys([*labels, *(attribute(s).label for s in written)])
    members = []
    for name in names:
        relation, _, occurrence = name.partition("#")
        label = label_for(RelationId(relation), int(occurrence or 0))
        members.append(QueryMember(name.lower(), label, RelationId(relation)))
    relations = sorted({m.relation for m in members})
    read = sorted({side for e in equalities for side in (e.left, e.right)})
    size = len(members)
    return JoinQuery(
        id=QueryId(id),
        members=tuple(members),
        relations=tuple(make_relation(StreamName(r), ()) for r in relations),
        predicates=tuple(sorted(equalities, key=lambda e: (e.left, e.right))),
        classes=key_classes(equalities),
        bounds=tuple(tuple(0 if i == j else None for j in range(size)) for i in range(size)),
        residuals=(),
        projection=tuple(
            Output(f"{a.label}_{a.attribute}", Column(a.label, a.attribute, INT)) for a in read
        ),
    )


def key_classes(equalities: Iterable[Equality]) -> tuple[KeyClass, ...]:
    """The predicates closed under equality."""
    groups = equal_groups((e.left, e.right) for e in equalities)
    return tuple(KeyClass("bigint", tuple(g)) for g in groups)


@dataclass(frozen=True)
class FixedStatistics:
    """Statistics from dictionaries; ``default`` is the cardinality of everything not named.

    ``selectivities`` are keyed by predicate text (``"S.b=T.b"``), ``distincts`` by relation and
    comma-joined sorted attributes.
    """

    cardinalities: Mapping[str, float] = field(default_factory=dict)
    selectivities: Mapping[str, float] = field(default_factory=dict)
    distincts: Mapping[tuple[str, str], float] = field(default_factory=dict)
    default: float | None = None
    selectivity_default: float | None = None
    history: float | None = None
    seen: tuple[JoinSample, ...] = ()
    coming: PeriodForecast | None = None
    costs: CostConstants | None = None
    hosts: ExchangeModel | None = None
    values: Mapping[tuple[str, str], FrequentValues] = field(default_factory=dict)

    def cardinality(self, relation: RelationId) -> float | None:
        return self.cardinalities.get(relation, self.default)

    def distinct(self, relation: RelationId, attributes: tuple[str, ...]) -> float | None:
        return self.distincts.get((relation, ",".join(attributes)))

    def frequent(self, relation: RelationId, attribute: str) -> FrequentValues | None:
        return self.values.get((relation, attribute))

    def selectivity(self, predicate: Equality) -> float | None:
        for text, value in self.selectivities.items():
            if equality(text) == predicate:
                return value
        return self.selectivity_default

    def span(self, relation: RelationId) -> float | None:
        del relation
        return self.history

    def samples(self) -> tuple[JoinSample, ...]:
        return self.seen

    def ahead(self) -> PeriodForecast | None:
        return self.coming

    def constants(self) -> CostConstants | None:
        return self.costs

    def exchange(self) -> ExchangeModel | None:
        return self.hosts
