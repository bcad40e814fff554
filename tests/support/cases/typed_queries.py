"""Normalised queries over typed streams, built without SQL: filters, time bounds, residuals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch_contract.queries.expressions import BOOLEAN, Call, Column, Expr, Output
from anabranch_contract.queries.joins import (
    AttrRef,
    Equality,
    JoinQuery,
    KeyClass,
    Label,
    QueryId,
    QueryMember,
    RelationId,
    Stream,
    label_for,
    make_relation,
)
from anabranch_contract.queries.types import key_type
from tests.support.oracles.closure import equal_groups


@dataclass(frozen=True, slots=True)
class Alias:
    """An alias: its stream, and its local filter (with ``Column.alias`` empty)."""

    name: str
    stream: str
    filter: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """A residual: a comparison ``op`` of two columns, each named (alias, column)."""

    op: str
    left: tuple[str, str]
    right: tuple[str, str]


#: (alias, column) = (alias, column)
Join = tuple[tuple[str, str], tuple[str, str]]


def build_query(
    name: str,
    aliases: Sequence[Alias],
    joins: Sequence[Join],
    streams: Mapping[str, Stream],
    *,
    bounds: Mapping[tuple[str, str], int] | None = None,
    residuals: Sequence[Condition] = (),
    projection: Sequence[tuple[str, str]] = (),
) -> JoinQuery:
    """Return the normalised query.

    If the joins make two attributes of one alias equal, this becomes a local filter of the alias.

    Args:
        bounds: (i, j) -> D: the event time of alias ``j`` is at most D after that of ``i``.
        projection: (alias, column) pairs; empty: all columns of all aliases.
    """
    groups = equal_groups(joins)
    stream_of = {a.name: streams[a.stream] for a in aliases}

    def column(side: tuple[str, str], label: str) -> Column:
        kind = stream_of[side[0]].type_of(side[1])
        assert kind is not None, side
        return Column(label, side[1], kind)

    relations = {}
    for alias in aliases:
        own = [[side for side in group if side[0] == alias.name] for group in groups]
        equal = [
            Call("eq", (column(sides[0], ""), column(side, "")), BOOLEAN)
            for sides in own
            for side in sides[1:]
        ]
        relations[alias.name] = make_relation(stream_of[alias.name].name, (*alias.filter, *equal))
    labels: dict[str, Label] = {}
    seen: dict[RelationId, int] = {}
    for alias in aliases:
        relation = relations[alias.name].id
        labels[alias.name] = label_for(relation, seen.get(relation, 0))
        seen[relation] = seen.get(relation, 0) + 1

    def ref(side: tuple[str, str]) -> AttrRef:
        return AttrRef(labels[side[0]], side[1])

    classes = []
    for group in groups:
        kind = key_type([column(side, "").type for side in group])
        assert kind is not None, group
        classes.append(KeyClass(kind, tuple(sorted(map(ref, group)))))
    chosen = projection or [(a.name, c) for a in aliases for c, _ in stream_of[a.name].columns]
    equalities = (Equality(*sorted((ref(one), ref(other)))) for one, other in joins)
    return JoinQuery(
        id=QueryId(name),
        members=tuple(QueryMember(a.name, labels[a.name], relations[a.name].id) for a in aliases),
        relations=tuple({r.id: r for r in relations.values()}.values()),
        predicates=tuple(sorted(equalities, key=lambda p: (p.left, p.right))),
        classes=tuple(sorted(classes, key=lambda c: c.members)),
        bounds=_shortest([a.name for a in aliases], bounds or {}),
        residuals=tuple(
            Call(c.op, tuple(column(s, labels[s[0]]) for s in (c.left, c.right)), BOOLEAN)
            for c in residuals
        ),
        projection=tuple(
            Output(f"{alias}_{name}", column((alias, name), labels[alias]))
            for alias, name in chosen
        ),
    )


def _shortest(
    aliases: Sequence[str], bounds: Mapping[tuple[str, str], int]
) -> tuple[tuple[int | None, ...], ...]:
    """Return the matrix of time bounds, closed by shortest paths."""
    matrix: dict[tuple[str, str], int | None] = {
        (i, j): 0 if i == j else bounds.get((i, j)) for i in aliases for j in aliases
    }
    for k in aliases:
        for i in aliases:
            for j in aliases:
                first, second, direct = matrix[i, k], matrix[k, j], matrix[i, j]
                if first is not None and second is not None:
                    through = first + second
                    matrix[i, j] = through if direct is None else min(direct, through)
    assert all(matrix[a, a] == 0 for a in aliases), "unsatisfiable time bounds"
    return tuple(tuple(matrix[i, j] for j in aliases) for i in aliases)
