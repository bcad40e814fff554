"""Table functions that expand arrays and maps into rows, with resolved names and types."""

from __future__ import annotations

from collections import Counter

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import INT
from anabranch_contract.queries.expressions import NULL, Call, Expansion, Expr, Literal
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_planner.binding.functions.variants import of_variant
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql.functions import check_arity
from anabranch_planner.sql.scope import Scope, ShownColumn
from anabranch_planner.sql.syntax import parse_expression
from anabranch_planner.sql.unresolved import Node, RowGenerator, describe

_ROWS = frozenset({TypeKind.ARRAY, TypeKind.MAP})
_BIGINT = DataType(TypeKind.BIGINT)
#: SQL that lists the members of a variant as (key, value) structs; ``?`` stands for the variant.
_MEMBERS = """coalesce(
  map_entries(try_variant_get(?, '$', 'map<string,variant>')),
  transform(try_variant_get(?, '$', 'array<variant>'),
    e -> named_struct('key', CAST(NULL AS STRING), 'value', e)))"""


def expansion_of(
    generator: RowGenerator, scope: Scope, name: str
) -> tuple[Expansion, tuple[ShownColumn, ...]]:
    """The expansion of an array or map that ``generator`` denotes, and its columns under their
    default names; its argument is resolved in ``scope``.

    Args:
        name: alias of its columns.

    Raises:
        QueryError: its argument is of a wrong type.
    """
    call, function = generator.call, generator.function
    check_arity(function, len(call.expressions), 1, 1)
    argument, variant = call.expressions[0], function == "variant_explode"
    value = typed(argument, scope)
    if variant:
        of_variant(function, value)
        value = typed(_members(argument), scope)
    kind, fields = value.type, variant or function == "inline"
    good = kind.kind in _ROWS
    if fields:
        good = kind.kind is TypeKind.ARRAY and kind.element.kind is TypeKind.STRUCT
    if not good or kind.element == NULL:
        raise _mismatch(generator, value)
    position = function == "posexplode" or variant or generator.first is not None
    found = Expansion(name, value, generator.outer, position, fields)
    twice = [n for n, count in Counter(c.name for c in found.columns).items() if count > 1]
    if twice:
        raise QueryError(
            "duplicate-name",
            f"two fields of {describe(call.expressions[0])} are called {twice[0]!r}",
            remedy="write explode(), and name the fields that you want",
        )
    shown = [ShownColumn(column.name, column) for column in found.columns]
    if generator.first is not None:
        place, *others = found.columns
        number = Call("add", (place, Literal(generator.first, INT)), INT)
        shown = [ShownColumn(column.name, column) for column in others]
        shown.append(ShownColumn("ordinality", Call("cast", (number,), _BIGINT)))
    return found, tuple(shown)


def _members(value: Node) -> Node:
    """SQL of a variant's members (of its object or array) as an array of structs."""
    tree = parse_expression(_MEMBERS)
    for place in list(tree.find_all(exp.Placeholder)):
        place.replace(value.copy())
    return tree


def _mismatch(generator: RowGenerator, value: Expr) -> QueryError:
    argument = describe(generator.call.expressions[0])
    wanted = "an array of structs" if generator.function == "inline" else "an array or a map"
    remedy = f"give it {wanted}"
    if value.type.kind is TypeKind.STRING:
        form = "array<struct<a: int>>" if generator.function == "inline" else "array<string>"
        remedy = f"write {generator.function}(from_json({argument}, '{form}')), or split() the text"
    elif value.type.kind is TypeKind.STRUCT:
        remedy = f"select its fields, such as {argument}.{value.type.fields[0][0]}"
    return QueryError(
        "type-mismatch",
        f"{generator.function}() needs {wanted}, but {argument} is of type {value.type}",
        remedy=remedy,
    )
