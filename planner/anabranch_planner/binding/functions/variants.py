"""SQL functions of the type ``variant``: JSON values whose types differ from row to row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch_contract.errors import PlannerError, QueryError
from anabranch_contract.queries.coercion import STRING
from anabranch_contract.queries.expressions import BOOLEAN, Call, Expr, Literal, is_null
from anabranch_contract.queries.json_paths import steps
from anabranch_contract.queries.types import INTERVALS, DataType, TypeKind, parse_type
from anabranch_planner.binding.functions.signatures import (
    Argument,
    Rewriting,
    bad_literal,
    converted,
    text_of,
)

VARIANT = DataType(TypeKind.VARIANT)
_TRUE = Literal(True, BOOLEAN)


def part_of(value: Expr, path: str, kind: DataType, *, lenient: bool = False) -> Expr:
    """Typed value at ``path`` (JSON path) of a variant, cast to ``kind``.

    Args:
        lenient: whether the result is NULL instead of an error if the value can't be cast.

    Raises:
        QueryError: ``type-mismatch``: no value of a variant is of this type.
    """
    if is_null(value):
        return Literal(None, kind)
    if kind.has(TypeKind.NULL, *INTERVALS) or not kind.named:
        raise QueryError(
            "type-mismatch",
            f"{value} of type variant can't be cast to {kind}",
            remedy=f"write CAST({value} AS STRING), and cast the text",
        )
    args = (value, Literal(path, STRING), *([_TRUE] if lenient else []))
    return Call("variant_get", args, kind)


def _parse_json(args: Sequence[Expr]) -> Expr:
    if args[0].type.kind is TypeKind.VARIANT:
        raise QueryError(
            "type-mismatch",
            f"parse_json() takes a text, but {args[0]} is of type variant",
            remedy="leave parse_json() out",
        )
    text = converted("parse_json", args[0], Argument.TEXT)
    return Literal(None, VARIANT) if is_null(text) else Call("parse_json", (text,), VARIANT)


def _try_parse(args: Sequence[Expr]) -> Expr:
    found = _parse_json(args)
    return Call("try", (found,), VARIANT) if isinstance(found, Call) else found


def _variant_get(name: str, *, lenient: bool) -> Callable[[Sequence[Expr]], Expr]:
    def made(args: Sequence[Expr]) -> Expr:
        value, (path, *rest) = of_variant(name, args[0]), args[1:]
        through = text_of(converted(name, path, Argument.PATTERN))
        try:
            steps(through)
        except ValueError as error:
            remedy = "write a path such as '$.a.b[0]'"
            raise bad_literal(name, path, str(error), remedy) from error
        kind = text_of(converted(name, rest[0], Argument.PATTERN)) if rest else "variant"
        try:
            wanted = parse_type(kind)
        except PlannerError as error:
            raise QueryError(error.code, error.message, remedy=error.remedy) from error
        return part_of(value, through, wanted, lenient=lenient)

    return made


def of_variant(name: str, value: Expr) -> Expr:
    """Require that ``value``, the argument of the function ``name``, is a variant, and return it.

    Raises:
        QueryError: ``type-mismatch``.
    """
    if value.type.kind is not TypeKind.VARIANT and not is_null(value):
        text = value.type.kind is TypeKind.STRING
        rest = ", ..." if name.endswith("variant_get") else ""
        raise QueryError(
            "type-mismatch",
            f"{name}() takes a variant, but {value} is of type {value.type}",
            remedy=f"write {name}(parse_json({value if text else f'to_json({value})'}){rest})",
        )
    return value


def _is_null(args: Sequence[Expr]) -> Expr:
    value = of_variant("is_variant_null", args[0])
    if is_null(value):
        return Literal(False, BOOLEAN)
    return Call("eq_null_safe", (text(value), Literal("null", STRING)), BOOLEAN)


def _schema(args: Sequence[Expr]) -> Expr:
    value = of_variant("schema_of_variant", args[0])
    return Literal(None, STRING) if is_null(value) else Call("schema_of_variant", (value,), STRING)


def text(value: Expr) -> Expr:
    """Typed JSON text of a variant."""
    return Call("to_json", (value,), STRING)


#: SQL function of variants -> rewriting of its calls.
VARIANTS: dict[str, Rewriting] = {
    "is_variant_null": Rewriting(1, 1, _is_null),
    "parse_json": Rewriting(1, 1, _parse_json),
    "schema_of_variant": Rewriting(1, 1, _schema),
    "try_parse_json": Rewriting(1, 1, _try_parse),
    "try_variant_get": Rewriting(2, 3, _variant_get("try_variant_get", lenient=True)),
    "variant_get": Rewriting(2, 3, _variant_get("variant_get", lenient=False)),
}
