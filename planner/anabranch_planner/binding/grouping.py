"""GROUP BY as grouping sets: ROLLUP, CUBE and GROUPING SETS, also nested or with plain keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, product

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import BOOLEAN, Call, Column, Expr, Literal
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_contract.queries.views import GROUPING_ID
from anabranch_planner.sql.unresolved import Node, at, bare, unsupported

#: Maximum number of grouping sets: each joined row is in a group of each set.
MOST_SETS = 256
#: Maximum number of keys with several grouping sets: ``grouping_id`` has a bit for each.
_MOST_KEYS = 63
_BIGINT, _TINYINT = DataType(TypeKind.BIGINT), DataType(TypeKind.TINYINT)
_Set = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Grouping:
    """The distinct keys of a GROUP BY clause, in order, and its grouping sets."""

    keys: tuple[Node, ...]
    sets: tuple[frozenset[Node], ...]

    def positions(self, places: Mapping[Node, int]) -> tuple[tuple[int, ...], ...]:
        """The grouping sets as positions of keys, by ``places``: key -> position. Keys without a
        position belong to all sets and are left out. Empty if the only set has all keys.

        Raises:
            QueryError: two sets are equal, or there are more keys than ``grouping_id`` has bits.
        """
        count = len(set(places.values()))
        sets = tuple(tuple(sorted({places[k] for k in one if k in places})) for one in self.sets)
        if sets == (tuple(range(count)),):
            return ()
        if len(set(sets)) < len(sets):
            raise unsupported(
                "a grouping set that occurs twice", "write each set once, as GROUPING SETS"
            )
        if count > _MOST_KEYS:
            raise unsupported(
                f"GROUP BY of {count} keys in several sets", f"group by {_MOST_KEYS} keys at most"
            )
        return sets


def grouping_of(
    nodes: Sequence[Node], first: Iterable[Node], resolved: Callable[[Node], Node]
) -> Grouping:
    """The keys and grouping sets of a GROUP BY clause with the entries ``nodes``.

    Args:
        first: keys written before GROUPING SETS, as in ``a, b GROUPING SETS (...)``.
        resolved: resolves the names, aliases and positions in a key.

    Raises:
        QueryError: ``too-many-grouping-sets``.
    """
    with at(nodes[0] if nodes else None):
        count = reduce(lambda a, b: a * b, map(_count, nodes), 1)
        if count > MOST_SETS:
            raise QueryError(
                "too-many-grouping-sets",
                f"GROUP BY has {count if count < 10**6 else 'over a million'} grouping sets",
                remedy=f"write {MOST_SETS} at most, e.g. as GROUPING SETS of the wanted ones",
            )
    trees: dict[Node, Node] = {}

    def key(node: Node) -> Node:
        if node not in trees:
            trees[node] = resolved(node)
        return trees[node]

    keys = dict.fromkeys(map(key, first))
    alternatives: list[list[_Set]] = []
    for node in nodes:
        alternatives.append([tuple(map(key, one)) for one in _sets(node)])
        keys |= dict.fromkeys(one for found in alternatives[-1] for one in found)
    sets = [frozenset(one for part in parts for one in part) for parts in product(*alternatives)]
    return Grouping(tuple(keys), tuple(sets))


def _together(node: Node) -> _Set:
    """The grouping keys of one element of ROLLUP or CUBE: one, or several in parentheses."""
    return tuple(node.expressions) if isinstance(node, exp.Tuple) else (bare(node),)


def _count(node: Node) -> int:
    """Number of grouping sets that an entry of GROUP BY denotes."""
    if isinstance(node, exp.Rollup):
        return len(node.expressions) + 1
    if isinstance(node, exp.Cube):
        return int(2 ** min(len(node.expressions), 64))
    if isinstance(node, exp.GroupingSets):
        return sum(map(_count, node.expressions))
    return 1


def _sets(node: Node) -> Iterator[_Set]:
    """The grouping sets that one entry of GROUP BY or GROUPING SETS denotes."""
    if isinstance(node, exp.Rollup | exp.Cube):
        parts = [_together(part) for part in node.expressions]
        sizes = range(len(parts), -1, -1)
        chosen: Iterable[Sequence[_Set]] = (
            (parts[:size] for size in sizes)
            if isinstance(node, exp.Rollup)
            else (some for size in sizes for some in combinations(parts, size))
        )
        yield from (tuple(key for part in some for key in part) for some in chosen)
    elif isinstance(node, exp.GroupingSets):
        for part in node.expressions:
            nested = isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets)
            yield from _sets(part) if nested else iter([_together(part)])
    else:
        yield _together(node)


def bits(sets: Sequence[Sequence[int]], places: Sequence[int | None], keys: int) -> dict[int, int]:
    """Map ``grouping_id`` over all ``keys`` keys to ``grouping_id`` over the keys at ``places``
    only, for each grouping set. A key whose place is None is in all sets."""

    def value(one: Sequence[int], chosen: Sequence[int | None]) -> int:
        lacking = (place is not None and place not in one for place in chosen)
        return reduce(lambda number, bit: 2 * number + bit, lacking, 0)

    return {value(one, range(keys)): value(one, places) for one in sets}


def chosen_by_set(values: Mapping[int, int], *, bit: bool) -> Expr:
    """CASE expression over GROUPING_ID that applies the mapping ``values`` of :func:`bits`;
    ``bit``: the mapped values are 0 or 1."""
    kind = _TINYINT if bit else _BIGINT
    own = Column("", GROUPING_ID, _BIGINT)
    if len(set(values.values())) == 1:
        return Literal(next(iter(values.values())), kind)
    if not bit and all(a == b for a, b in values.items()):
        return own
    *others, last = sorted(set(values.values()))
    args: list[Expr] = []
    for value in others:
        of = [Literal(number, _BIGINT) for number, its in sorted(values.items()) if its == value]
        args += [Call("in", (own, *of), BOOLEAN), Literal(value, kind)]
    return Call("case", (*args, Literal(last, kind)), kind)
