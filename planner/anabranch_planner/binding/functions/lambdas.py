"""Higher-order SQL functions: ``transform(xs, x -> x + 1)``, over elements of arrays and maps.

A lambda's parameter is a call of the operation ``parameter``, not a column: all columns in a
lambda's body are columns of the row that has the array. Parameters are numbered, starting with the
outermost lambda.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import INT, common_type
from anabranch_contract.queries.expressions import BOOLEAN, PARAMETER, Call, Expr, Literal, is_null
from anabranch_contract.queries.types import DataType, TypeKind, array_of, map_of
from anabranch_planner.binding.common_types import meet
from anabranch_planner.binding.functions.collections import keyed
from anabranch_planner.binding.literals import coerce
from anabranch_planner.sql.functions import check_arity
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.unresolved import Node, as_written, at, unsupported

Typed = Callable[[Node, Scope], Expr]
#: Key in a syntax node's metadata: the lambda parameter to which the name refers.
_MEANING = "parameter"
_SYNONYMS = {"reduce": "aggregate"}
#: Function -> least and most number of its arguments.
FUNCTIONS_OF_FUNCTIONS = {
    **dict.fromkeys(("transform", "filter", "exists", "forall"), (2, 2)),
    **dict.fromkeys(("map_filter", "transform_keys", "transform_values"), (2, 2)),
    "map_zip_with": (3, 3),
    "zip_with": (3, 3),
    "aggregate": (3, 4),
    "reduce": (3, 4),
}


def call(node: Node, scope: Scope, typed: Typed) -> Expr:
    """The typed call of a function in :data:`FUNCTIONS_OF_FUNCTIONS`.

    Raises:
        QueryError: ``bad-arguments``, ``type-mismatch``, or ``unsupported-sql``.
    """
    name = str(node.this).lower()
    check_arity(name, len(node.expressions), *FUNCTIONS_OF_FUNCTIONS[name])
    made = _Made(_SYNONYMS.get(name, name), node, scope, typed)
    return _RULES[made.name](made, list(node.expressions))


def parameter(node: Node, _: Scope) -> Expr:
    """The typed lambda parameter to which a name in the lambda's body refers.

    Raises:
        QueryError: ``unsupported-sql``: the name is not a parameter.
    """
    found = node.meta.get(_MEANING)
    if found is None:
        raise unsupported(f"the name {node.name!r} here", "write alias.column")
    return found  # type: ignore[no-any-return]


class _Made:
    """A call of a higher-order function during its typing, with the parameters of its lambdas.

    Attributes:
        first: number of the first parameter of its lambdas.
    """

    def __init__(self, name: str, node: Node, scope: Scope, typed: Typed) -> None:
        self.name, self.scope, self.typed = name, scope, typed
        self.first, above = 0, node.parent
        while above is not None:
            self.first += len(above.expressions) if isinstance(above, exp.Lambda) else 0
            above = above.parent

    def value(self, node: Node, *kinds: TypeKind) -> Expr:
        """The typed argument ``node``, an array or a map as ``kinds`` require."""
        value = self.typed(node, self.scope)
        if value.type.kind not in kinds:
            wanted = " or ".join(f"{'an' if k is TypeKind.ARRAY else 'a'} {k}" for k in kinds)
            raise QueryError(
                "type-mismatch",
                f"{self.name}() takes {wanted}, but {value} is of type {value.type}",
                remedy=f"write split({as_written(node)}, ',') for the parts of a text"
                if value.type.kind is TypeKind.STRING
                else "docs/sql.md, Nested values, has its arguments",
            )
        return value

    def body(self, node: Node, *types: DataType, least: int = 1) -> Expr:
        """Typed body of a lambda with parameters of ``types``; it declares ``least`` or more."""
        shape = f"{('x', '(x, y)', '(k, x, y)')[least - 1]} -> ..."
        if not isinstance(node, exp.Lambda):
            with at(node):
                raise QueryError(
                    "bad-arguments",
                    f"{self.name}() takes a function, not {as_written(node)}",
                    remedy=f"write {shape}",
                )
        names = [one.name.lower() for one in node.expressions]
        if not least <= len(names) <= len(types) or len({*names}) < len(names):
            with at(node):
                raise QueryError(
                    "bad-arguments",
                    f"the function in {self.name}() has {len(names)} parameters"
                    + (", two of one name" if len({*names}) < len(names) else ""),
                    remedy=f"write {shape}",
                )
        meanings = {
            name: Call(PARAMETER, (Literal(self.first + place, INT),), kind)
            for place, (name, kind) in enumerate(zip(names, types, strict=False))
        }
        _mark(node.this, meanings)
        return self.typed(node.this, self.scope)

    def condition(self, node: Node, *types: DataType, least: int = 1) -> Expr:
        """Typed body of a lambda that must return a boolean; arguments as for :meth:`body`."""
        found = self.body(node, *types, least=least)
        if found.type != BOOLEAN and not is_null(found):
            with at(node):
                raise QueryError(
                    "type-mismatch",
                    f"the function in {self.name}() gives {found.type}, not a condition",
                    remedy="compare it: x -> x > 0",
                )
        return coerce(found, BOOLEAN)

    def made(self, kind: DataType, values: Sequence[Expr], *bodies: Expr) -> Call:
        """The typed call; arguments: number of its first lambda parameter, values, bodies."""
        return Call(self.name, (Literal(self.first, INT), *values, *bodies), kind)


def _mark(body: Node, meanings: dict[str, Call]) -> None:
    """Link names in an SQL lambda's body to its parameters, unless inner lambdas redeclare them."""
    if isinstance(body, exp.Identifier):
        if body.name.lower() in meanings:
            body.meta[_MEANING] = meanings[body.name.lower()]
        return
    if isinstance(body, exp.Lambda):
        own = {one.name.lower() for one in body.expressions}
        _mark(body.this, {name: one for name, one in meanings.items() if name not in own})
        return
    if isinstance(body, exp.Column):
        # The parser reads a parameter's name in another case as a column.
        first, *fields = body.parts
        meaning = meanings.get(first.name.lower())
        if meaning is not None:
            first.meta[_MEANING] = meaning
            found = reduce(lambda of, one: exp.Dot(this=of, expression=one), fields, first)
            body.replace(found)
        return
    for child in body.iter_expressions():
        _mark(child, meanings)


