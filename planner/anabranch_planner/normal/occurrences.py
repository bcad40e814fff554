"""Numbering of the aliases of one relation by their role in the query, for canonical labels.

Labels number the aliases of one relation (``orders``, ``orders#1``). If numbers followed positions
in FROM, otherwise equal queries would differ, and so would their stores. So aliases are ordered by
colour refinement: first by relation and key attributes, then repeatedly by the colours of the
aliases to which key classes, time bounds and residuals connect them. Aliases of equal colour are
numbered by the SELECT list, then by position. If only position separates two aliases, they are
nearly always interchangeable. (For some very regular queries refinement distinguishes too little.
Their results are exact, but equal queries may not be shared.)

Early colours weigh most in the order, so a common part of two queries often gets equal numbers in
both. In ``x.a = y.a`` and in ``x.a = y.a AND y.b = z.b`` over one stream, ``x`` comes first and
``y`` second.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from anabranch_contract.queries.expressions import Column, Expr, columns, substitute
from anabranch_contract.queries.joins import Bounds, RelationId
from anabranch_planner.normal.conditions import canonical
from anabranch_planner.normal.key_classes import Class

_SELF = "*"


@dataclass(frozen=True, slots=True)
class Structure:
    """The parts of a query by which aliases of the same stream are distinguished.

    Attributes:
        relations: alias -> relation, in the order of FROM.
        classes: the key classes.
        bounds: closed time bounds, indexed like ``relations``.
        residuals: conditions over several aliases.
        outputs: (name, expression) of the SELECT list.
    """

    relations: Mapping[str, RelationId]
    classes: Sequence[Class]
    bounds: Bounds
    residuals: Sequence[Expr]
    outputs: Sequence[tuple[str, Expr]]


def occurrences(query: Structure) -> dict[str, int]:
    """Alias -> number of aliases of the same relation that come before it."""
    names = list(query.relations)
    colours = {a: _joined_by(a, query) for a in names}
    if len(set(query.relations.values())) < len(names):
        colours = _refined(query, colours, ())
        colours = _refined(query, colours, query.outputs)
        while tied := [a for a in names if Counter(colours.values())[colours[a]] > 1]:
            # Break a tie: give one of the aliases of equal colour a new colour, and refine again.
            first = min(tied, key=lambda a: (query.relations[a], colours[a], names.index(a)))
            colours[first] += "#"
            colours = _refined(query, colours, query.outputs)
    found: dict[str, int] = {}
    for relation in set(query.relations.values()):
        same = [a for a in names if query.relations[a] == relation]
        same.sort(key=lambda a: colours[a])
        found |= {alias: number for number, alias in enumerate(same)}
    return found


def _joined_by(alias: str, query: Structure) -> str:
    own = [
        "=".join([s.attribute[1], *sorted(o.attribute[1] for o in c.sides if o is not s)])
        for c in query.classes
        for s in c.sides
        if s.alias == alias
    ]
    return f"{query.relations[alias]} {'&'.join(sorted(own))}"


def _refined(
    query: Structure, colours: dict[str, str], outputs: Sequence[tuple[str, Expr]]
) -> dict[str, str]:
    """Colours of aliases after colour refinement up to a fixed point."""
    kinds = 0
    while kinds < len(set(colours.values())):
        kinds = len(set(colours.values()))
        colours = {alias: _seen_from(alias, query, colours, outputs) for alias in colours}
    return colours


def _seen_from(
    alias: str, query: Structure, colours: Mapping[str, str], outputs: Sequence[tuple[str, Expr]]
) -> str:
    """Description of an alias by the colours of aliases connected with it, for its new colour."""

    def seen(other: str) -> str:
        return _SELF if other == alias else colours.get(other, other)

    names = list(colours)
    row = names.index(alias)
    return colours[alias] + _hash(
        sorted(
            (c.type, sorted((seen(s.alias), s.attribute[1]) for s in c.sides))
            for c in query.classes
            if alias in c.aliases
        ),
        sorted(
            (colours[other], repr(query.bounds[row][k]), repr(query.bounds[k][row]))
            for k, other in enumerate(names)
            if other != alias
        ),
        sorted(set(_texts((("", r) for r in query.residuals), alias, seen))),
        sorted(_texts(outputs, alias, seen)),
    )


def _texts(
    named: Iterable[tuple[str, Expr]], alias: str, seen: Callable[[str], str]
) -> Iterable[str]:
    """Texts of the expressions that read ``alias``, with all aliases renamed by ``seen``."""
    for name, expr in named:
        if any(c.alias == alias for c in columns(expr)):
            own = substitute(expr, lambda c: Column(seen(c.alias), c.name, c.type))
            yield f"{name}:{canonical(own)}"


def _hash(*parts: object) -> str:
    # "#" sorts before the "&" between joins, so an alias with fewer joins comes first.
    return "#" + hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
