"""Conversion of a problem file's statistics to statistics by relation and canonical predicate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

from sqlglot import exp

from anabranch_contract.protocol.measurements import FrequentValues
from anabranch_contract.queries.joins import AttrRef, Equality, JoinQuery, RelationId
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.documents.fields import refused, within
from anabranch_planner.sql.scope import nearest
from anabranch_planner.sql.syntax import parse_expression

#: A column: (alias or stream, column name), in lower case.
_Name: TypeAlias = tuple[str, str]
#: The two columns of an equality, in sorted order.
_Sides: TypeAlias = tuple[_Name, _Name]


@dataclass(frozen=True, slots=True)
class Known:
    """Statistics that a problem file states for a stream.

    Attributes:
        rate: number of tuples per unit of time; None: unknown.
        distincts: comma-joined sorted columns -> number of distinct values.
        every_distinct: number of distinct values of each column combination not in ``distincts``.
    """

    rate: float | None
    distincts: Mapping[str, float]
    every_distinct: float | None


@dataclass(frozen=True, slots=True)
class Alias:
    """An alias in a query; ``rate``: tuples per unit of time after its filter; None if unknown."""

    stream: str
    rate: float | None
    field: str


def make_statistics(
    streams: Mapping[str, Known],
    queries: Sequence[tuple[Sequence[Alias], JoinQuery]],
    selectivity: Mapping[str, float],
    span: int | None,
) -> tuple[Statistics, tuple[str, ...]]:
    """Statistics of every relation that a query reads, and the defaults used in them.

    A filtered relation has the rate stated at its alias, or else its stream's rate, and at most as
    many distinct values as tuples.

    Args:
        streams: statistics by stream name.
        queries: each query with its aliases as written, in order.
        selectivity: the ``selectivity`` field of the problem.
        span: microseconds over which the rates' tuples arrive.
    """
    stated: dict[RelationId, tuple[float, str]] = {}
    stream_of: dict[RelationId, str] = {}
    for aliases, query in queries:
        for alias, member in zip(aliases, query.members, strict=True):
            stream_of[member.relation] = alias.stream
            if alias.rate is not None:
                _state_cardinality(member.relation, alias, streams[alias.stream].rate, stated)
    cardinalities: dict[RelationId, float] = {}
    distincts: dict[tuple[RelationId, str], float] = {}
    every_distinct: dict[RelationId, float] = {}
    assumed = []
    for relation in sorted(stream_of):
        stream = stream_of[relation]
        known = streams[stream]
        filtered = relation != stream
        if relation in stated:
            cardinalities[relation] = stated[relation][0]
        elif known.rate is not None:
            cardinalities[relation] = known.rate
            if filtered:
                assumed.append(f"cardinality of {relation} = that of {stream}")
        most = cardinalities.get(relation, math.inf) if filtered else math.inf
        for attributes, number in known.distincts.items():
            distincts[relation, attributes] = min(number, most)
        if known.every_distinct is not None:
            every_distinct[relation] = min(known.every_distinct, most)
    selectivities = _selectivities(selectivity, queries)
    statistics = Statistics(cardinalities, distincts, selectivities, every_distinct, history=span)
    return statistics, tuple(assumed)


def frequent_values(
    stated: Mapping[tuple[str, str], Mapping[str, float]], sizes: Mapping[RelationId, float]
) -> dict[tuple[RelationId, str], FrequentValues]:
    """Frequent values of columns, stated in a problem file, with their shares of the tuples.

    A plan depends only on which values are equal, so their indices serve as hashes.

    Args:
        stated: (stream, column) -> value -> number of tuples per unit of time.
        sizes: relation -> number of tuples per unit of time.
    """
    texts = sorted({text for rates in stated.values() for text in rates})
    number = {text: at for at, text in enumerate(texts, start=1)}
    found = {}
    for (stream, column), rates in stated.items():
        relation = RelationId(stream)
        size = sizes.get(relation, 0.0)
        if size > 0:
            ordered = sorted(rates, key=lambda text: (-rates[text], text))
            shares = tuple(rates[text] / size for text in ordered)
            hashes = tuple(number[text] for text in ordered)
            found[relation, column] = FrequentValues(hashes, tuple(ordered), shares, shares, 0.0)
    return found


def _state_cardinality(
    relation: RelationId,
    alias: Alias,
    whole: float | None,
    stated: dict[RelationId, tuple[float, str]],
) -> None:
    assert alias.rate is not None
    at = f"{alias.field}.rate"
    if whole is not None and alias.rate > whole:
        raise refused(
            f"{alias.rate:g} tuples after the filter are more than the stream's {whole:g}",
            at,
            "correct one of the two",
        )
    before = stated.setdefault(relation, (alias.rate, at))
    if before[0] != alias.rate:
        raise refused(
            f"{alias.rate:g} contradicts {before[1]}: the same relation has {before[0]:g} there",
            at,
            "state one of them",
        )


# --- selectivities -----------------------------------------------------------------------------


def _selectivities(
    written: Mapping[str, float], queries: Sequence[tuple[Sequence[Alias], JoinQuery]]
) -> dict[Equality, float]:
    """Predicate of the queries -> selectivity in the problem file, by aliases or else streams."""
    if not written:
        return {}
    table: dict[_Sides, tuple[str, float]] = {}
    for text, value in written.items():
        at = f"selectivity.{text}"
        sides = _parsed_sides(text, at)
        if sides in table:
            raise refused(f"this is the predicate {table[sides][0]!r} again", at, "keep one")
        table[sides] = (text, value)
    by_alias: dict[Equality, tuple[str, float]] = {}
    by_stream: dict[Equality, tuple[str, float]] = {}
    known: dict[str, None] = {}
    used: set[_Sides] = set()
    for aliases, query in queries:
        alias_of = {m.label: m.alias for m in query.members}
        stream_of = {m.label: a.stream for a, m in zip(aliases, query.members, strict=True)}
        for one, other in _joined(query):
            predicate = Equality(*sorted((one, other)))
            for names, found in ((alias_of, by_alias), (stream_of, by_stream)):
                here, there = (f"{names[a.label]}.{a.attribute}" for a in (one, other))
                known.setdefault(f"{here} = {there}")
                sides = _sides(
                    (names[one.label], one.attribute), (names[other.label], other.attribute)
                )
                if sides in table:
                    used.add(sides)
                    _take_selectivity(predicate, table[sides], found)
    for sides, (text, _) in table.items():
        if sides not in used:
            raise refused(
                "no query has this predicate", f"selectivity.{text}", nearest(text, known)
            )
    return {p: number for p, (_, number) in (by_stream | by_alias).items()}


def _take_selectivity(
    predicate: Equality, entry: tuple[str, float], found: dict[Equality, tuple[str, float]]
) -> None:
    text, number = entry
    before = found.setdefault(predicate, entry)
    if before[1] != number:
        raise refused(
            f"{number:g} contradicts {before[1]:g} of {before[0]!r}, which is the same predicate"
            f" ({predicate.left} = {predicate.right})",
            f"selectivity.{text}",
            "state one of them",
        )


def _joined(query: JoinQuery) -> Iterator[tuple[AttrRef, AttrRef]]:
    """All pairs of columns of different aliases that the query's equalities make equal."""
    for key_class in query.classes:
        for one, other in combinations(key_class.members, 2):
            if one.label != other.label:
                yield one, other


def _parsed_sides(text: str, at: str) -> _Sides:
    with within(at):
        node = parse_expression(text)
    sides: Iterable[Any] = (node.this, node.expression) if isinstance(node, exp.EQ) else ()
    names = [(s.table, s.name) for s in sides if isinstance(s, exp.Column) and s.table]
    if len(names) != 2:
        raise refused("this is not an equality of two columns", at, 'write "R.a = S.a"')
    return _sides(names[0], names[1])


def _sides(one: _Name, other: _Name) -> _Sides:
    a, b = ((name.lower(), attribute.lower()) for name, attribute in (one, other))
    return (a, b) if a <= b else (b, a)