def _transform(made: _Made, given: list[Node]) -> Expr:
    array = made.value(given[0], TypeKind.ARRAY)
    body = made.body(given[1], array.type.element, INT)
    return made.made(array_of(body.type), [array], body)


def _filter(made: _Made, given: list[Node]) -> Expr:
    array = made.value(given[0], TypeKind.ARRAY)
    return made.made(array.type, [array], made.condition(given[1], array.type.element, INT))


def _holds(made: _Made, given: list[Node]) -> Expr:
    array = made.value(given[0], TypeKind.ARRAY)
    return made.made(BOOLEAN, [array], made.condition(given[1], array.type.element))


def _of_map(made: _Made, node: Node) -> tuple[Expr, DataType, DataType]:
    value = made.value(node, TypeKind.MAP)
    (_, key), (_, item) = value.type.fields
    return value, key, item


def _map_filter(made: _Made, given: list[Node]) -> Expr:
    value, key, item = _of_map(made, given[0])
    return made.made(value.type, [value], made.condition(given[1], key, item, least=2))


def _transform_values(made: _Made, given: list[Node]) -> Expr:
    value, key, item = _of_map(made, given[0])
    body = made.body(given[1], key, item, least=2)
    return made.made(map_of(key, body.type), [value], body)


def _transform_keys(made: _Made, given: list[Node]) -> Expr:
    value, key, item = _of_map(made, given[0])
    body = made.body(given[1], key, item, least=2)
    with at(given[1]):
        return made.made(keyed(body.type, item), [value], body)


def _map_zip_with(made: _Made, given: list[Node]) -> Expr:
    pairs = [_of_map(made, one) for one in given[:2]]
    (left, key, first), (right, other, second) = pairs
    met = common_type(key, other)
    if met is None:
        with at(given[1]):
            raise QueryError(
                "type-mismatch",
                f"the keys of {left} are of type {key}, those of {right} of type {other}",
                remedy=f"write transform_keys({as_written(given[1])}, (k, v) -> "
                f"CAST(k AS {key.upper()}))",
            )
    values = [coerce(value, keyed(met, item)) for value, _, item in pairs]
    body = made.body(given[2], met, first, second, least=3)
    return made.made(map_of(met, body.type), values, body)


def _zip_with(made: _Made, given: list[Node]) -> Expr:
    left, right = (made.value(one, TypeKind.ARRAY) for one in given[:2])
    body = made.body(given[2], left.type.element, right.type.element, least=2)
    return made.made(array_of(body.type), [left, right], body)


def _aggregate(made: _Made, given: list[Node]) -> Expr:
    """Typed ``aggregate(array, start, merge[, finish])``. The accumulator has the type of ``merge``
    if that is wider than the type of ``start``; Spark refuses such a call."""
    array, start = made.value(given[0], TypeKind.ARRAY), made.typed(given[1], made.scope)
    merge = made.body(given[2], start.type, array.type.element, least=2)
    if merge.type != start.type:
        start = coerce(start, meet(start, merge)[0].type)
        merge = made.body(given[2], start.type, array.type.element, least=2)
    if merge.type != start.type:
        with at(given[2]):
            raise QueryError(
                "type-mismatch",
                f"the function in aggregate() gives {merge.type}, its start is of type "
                f"{start.type}",
                remedy=f"write CAST(... AS {start.type.upper()}) around its body",
            )
    finish = made.body(given[3], start.type) if len(given) > 3 else None
    if finish is None:
        return made.made(start.type, [array, start], merge)
    return made.made(finish.type, [array, start], merge, finish)


_RULES: dict[str, Callable[[_Made, list[Node]], Expr]] = {
    "transform": _transform,
    "filter": _filter,
    "exists": _holds,
    "forall": _holds,
    "map_filter": _map_filter,
    "map_zip_with": _map_zip_with,
    "transform_keys": _transform_keys,
    "transform_values": _transform_values,
    "zip_with": _zip_with,
    "aggregate": _aggregate,
}
