"""Which alias of a stream that is read several times is the first: by what it joins with.

Labels number the aliases of one relation (``orders``, ``orders#1``). Numbers by place in FROM
would tell apart two queries that differ in nothing else, and their stores. So aliases are told
apart by their part in the query, by colour refinement: at first by their relation and the names of
what they are joined by, then again and again by what each sees of the others through key classes,
time bounds and residuals; what can't be told apart so is numbered by the SELECT list, and in the
end by place. Aliases that only the end tells apart can nearly always be exchanged without changing
anything (for some very regular queries refinement sees less than there is: they are exact, but may
not be shared).

What is seen first counts most in the order, so that a part that two queries have in common is often
numbered alike in both: in ``x.a = y.a`` and ``x.a = y.a AND y.b = z.b`` over one stream ``x`` is
the first and ``y`` the second.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch_contract.queries.expressions import Column, columns, substitute
from anabranch_planner.normal.conditions import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from anabranch_contract.queries.expressions import Expr
    from anabranch_contract.queries.joins import Bounds, RelationId
    from anabranch_planner.normal.key_classes import Class

_SELF = "*"


@dataclass(frozen=True, slots=True)
class Structure:
    """What a query says of its aliases.

    Attributes:
        relations: alias -> relation, in the order of FROM.
        classes: what must be equal.
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
    """Alias -> how many of the same relation come before it."""
    names = list(query.relations)
    colours = {a: _joined_by(a, query) for a in names}
    if len(set(query.relations.values())) < len(names):
        colours = _refined(query, colours, ())
        colours = _refined(query, colours, query.outputs)
        while tied := [a for a in names if _count(colours)[colours[a]] > 1]:
            # Of the first kind that is tied, the first alias: the others see the difference.
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


def _count(colours: Mapping[str, str]) -> Counter[str]:
    return Counter(colours.values())


def _refined(
    query: Structure, colours: dict[str, str], outputs: Sequence[tuple[str, Expr]]
) -> dict[str, str]:
    """``colours`` told apart further until that tells no more apart."""
    kinds = 0
    while kinds < len(set(colours.values())):
        kinds = len(set(colours.values()))
        colours = {alias: _seen_from(alias, query, colours, outputs) for alias in colours}
    return colours


def _seen_from(
    alias: str,
    query: Structure,
    colours: Mapping[str, str],
    outputs: Sequence[tuple[str, Expr]],
) -> str:
    def seen(other: str) -> str:
        return _SELF if other == alias else colours[other]

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
    """Those of the expressions that read ``alias``, as it sees them."""
    for name, expr in named:
        if any(c.alias == alias for c in columns(expr)):
            own = substitute(expr, lambda c: Column(seen(c.alias), c.name, c.type))
            yield f"{name}:{canonical(own)}"


def _hash(*parts: object) -> str:
    # "#" comes before the "&" between joins: of two aliases the one with fewer joins is first.
    return "#" + hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
