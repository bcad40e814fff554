"""Hand-written join queries and statistics, for tests that do not use the SQL parser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

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
from anabranch_planner.cost.statistics.statistics import Statistics
from tests.support.oracles.closure import equal_groups

INT = DataType(TypeKind.INT)
_K = TypeVar("_K")


def attribute(text: str) -> AttrRef:
    """Return the attribute that a text such as ``"S#1.a"`` names."""
    label, _, name = text.strip().rpartition(".")
    return AttrRef(Label(label), name)


def equality(text: str) -> Equality:
    """Return the predicate in a text such as ``"R.a=S.a"``, with its sides sorted."""
    left, right = sorted(attribute(side) for side in text.split("="))
    return Equality(left, right)


def chain(*predicates: str, id: str = "q") -> JoinQuery:
    """Return a query with predicates such as ``"R.a=S.a"`` over int columns.

    Labels are canonical (``S``, ``S#1``); members are in order of appearance; there are no
    time bounds, residuals or filters; the projection is every attribute that is named.
    """
    return join_query(predicates, id=id)


def single(label: str = "R", *, id: str = "q") -> JoinQuery:
    """Return a query over one relation."""
    return join_query((), id=id, labels=(label,))


def join_query(
    predicates: Iterable[str], *, id: str = "q", labels: Iterable[str] = ()
) -> JoinQuery:
    """Return the query of :func:`chain`, with further labels in front."""
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
    """Return the key classes: the predicates closed under transitivity."""
    groups = equal_groups((e.left, e.right) for e in equalities)
    return tuple(KeyClass("bigint", tuple(g)) for g in groups)


class Otherwise(dict[_K, float]):
    """A mapping of figures, with a default for missing keys."""

    def __init__(self, figures: Mapping[_K, float], default: float | None) -> None:
        super().__init__(figures)
        self._default = default

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key, default if self._default is None else self._default)


def given_statistics(
    cardinalities: Mapping[str, float] | None = None,
    selectivities: Mapping[str, float] | Mapping[Equality, float] | None = None,
    distincts: Mapping[tuple[str, str], float] | None = None,
    default: float | None = None,
    selectivity_default: float | None = None,
    **figures: Any,
) -> Statistics:
    """Return statistics given by plain names; ``default``: cardinality of all other relations.

    ``selectivities`` are keyed by predicate text (``"S.b=T.b"``), ``distincts`` by relation and
    comma-joined sorted attributes.
    """
    sizes = {RelationId(name): size for name, size in (cardinalities or {}).items()}
    stated = {
        equality(key) if isinstance(key, str) else key: value
        for key, value in (selectivities or {}).items()
    }
    return Statistics(
        Otherwise(sizes, default),
        {(RelationId(name), columns): n for (name, columns), n in (distincts or {}).items()},
        Otherwise(stated, selectivity_default),
        **figures,
    )
