"""Functions of arrays, structs and maps: types of arguments and results.

Queries can build nested values, take them apart and output them, but not compare them, group by
them or join on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from anabranch_contract.errors import PlannerError, QueryError
from anabranch_contract.queries.coercion import BIGINT, INT, STRING, common_type, fits
from anabranch_contract.queries.expressions import BOOLEAN, NULL, Call, Expr, Literal, is_null
from anabranch_contract.queries.types import (
    FIELD,
    INTEGRAL,
    INTERVALS,
    NESTED,
    UNORDERED,
    DataType,
    TypeKind,
    array_of,
    map_of,
    parse_type,
    struct_of,
)
from anabranch_planner.binding.common_types import meet_all
from anabranch_planner.binding.functions.signatures import (
    Argument,
    Rewriting,
    bad_literal,
    converted,
)
from anabranch_planner.binding.functions.variants import text
from anabranch_planner.binding.literals import coerce
from anabranch_planner.sql.scope import nearest

Made = Callable[[Sequence[Expr]], Expr]
_TRUE = Literal(True, BOOLEAN)


def _of(name: str, arg: Expr, *kinds: TypeKind) -> DataType:
    """The type of a function's argument, one of ``kinds`` (such as arrays); NULL: array of NULL.

    Raises:
        QueryError: ``type-mismatch``.
    """
    if arg.type.kind in kinds:
        return arg.type
    if is_null(arg):
        return array_of(NULL)
    article = " or ".join(f"{'an' if kind is TypeKind.ARRAY else 'a'} {kind}" for kind in kinds)
    remedy = "see docs/sql.md, Nested values"
    if arg.type.kind is TypeKind.VARIANT:
        remedy = f"write variant_get({arg}, '$', 'array<...>')"
    if arg.type.kind is TypeKind.STRING:
        remedy = f"write split({arg}, ',') for the parts of a text"
    raise QueryError(
        "type-mismatch", f"{name} takes {article}, but {arg} is of type {arg.type}", remedy=remedy
    )


def require_comparable(what: str, expr: Expr) -> None:
    """Reject a nested value or variant in a clause or function, ``what``, that compares values.

    Raises:
        QueryError: ``type-mismatch``.
    """
    if expr.type.kind in UNORDERED:
        first = next((name for name, _ in expr.type.fields), "")
        parts = {
            TypeKind.VARIANT: f"CAST({expr} AS STRING), or another type",
            TypeKind.ARRAY: f"{expr}[0] or array_join({expr}, ',')",
            TypeKind.STRUCT: f"its fields, such as {expr}.{first}",
            TypeKind.MAP: f"{expr}['key']",
        }
        raise QueryError(
            "type-mismatch",
            f"{what} {expr}, which is of type {expr.type}, is not supported",
            remedy=f"write {parts[expr.type.kind]}",
        )


def field_of(value: Expr, name: str) -> Expr:
    """Typed ``value.name``: the field of a struct, or an array of it for an array of structs.

    Raises:
        QueryError: ``type-mismatch``, or ``unknown-column``: the struct has no such field.
    """
    kind = value.type
    if is_null(value):
        return value
    inside = kind.element if kind.kind is TypeKind.ARRAY else kind
    if kind.kind is TypeKind.MAP:
        return item_of(value, Literal(name, STRING))
    if inside.kind is not TypeKind.STRUCT:
        raise QueryError(
            "type-mismatch",
            f"{value}.{name}: {value} is of type {kind}, which has no fields",
            remedy=f"write {value}:{name}"
            if kind.kind is TypeKind.VARIANT
            else "declare the column as struct<...>, or use get_json_object() for a JSON text",
        )
    found = inside.field(name)
    if found is None:
        raise QueryError(
            "unknown-column",
            f"{value} has no field {name!r}",
            remedy=nearest(name, (one for one, _ in inside.fields)),
        )
    result = array_of(found[1]) if kind.kind is TypeKind.ARRAY else found[1]
    return Call("field", (value, Literal(found[0], STRING)), result)


def item_of(value: Expr, place: Expr) -> Expr:
    """Typed ``value[place]``: an array's element, from 0; a map's value of a key; a struct's field.

    Raises:
        QueryError: ``type-mismatch``.
    """
    kind = value.type.kind
    if kind is TypeKind.STRUCT and isinstance(place, Literal) and isinstance(place.value, str):
        return field_of(value, place.value)
    if kind is TypeKind.MAP:
        return _map_value(value, place)
    _of("[...]", value, TypeKind.ARRAY, TypeKind.MAP)
    return _array_call("array_item", value, converted("[...]", place, Argument.INT))


def _array_call(op: str, array: Expr, *args: Expr) -> Expr:
    """Typed call whose result is an element of ``array``; NULL if ``array`` is the literal NULL."""
    if is_null(array) or any(map(is_null, args)):
        return Literal(None, array.type.element if array.type.kind is TypeKind.ARRAY else NULL)
    return Call(op, (array, *args), array.type.element)


def _map_value(value: Expr, key: Expr) -> Expr:
    wanted = value.type.fields[0][1]
    if is_null(key):
        return Literal(None, value.type.element)
    require_comparable("the key", key)
    number = key.value if isinstance(key, Literal) else None
    whole = key.type.kind in INTEGRAL and wanted.kind in INTEGRAL
    if whole and isinstance(number, int) and fits(number, wanted.kind):
        key = Literal(number, wanted)
    if common_type(wanted, key.type) != wanted:
        raise QueryError(
            "type-mismatch",
            f"the keys of {value} are of type {wanted}, {key} of type {key.type}",
            remedy=f"write CAST({key} AS {str(wanted).upper()})",
        )
    return Call("map_value", (value, coerce(key, wanted)), value.type.element)


def element_at(args: Sequence[Expr], *, lenient: bool = False) -> Expr:
    """Typed ``element_at(array, place)``, from 1 (from the end: -1), or ``element_at(map, key)``.

    Args:
        lenient: whether the result is NULL instead of an error if the array has no such element.
    """
    value, place = args
    _of("element_at()", value, TypeKind.ARRAY, TypeKind.MAP)
    if value.type.kind is TypeKind.MAP:
        return _map_value(value, place)
    found = _array_call("element_at", value, converted("element_at", place, Argument.INT))
    if lenient and isinstance(found, Call):
        return Call(found.op, (*found.args, _TRUE), found.type)
    return found


def _get(args: Sequence[Expr]) -> Expr:
    _of("get()", args[0], TypeKind.ARRAY)
    return _array_call("get", args[0], converted("get", args[1], Argument.INT))


def _size(args: Sequence[Expr]) -> Expr:
    _of("size()", args[0], TypeKind.ARRAY, TypeKind.MAP)
    return Literal(None, INT) if is_null(args[0]) else Call("size", tuple(args), INT)


def _array(args: Sequence[Expr]) -> Expr:
    if not args:
        return Call("array", (), array_of(NULL))
    met = meet_all(args)
    return Call("array", tuple(met), array_of(met[0].type))


def _struct(args: Sequence[Expr]) -> Expr:
    """Typed call of ``named_struct(name, value, ...)``."""
    if len(args) % 2:
        raise QueryError(
            "bad-arguments",
            f"named_struct() takes names and values by turns, not {len(args)} arguments",
            remedy="write named_struct('a', x, 'b', y)",
        )
    names = [_name(one) for one in args[::2]]
    return struct(names, args[1::2])


def _name(arg: Expr) -> str:
    if not isinstance(arg, Literal) or not isinstance(arg.value, str):
        raise bad_literal("named_struct", arg, "it is no name", "write the name as a text: 'a'")
    return arg.value


def struct(names: Sequence[str], values: Sequence[Expr]) -> Expr:
    """Typed struct of ``values`` with these field names.

    Raises:
        QueryError: ``duplicate-name``.
    """
    for name in names:
        if not FIELD.fullmatch(name):
            reason = "a field's name is not empty, and has no backticks, braces and line ends"
            raise bad_literal("named_struct", repr(name), reason, "write another name")
    lowered = [name.lower() for name in names]
    for at, name in enumerate(lowered):
        if name in lowered[:at]:
            raise QueryError(
                "duplicate-name",
                f"two fields of a struct are called {names[at]!r}",
                remedy="give them different names: named_struct('a', x, 'b', y)",
            )
    kinds = [value.type for value in values]
    return Call("struct", tuple(values), struct_of(zip(names, kinds, strict=True)))


def _map(args: Sequence[Expr]) -> Expr:
    if len(args) % 2 or not args:
        raise QueryError(
            "bad-arguments",
            f"map() takes keys and values by turns, not {len(args)} arguments",
            remedy="write map('a', x, 'b', y)",
        )
    return _map_of([_array(args[::2]), _array(args[1::2])])


def _map_of(args: Sequence[Expr]) -> Expr:
    keys, values = (_of("map_from_arrays()", arg, TypeKind.ARRAY).element for arg in args)
    return Call("map_from_arrays", tuple(args), keyed(keys, values))


def keyed(keys: DataType, values: DataType) -> DataType:
    """The SQL type of a map with keys of type ``keys`` and values of type ``values``.

    Raises:
        QueryError: ``type-mismatch``: the keys have no equality.
    """
    if keys.kind in UNORDERED or keys.kind is TypeKind.NULL:
        raise QueryError(
            "type-mismatch",
            f"the keys of a map are of type {keys}",
            remedy="use a text or number as key",
        )
    return map_of(keys, values)


def _map_of_entries(args: Sequence[Expr]) -> Expr:
    kind = _of("map_from_entries()", args[0], TypeKind.ARRAY).element
    if is_null(args[0]):
        return args[0]
    if kind.kind is not TypeKind.STRUCT or len(kind.fields) != 2:
        raise QueryError(
            "type-mismatch",
            f"map_from_entries() takes an array of structs of two fields, but {args[0]} is of "
            f"type {args[0].type}",
            remedy=f"write map_from_entries(transform({args[0]}, x -> struct(..., ...)))",
        )
    return Call("map_from_entries", tuple(args), keyed(*(of for _, of in kind.fields)))


def _joined_maps(args: Sequence[Expr]) -> Expr:
    """Typed ``map_concat(map, ...)``: a map with the entries of all arguments."""
    for arg in args:
        _of("map_concat()", arg, TypeKind.MAP)
    if any(map(is_null, args)):
        return Literal(None, next((arg.type for arg in args if not is_null(arg)), NULL))
    met = meet_all(args)
    return _map_of_entries([_joined([_entries("map_entries")([one]) for one in met])])


def _entries(op: str) -> Made:
    def made(args: Sequence[Expr]) -> Expr:
        if is_null(args[0]):
            return Literal(None, array_of(NULL))
        kind = _of(f"{op}()", args[0], TypeKind.MAP)
        found = {
            "map_keys": kind.fields[0][1],
            "map_values": kind.element,
            "map_entries": struct_of(kind.fields),
        }[op]
        return Call(op, tuple(args), array_of(found))

    return made


def _contains_key(args: Sequence[Expr]) -> Expr:
    return _searched("array_contains", lambda _: BOOLEAN)([_entries("map_keys")(args[:1]), args[1]])


def _searched(op: str, result: Callable[[DataType], DataType]) -> Made:
    """Rewriting of a function of an array and a value to look for, such as ``array_contains``."""

    def made(args: Sequence[Expr]) -> Expr:
        array, value = args
        kind = _of(f"{op}()", array, TypeKind.ARRAY)
        if is_null(array) or is_null(value):
            return Literal(None, result(kind))
        array, value = _agreeing(op, array, value)
        return Call(op, (array, value), result(array.type))

    return made


def _agreeing(op: str, array: Expr, value: Expr) -> tuple[Expr, Expr]:
    """Typed arguments: an array and a value, cast so that elements and value have one type."""
    met = common_type(array.type.element, value.type)
    if met is None and isinstance(value, Literal):
        met = array.type.element
    if met is None:
        raise QueryError(
            "type-mismatch",
            f"{op}(): {array} is of type {array.type}, {value} of type {value.type}",
            remedy=f"write CAST({value} AS {str(array.type.element).upper()})",
        )
    require_comparable(f"{op}() of", value)
    return coerce(array, array_of(met)), coerce(value, met)


def _added(op: str) -> Made:
    """Rewriting of ``array_append(array, value)`` or ``array_prepend`` as a concatenation."""

    def made(args: Sequence[Expr]) -> Expr:
        _of(f"{op}()", args[0], TypeKind.ARRAY)
        one = _array(args[1:])
        return _joined([args[0], one] if op == "array_append" else [one, args[0]])

    return made


def _joined(args: Sequence[Expr]) -> Expr:
    """Typed concatenation of arrays."""
    for arg in args:
        _of("concat() of an array", arg, TypeKind.ARRAY)
    met = meet_all(args)
    return Call("array_concat", tuple(met), met[0].type)


def _same(op: str) -> Made:
    """SQL function of one array, or several of one type, that returns an array of this type."""

    def made(args: Sequence[Expr]) -> Expr:
        for arg in args:
            kind = _of(f"{op}()", arg, TypeKind.ARRAY)
            if kind.element.kind in UNORDERED and op not in ("array_reverse", "array_compact"):
                require_comparable(f"{op}() of", Call("get", (arg, Literal(0, INT)), kind.element))
        if any(map(is_null, args)):
            return Literal(None, args[0].type)
        met = meet_all(args)
        return Call(op, tuple(met), met[0].type)

    return made


def _overlap(args: Sequence[Expr]) -> Expr:
    found = _same("arrays_overlap")(args)
    return (
        Call(found.op, found.args, BOOLEAN) if isinstance(found, Call) else Literal(None, BOOLEAN)
    )


def _extreme(op: str) -> Made:
    def made(args: Sequence[Expr]) -> Expr:
        kind = _of(f"{op}()", args[0], TypeKind.ARRAY)
        if is_null(args[0]):
            return Literal(None, NULL)
        require_comparable(f"{op}() of", Call("get", (args[0], Literal(0, INT)), kind.element))
        return Call(op, tuple(args), kind.element)

    return made


def _sorted(args: Sequence[Expr]) -> Expr:
    ascending = converted("sort_array", args[1], Argument.BOOLEAN) if len(args) > 1 else _TRUE
    if not isinstance(ascending, Literal):
        raise bad_literal("sort_array", ascending, "it is no literal", "write true or false")
    found = _same("sort_array")(args[:1])
    return (
        Call(found.op, (*found.args, ascending), found.type) if isinstance(found, Call) else found
    )


def _sorted_nulls_last(args: Sequence[Expr]) -> Expr:
    found = _same("sort_array")(args)
    if not isinstance(found, Call):
        return found
    return Call("sort_array", (*found.args, _TRUE, _TRUE), found.type)


def _text_of(args: Sequence[Expr]) -> Expr:
    """Typed call of ``array_join(array, separator[, text for NULL])``."""
    kind = _of("array_join()", args[0], TypeKind.ARRAY)
    if is_null(args[0]):
        return Literal(None, STRING)
    if kind.element.kind in UNORDERED:
        _of("array_join()", args[0], TypeKind.STRING)
    texts = [converted("array_join", arg, Argument.PATTERN) for arg in args[1:]]
    if any(map(is_null, texts)):
        return Literal(None, STRING)
    return Call("array_join", (coerce(args[0], array_of(STRING)), *texts), STRING)


def _slice(args: Sequence[Expr]) -> Expr:
    kind = _of("slice()", args[0], TypeKind.ARRAY)
    bounds = [converted("slice", arg, Argument.INT) for arg in args[1:]]
    if any(map(is_null, [args[0], *bounds])):
        return Literal(None, kind)
    return Call("slice", (args[0], *bounds), kind)


def _flatten(args: Sequence[Expr]) -> Expr:
    kind = _of("flatten()", args[0], TypeKind.ARRAY)
    if is_null(args[0]):
        return args[0]
    _of("flatten() of an array of", Call("get", (args[0], Literal(0, INT)), kind.element),
        TypeKind.ARRAY)  # fmt: skip
    return Call("flatten", tuple(args), kind.element)


def _sequence(args: Sequence[Expr]) -> Expr:
    for arg in args:
        if arg.type.kind not in INTEGRAL and not is_null(arg):
            raise QueryError(
                "type-mismatch",
                f"sequence() takes integers, but {arg} is of type {arg.type}",
                remedy="write date_add(start, n) for days",
            )
    met = meet_all(args)
    return Call("sequence", tuple(met), array_of(met[0].type))


def _repeated(args: Sequence[Expr]) -> Expr:
    count = converted("array_repeat", args[1], Argument.INT)
    return Call("array_repeat", (args[0], count), array_of(args[0].type))


def _from_json(args: Sequence[Expr]) -> Expr:
    """Typed ``from_json(text, schema)``; a schema is columns (``a INT, b STRING``) or a type."""
    text = converted("from_json", args[0], Argument.TEXT)
    schema = converted("from_json", args[1], Argument.PATTERN)
    given = str(schema.value) if isinstance(schema, Literal) else ""
    kind = None
    for form in (given, f"struct<{given}>"):
        with suppress(PlannerError):
            kind = kind or parse_type(form)
    if kind is None or kind.kind not in NESTED:
        raise bad_literal(
            "from_json", schema, "it names no columns or nested type", "write 'a INT, b STRING'"
        )
    if kind.has(TypeKind.VARIANT):
        raise bad_literal(
            "from_json", schema, "it has a variant", "write variant_get(parse_json(text), path)"
        )
    if not kind.named:
        raise bad_literal("from_json", schema, "names in JSON are texts", "write map<string, ...>")
    return Call("from_json", (text, schema), kind)


def _to_json(args: Sequence[Expr]) -> Expr:
    if args[0].type.kind is TypeKind.VARIANT:
        return text(args[0])
    if args[0].type.has(TypeKind.VARIANT):
        raise QueryError(
            "type-mismatch",
            f"to_json() of {args[0]}, which is of type {args[0].type}, is not supported",
            remedy="write to_json(v) of each variant v, or get a struct: "
            "variant_get(v, '$', 'struct<...>')",
        )
    _of("to_json()", args[0], TypeKind.ARRAY, TypeKind.STRUCT, TypeKind.MAP)
    if is_null(args[0]):
        return Literal(None, STRING)
    # to_json writes intervals as texts, so cast them first.
    return Call("to_json", (coerce(args[0], _with_texts(args[0].type)),), STRING)


def _with_texts(kind: DataType) -> DataType:
    """The type ``kind`` with strings in place of intervals, at any depth, for to_json."""
    if kind.kind in INTERVALS:
        return STRING
    if not kind.fields:
        return kind
    return DataType(kind.kind, fields=tuple((name, _with_texts(of)) for name, of in kind.fields))


def joined_or(texts: Made) -> Made:
    """Typing of ``concat``: concatenates arrays if an argument is an array, else as ``texts``."""
    return lambda args: (
        _joined(args) if any(arg.type.kind is TypeKind.ARRAY for arg in args) else texts(args)
    )


def reversed_or(texts: Made) -> Made:
    """Typing of ``reverse``: of an array if the argument is an array, else by ``texts``."""
    return lambda args: (
        _same("array_reverse")(args) if args[0].type.kind is TypeKind.ARRAY else texts(args)
    )


def _identity(kind: DataType) -> DataType:
    return kind


#: SQL function of arrays, structs or maps -> rewriting of its calls.
COLLECTIONS: dict[str, Rewriting] = {
    "array": Rewriting(0, None, _array),
    "array_append": Rewriting(2, 2, _added("array_append")),
    "array_compact": Rewriting(1, 1, _same("array_compact")),
    "array_contains": Rewriting(2, 2, _searched("array_contains", lambda _: BOOLEAN)),
    "array_distinct": Rewriting(1, 1, _same("array_distinct")),
    "array_except": Rewriting(2, 2, _same("array_except")),
    "array_intersect": Rewriting(2, 2, _same("array_intersect")),
    "array_join": Rewriting(2, 3, _text_of),
    "array_max": Rewriting(1, 1, _extreme("array_max")),
    "array_min": Rewriting(1, 1, _extreme("array_min")),
    "array_position": Rewriting(2, 2, _searched("array_position", lambda _: BIGINT)),
    "array_prepend": Rewriting(2, 2, _added("array_prepend")),
    "array_remove": Rewriting(2, 2, _searched("array_remove", _identity)),
    "array_repeat": Rewriting(2, 2, _repeated),
    "array_sort": Rewriting(1, 1, _sorted_nulls_last),
    "array_union": Rewriting(2, 2, _same("array_union")),
    "arrays_overlap": Rewriting(2, 2, _overlap),
    **dict.fromkeys(("array_size", "cardinality", "size"), Rewriting(1, 1, _size)),
    "element_at": Rewriting(2, 2, element_at),
    "flatten": Rewriting(1, 1, _flatten),
    "from_json": Rewriting(2, 2, _from_json),
    "get": Rewriting(2, 2, _get),
    "map": Rewriting(0, None, _map),
    "map_concat": Rewriting(1, None, _joined_maps),
    "map_contains_key": Rewriting(2, 2, _contains_key),
    "map_entries": Rewriting(1, 1, _entries("map_entries")),
    "map_from_arrays": Rewriting(2, 2, _map_of),
    "map_from_entries": Rewriting(1, 1, _map_of_entries),
    "map_keys": Rewriting(1, 1, _entries("map_keys")),
    "map_values": Rewriting(1, 1, _entries("map_values")),
    "named_struct": Rewriting(2, None, _struct),
    "sequence": Rewriting(2, 3, _sequence),
    "slice": Rewriting(3, 3, _slice),
    "sort_array": Rewriting(1, 2, _sorted),
    "to_json": Rewriting(1, 1, _to_json),
    "try_element_at": Rewriting(2, 2, lambda args: element_at(args, lenient=True)),
}
