"""Typing of parsed SQL expressions: resolves names, and makes Spark's implicit casts explicit.

Spark silently converts between families of types (string and number, date and timestamp). Here,
such a conversion of a literal is made explicit, and one of a column is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from sqlglot import exp

from anabranch_contract.errors import PlannerError, QueryError
from anabranch_contract.queries.coercion import (
    INT,
    STRING,
    arithmetic_type,
    as_decimal,
    castable,
    decimal_of,
)
from anabranch_contract.queries.expressions import (
    BOOLEAN,
    NULL,
    Call,
    Column,
    Expr,
    Literal,
    columns,
)
from anabranch_contract.queries.types import (
    INTEGRAL,
    INTERVALS,
    NESTED,
    NUMERIC,
    TIMESTAMPS,
    DataType,
    TypeKind,
    parse_type,
)
from anabranch_contract.queries.views import PLACE
from anabranch_planner.binding.calendar import of_times
from anabranch_planner.binding.common_types import meet, meet_all, mismatch, typed_null, widest
from anabranch_planner.binding.functions import lambdas, variants
from anabranch_planner.binding.functions import rewrites as rewritten
from anabranch_planner.binding.functions.absent import refusal
from anabranch_planner.binding.functions.collections import (
    field_of,
    item_of,
    require_comparable,
    struct,
)
from anabranch_planner.binding.functions.numbers import bits, quotient
from anabranch_planner.binding.functions.texts import trimmed
from anabranch_planner.binding.functions.user_functions import call_of
from anabranch_planner.binding.literals import cast_literal, coerce, interval, negated, number
from anabranch_planner.binding.rows import expanded
from anabranch_planner.sql import functions
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.unresolved import NAMED, Node, at, describe, operands, unsupported

#: Comparison operator -> equivalent operator with exchanged operands.
MIRRORED = {
    "eq": "eq", "ne": "ne", "eq_null_safe": "eq_null_safe", "lt": "gt", "gt": "lt", "le": "ge",
    "ge": "le",
}  # fmt: skip
COMPARISONS: dict[type[Node], str] = {
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.NullSafeEQ: "eq_null_safe",
}
_ORDER = frozenset({"lt", "le", "gt", "ge"})
_ARITHMETIC: dict[type[Node], str] = {
    exp.Add: "add",
    exp.Sub: "sub",
    exp.Mul: "mul",
    exp.Div: "div",
    exp.Mod: "mod",
}
_ELSEWHERE = "write it in SELECT, WHERE, HAVING or the ON of an inner join of a SQL statement"
_REFUSED: dict[type[Node], tuple[str, str]] = {
    exp.Window: (
        "a window function",
        "keep the first rows with QUALIFY row_number() OVER (...) <= n; use others where the "
        "results are read",
    ),
    **dict.fromkeys((exp.Subquery, exp.Select), ("a subquery here", _ELSEWHERE)),
    exp.Exists: ("EXISTS here", _ELSEWHERE),
    exp.Tuple: ("a row inside an expression", "write struct(x, y)"),
    exp.Parameter: ("a parameter @x", "write :x, and its value in parameters"),
    exp.Array: ("an array before [...]", "write get(array(x, y), 0), from 0"),
    exp.Star: ("* inside an expression", "name the columns"),
}


def typed(node: Node, scope: Scope) -> Expr:
    """The typed expression of the SQL ``node``; columns have the aliases declared in FROM.

    Raises:
        QueryError: an unknown name, an unsupported construct, or types that don't fit.
    """
    with at(node):
        return _typed(node, scope)


def _typed(node: Node, scope: Scope) -> Expr:
    if isinstance(node, exp.Paren):
        return typed(node.this, scope)
    compared = expanded(node)
    if compared is not node:
        return typed(compared, scope)
    if isinstance(node, exp.Column):
        return _column(node, scope)
    if isinstance(node, exp.And | exp.Or):
        return _connective(node, scope)
    comparison = COMPARISONS.get(type(node))
    if comparison:
        return compare(comparison, typed(node.this, scope), typed(node.expression, scope))
    operation = _ARITHMETIC.get(type(node))
    if operation:
        return arithmetic(operation, typed(node.this, scope), typed(node.expression, scope))
    rule = _RULES.get(type(node))
    if rule is None:
        what, remedy = _REFUSED.get(type(node), (describe(node), "leave it out"))
        raise unsupported(what, remedy)
    return rule(node, scope)


def boolean(node: Node, scope: Scope) -> Expr:
    """The typed expression of a condition, which must be boolean."""
    return _require_boolean(typed(node, scope), node)


def compare(op: str, left: Expr, right: Expr) -> Expr:
    """A typed comparison, with both sides cast to the type in which Spark compares them.

    Raises:
        QueryError: ``type-mismatch``.
    """
    for side in (left, right):
        require_comparable("the comparison of", side)
    left, right = meet(left, right, widest if op in _ORDER else None)
    return Call(op, (left, right), BOOLEAN)


def arithmetic(op: str, left: Expr, right: Expr) -> Expr:
    """Typed ``left op right`` of numbers, timestamps and intervals.

    Raises:
        QueryError: ``type-mismatch``.
    """
    left, right = typed_null(left, right.type), typed_null(right, left.type)
    a, b = left.type.kind, right.type.kind
    if a in NUMERIC and b in NUMERIC:
        return _numeric(op, left, right)
    if op in ("add", "sub"):
        if a is TypeKind.DATE and b in INTEGRAL:
            return rewritten.call("date_add" if op == "add" else "date_sub", [left, right])
        if op == "add" and a in INTEGRAL and b is TypeKind.DATE:
            return rewritten.call("date_add", [right, left])
    found = of_times(op, left, right)
    if found is not None:
        return found
    sign = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}[op]
    raise QueryError(
        "type-mismatch",
        f"{left} {sign} {right} has operands of types {left.type} and {right.type}",
        remedy="add intervals to dates, timestamps or intervals of the same units, such as "
        "DATE '1994-01-31' + INTERVAL '1' MONTH; multiply or divide them by numbers"
        if {a, b} & INTERVALS
        else "cast dates to TIMESTAMP and text to a number first, e.g. CAST(x AS INT)",
    )


def balanced(op: str, parts: Sequence[Expr]) -> Expr:
    """Typed ``parts`` connected by ``op`` (AND or OR), as a tree of logarithmic depth."""
    if len(parts) == 1:
        return parts[0]
    middle = (len(parts) + 1) // 2
    return Call(op, (balanced(op, parts[:middle]), balanced(op, parts[middle:])), BOOLEAN)


def aliases(expr: Expr) -> frozenset[str]:
    """The aliases that a typed expression reads."""
    return frozenset(column.alias for column in columns(expr))


def _require_boolean(expr: Expr, node: Node) -> Expr:
    if expr.type == NULL:
        return Literal(None, BOOLEAN)
    if expr.type.kind is not TypeKind.BOOLEAN:
        raise QueryError(
            "type-mismatch",
            f"{describe(node)} is used as a condition, but is of type {expr.type}",
            remedy="compare the value with another one, such as x <> 0",
        )
    return expr


def _numeric(op: str, left: Expr, right: Expr) -> Expr:
    def operand_type(side: Expr, other: Expr) -> DataType:
        value = side.value if isinstance(side, Literal) else None
        if other.type.kind is TypeKind.DECIMAL and isinstance(value, int):
            return decimal_of(value)
        return side.type

    left_type, right_type = operand_type(left, right), operand_type(right, left)
    result = arithmetic_type(op, left_type, right_type)
    if result is None:
        raise mismatch(left, right)
    if result.kind is TypeKind.DECIMAL:
        args = (coerce(left, as_decimal(left_type)), coerce(right, as_decimal(right_type)))
    else:
        args = (coerce(left, result), coerce(right, result))
    return Call(op, args, result)


# --- one function per type of syntax node -------------------------------------------------------


def _column(node: exp.Column, scope: Scope) -> Expr:
    if not isinstance(node.this, exp.Identifier):
        raise unsupported(f"{describe(node)}", "write alias.column, or alias.column.field")
    parts = [part.name for part in node.parts]
    own = 2 if len(parts) > 1 and (scope.find_table(parts[0]) or not scope.has(parts[0])) else 1
    return reduce(field_of, parts[own:], scope.column(*parts[:own][::-1]))


def _connective(node: Node, scope: Scope) -> Expr:
    kind: type[Node] = exp.And if isinstance(node, exp.And) else exp.Or
    parts = [boolean(part, scope) for part in operands(node, kind)]
    return balanced("and" if kind is exp.And else "or", parts)


def _not(node: Node, scope: Scope) -> Expr:
    inner = boolean(node.this, scope)
    if isinstance(inner, Call) and inner.op == "is_null":
        return Call("is_not_null", inner.args, BOOLEAN)
    return Call("not", (inner,), BOOLEAN)


def _is(node: Node, scope: Scope) -> Expr:
    tested, against = typed(node.this, scope), node.expression
    if isinstance(against, exp.Null):
        return Call("is_null", (tested,), BOOLEAN)
    if isinstance(against, exp.Boolean):
        truth = Literal(bool(against.this), BOOLEAN)
        return Call("eq_null_safe", (_require_boolean(tested, node.this), truth), BOOLEAN)
    raise unsupported(f"{describe(node)}", "use IS NULL")


_BITS: dict[type[Node], str] = {
    exp.BitwiseAnd: "bit_and",
    exp.BitwiseOr: "bit_or",
    exp.BitwiseXor: "bit_xor",
}


def _bitwise(node: Node, scope: Scope) -> Expr:
    return bits(_BITS[type(node)], [typed(node.this, scope), typed(node.expression, scope)])


def _between(node: Node, scope: Scope) -> Expr:
    low, high = split_between(node)
    return Call("and", (typed(low, scope), typed(high, scope)), BOOLEAN)


def split_between(node: Node) -> tuple[Node, Node]:
    """Rewrite the SQL ``x BETWEEN low AND high`` as its two comparisons."""
    if node.args.get("symmetric"):
        raise unsupported("BETWEEN SYMMETRIC", "order the limits")
    return (
        exp.GTE(this=node.this, expression=node.args["low"]),
        exp.LTE(this=node.this, expression=node.args["high"]),
    )


def _in(node: Node, scope: Scope) -> Expr:
    if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
        raise unsupported("IN with a subquery", "join the stream")
    tested = typed(node.this, scope)
    items = [typed(item, scope) for item in node.expressions]
    if not items:
        raise QueryError("malformed-sql", "the list of IN is empty", remedy="give it a value")
    require_comparable("IN of", tested)
    pairs = [meet(tested, item) for item in items]
    if not all(isinstance(item, Literal) for item in items):
        return balanced("or", [Call("eq", pair, BOOLEAN) for pair in pairs])
    left = meet_all([pair[0] for pair in pairs])[0]
    return Call("in", (left, *(coerce(pair[1], left.type) for pair in pairs)), BOOLEAN)


def _escape(node: Node, scope: Scope) -> Expr:
    inner, escape = node.this, node.expression
    if not isinstance(inner, exp.Like | exp.ILike) or not isinstance(inner.expression, exp.Literal):
        raise unsupported(f"{describe(node)}", "use LIKE")
    changed = inner.copy()
    pattern = rewritten.escaped(str(inner.expression.this), str(escape.this))
    changed.set("expression", exp.Literal.string(pattern))
    return typed(changed, scope)


def _extract(node: Node, scope: Scope) -> Expr:
    return rewritten.part_of(str(node.this), typed(node.expression, scope))


def _like(node: Node, scope: Scope) -> Expr:
    text, pattern = typed(node.this, scope), node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string):
        raise QueryError(
            "unsupported-sql",
            f"{describe(node)} is not supported: its pattern is not a literal",
            remedy="write LIKE 'pattern'",
        )
    if text.type.kind is not TypeKind.STRING:
        raise QueryError(
            "type-mismatch",
            f"LIKE is applied to {text}, which is of type {text.type}",
            remedy=f"write CAST({text} AS STRING) LIKE ...",
        )
    value = pattern.this
    bare = value.replace("\\\\", "").replace("\\%", "").replace("\\_", "")
    if "\\" in bare:
        raise QueryError(
            "bad-literal",
            f"in the pattern {value!r} a backslash stands before an ordinary character",
            remedy="write \\% or \\_ for the characters themselves, \\\\ for a backslash",
        )
    if isinstance(node, exp.ILike):
        text, value = functions.call("lower", [text]), rewritten.lowered(value)
    like = Call("like", (text, Literal(value, parse_type("string"))), BOOLEAN)
    return Call("not", (like,), BOOLEAN) if node.args.get("negate") else like


def _literal(node: Node, scope: Scope) -> Expr:
    if node.args.get("is_string"):
        return Literal(str(node.this), parse_type("string"))
    return number(str(node.this))


def _concat_literal(node: Node, scope: Scope) -> Expr:
    parts = [typed(part, scope) for part in node.expressions]
    return Literal("".join(str(p.value) for p in parts if isinstance(p, Literal)), parts[0].type)


def _neg(node: Node, scope: Scope) -> Expr:
    inner = typed(node.this, scope)
    if isinstance(inner, Literal):
        return negated(inner)
    if inner.type.kind not in NUMERIC | INTERVALS:
        raise QueryError(
            "type-mismatch", f"-{inner}: {inner} is of type {inner.type}", remedy="cast it first"
        )
    return Call("neg", (inner,), inner.type)


def interval_literal(node: Node) -> Literal:
    """The literal of an interval.

    Raises:
        QueryError: ``bad-interval``; ``unsupported-sql``: its length is not a literal.
    """
    value, unit = node.this, node.args.get("unit")
    sign = ""
    while isinstance(value, exp.Neg | exp.Paren):
        sign = ("" if sign else "-") if isinstance(value, exp.Neg) else sign
        value = value.this
    if not isinstance(value, exp.Literal):
        raise QueryError(
            "unsupported-sql",
            f"{describe(node)} is not supported: its length is not a literal",
            remedy="write e.g. INTERVAL '5' MINUTE",
        )
    found = interval(str(value.this), unit.sql(dialect="spark") if unit is not None else None)
    return negated(found) if sign else found


def cast_target(node: Node) -> DataType:
    """The type that an SQL cast names.

    Raises:
        QueryError: ``unknown-type``.
    """
    target: Node = node.args["to"]
    name = target.sql(dialect="spark")
    try:
        return parse_type(name)
    except PlannerError as cause:
        raise QueryError(cause.code, cause.message, remedy=cause.remedy) from cause


def _cast(node: Node, scope: Scope) -> Expr:
    target = cast_target(node)
    if node.args.get("format") or node.args.get("action"):
        raise unsupported("CAST ... FORMAT", "use CAST")
    inner = typed(node.this, scope)
    if inner.type.kind is TypeKind.VARIANT:
        lenient = isinstance(node, exp.TryCast)
        return variants.part_of(inner, "$", target, lenient=lenient)
    if not castable(inner.type, target):
        nested = inner.type.kind in NESTED
        raise QueryError(
            "type-mismatch",
            f"{inner} of type {inner.type} can't be cast to {target}",
            remedy=f"write parse_json({f'to_json({inner})' if nested else inner})"
            if target.kind is TypeKind.VARIANT
            else "cast the value by way of another type",
        )
    if isinstance(inner, Literal):
        folded = cast_literal(inner, target)
        if folded is not None:
            return folded
        if isinstance(node, exp.TryCast):
            return Call("try", (Call("cast", (inner,), target),), target)
        parsed = target.kind in TIMESTAMPS | INTERVALS | {TypeKind.DATE, TypeKind.BOOLEAN}
        if parsed and inner.type.kind is TypeKind.STRING:
            raise QueryError(
                "bad-literal",
                f"{inner} is not of type {target}",
                remedy="write e.g. TIMESTAMP '2024-01-31 12:00:00', DATE '2024-01-31', "
                "INTERVAL '1:30' HOUR TO MINUTE",
            )
    if isinstance(node, exp.TryCast) and inner.type != target:
        return Call("try", (Call("cast", (inner,), target),), target)
    return coerce(inner, target)


def _case(node: Node, scope: Scope) -> Expr:
    subject = typed(node.this, scope) if node.this is not None else None
    conditions, values = [], []
    for branch in node.args["ifs"]:
        conditions.append(
            boolean(branch.this, scope)
            if subject is None
            else compare("eq", subject, typed(branch.this, scope))
        )
        values.append(typed(branch.args["true"], scope))
    default = node.args.get("default")
    if default is not None:
        values.append(typed(default, scope))
    return _typed_case(conditions, values)


def _if(node: Node, scope: Scope) -> Expr:
    values = [node.args["true"], *([node.args["false"]] if node.args.get("false") else [])]
    return _typed_case([boolean(node.this, scope)], [typed(v, scope) for v in values])


def _typed_case(conditions: Sequence[Expr], values: Sequence[Expr]) -> Expr:
    met = meet_all(values)
    args: list[Expr] = []
    for condition, value in zip(conditions, met, strict=False):
        args += [condition, value]
    args += met[len(conditions) :]
    return Call("case", tuple(args), met[0].type)


def _trim(node: Node, scope: Scope) -> Expr:
    characters, side = node.args.get("expression"), node.args.get("position") or "BOTH"
    text = typed(node.this, scope)
    if characters is None and side == "BOTH":
        return functions.call("trim", [text])
    return trimmed(side, text, None if characters is None else typed(characters, scope))


def _typed_function(node: Node, scope: Scope) -> Expr:
    name = str(node.this).lower()
    if functions.FUNCTION in node.meta:
        return call_of(node.meta[functions.FUNCTION], [typed(a, scope) for a in node.expressions])
    if name in rewritten.REWRITINGS and (node.expressions or functions.is_repeatable(name)):
        given = list(node.expressions)
        if name == "position" and len(given) == 1 and isinstance(given[0], exp.In):
            given = [given[0].this, given[0].args.get("field") or given[0]]
        return rewritten.call(name, [typed(arg, scope) for arg in given])
    if name in BY_MEETING:
        return BY_MEETING[name](node, scope)
    if name not in functions.MEETING:
        # Report an unknown function rather than errors in its arguments.
        if not functions.is_known(name):
            if (refused := refusal(name, node.expressions)) is not None:
                raise refused
            written = f"{name}({', '.join(map(describe, node.expressions))})"
            raise functions.unknown(name, [*rewritten.REWRITINGS, *BY_MEETING], written)
        return functions.call(name, [typed(arg, scope) for arg in node.expressions])
    functions.check_arity(name, len(node.expressions), *functions.MEETING[name])
    met = meet_all([typed(arg, scope) for arg in node.expressions])
    return met[0] if len(met) == 1 else Call("coalesce", tuple(met), met[0].type)


def _nullif(node: Node, scope: Scope) -> Expr:
    functions.check_arity("nullif", len(node.expressions), 2, 2)
    value, other = (typed(arg, scope) for arg in node.expressions)
    return Call("case", (compare("eq", value, other), Literal(None, value.type), value), value.type)


def _nvl2(node: Node, scope: Scope) -> Expr:
    functions.check_arity("nvl2", len(node.expressions), 3, 3)
    tested, *values = (typed(arg, scope) for arg in node.expressions)
    return _typed_case([Call("is_not_null", (tested,), BOOLEAN)], values)


def _mod(node: Node, scope: Scope) -> Expr:
    functions.check_arity("mod", len(node.expressions), 2, 2)
    left, right = (typed(arg, scope) for arg in node.expressions)
    return arithmetic("mod", left, right)


def _date_part(node: Node, scope: Scope) -> Expr:
    functions.check_arity(str(node.this).lower(), len(node.expressions), 2, 2)
    part, moment = (typed(arg, scope) for arg in node.expressions)
    if not isinstance(part, Literal) or not isinstance(part.value, str):
        raise unsupported(
            "date_part() of a part that is not a literal", "write date_part('year', x)"
        )
    return rewritten.part_of(part.value, moment)


def _bracket(node: Node, scope: Scope) -> Expr:
    """The typed expression of ``array[place]`` or ``map[key]``."""
    if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        raise unsupported(f"{describe(node)}", "write slice(x, start, length)")
    return item_of(typed(node.this, scope), typed(node.expressions[0], scope))


def _dot(node: Node, scope: Scope) -> Expr:
    """The typed expression of ``struct.field``."""
    if not isinstance(node.expression, exp.Identifier):
        raise unsupported(f"{describe(node)}", "write value.field")
    inner = node.this
    if isinstance(inner, exp.Column) and not inner.table and not scope.has(inner.name):
        scope.table(inner.name)
    return field_of(typed(inner, scope), node.expression.name)


def _json_path(node: Node, scope: Scope) -> Expr:
    """Typed ``x:a.b[0]``: the value at a path of a variant, or of a JSON text, as a text."""
    path = "$"
    for step in node.expression.expressions[1:]:
        if isinstance(step, exp.JSONPathKey) and "'" not in str(step.this):
            path += f"['{step.this}']"
        elif isinstance(step, exp.JSONPathSubscript) and isinstance(step.this, int):
            path += f"[{step.this}]"
        else:
            raise unsupported(f"{describe(node)}, a path with other steps,", "write x:a.b[0].c")
    value = typed(node.this, scope)
    if value.type.kind is TypeKind.VARIANT:
        return variants.part_of(value, path, variants.VARIANT)
    if value.type.kind not in (TypeKind.STRING, TypeKind.NULL):
        raise QueryError(
            "type-mismatch",
            f"{value} is of type {value.type}, and x:path reads JSON texts",
            remedy="write x.field for a field of a struct, and from_json(x, 'a INT') for a struct",
        )
    return rewritten.call("get_json_object", [value, Literal(path, STRING)])


def _struct(node: Node, scope: Scope) -> Expr:
    """Typed ``struct(x, y AS b)``: columns keep their names, other values are col1, col2 ..."""
    functions.check_arity("struct", len(node.expressions), 1, None)
    names = [
        str(one.meta.get(NAMED, one.alias_or_name))
        if isinstance(one, exp.Alias | exp.Column | exp.Dot)
        else f"col{at}"
        for at, one in enumerate(node.expressions, 1)
    ]
    values = [one.this if isinstance(one, exp.Alias) else one for one in node.expressions]
    return struct(names, [typed(value, scope) for value in values])


def _tried(node: Node, scope: Scope) -> Expr:
    """Typed ``try_add(a, b)`` and similar functions: NULL where the arithmetic fails."""
    name = str(node.this).lower()
    functions.check_arity(name, len(node.expressions), 2, 2)
    left, right = (typed(arg, scope) for arg in node.expressions)
    found = arithmetic(_TRIED[name], left, right)
    return Call("try", (found,), found.type) if isinstance(found, Call) else found


def _decode(node: Node, scope: Scope) -> Expr:
    """Typed ``decode(x, search, result, ..., default)``; a NULL ``x`` matches a NULL ``search``."""
    functions.check_arity("decode", len(node.expressions), 3, None)
    tested, *others = node.expressions
    pairs, default = others[: len(others) // 2 * 2], others[len(others) // 2 * 2 :]
    conditions = [
        compare("eq_null_safe", typed(tested, scope), typed(one, scope)) for one in pairs[::2]
    ]
    return _typed_case(conditions, [typed(one, scope) for one in [*pairs[1::2], *default]])


def _iff(node: Node, scope: Scope) -> Expr:
    """Typed ``iff(condition, value, other)``, rewritten as ``if``."""
    functions.check_arity("iff", len(node.expressions), 3, 3)
    condition, *values = node.expressions
    return _typed_case([boolean(condition, scope)], [typed(value, scope) for value in values])


def _typeof(node: Node, scope: Scope) -> Expr:
    """Typed ``typeof(x)``: the name of the argument's type, as a constant."""
    functions.check_arity("typeof", len(node.expressions), 1, 1)
    kind = typed(node.expressions[0], scope).type
    return Literal("void" if kind == NULL else str(kind), parse_type("string"))


_TRIED = {"try_add": "add", "try_divide": "div", "try_multiply": "mul", "try_subtract": "sub"}
#: SQL function -> typing, if arguments need a common type or the function is rewritten.
BY_MEETING: dict[str, Callable[[Node, Scope], Expr]] = {
    "nullif": _nullif,
    "nvl2": _nvl2,
    "mod": _mod,
    "date_part": _date_part,
    "datepart": _date_part,
    "decode": _decode,
    "iff": _iff,
    "struct": _struct,
    "typeof": _typeof,
    **dict.fromkeys(_TRIED, _tried),
    **dict.fromkeys(
        lambdas.FUNCTIONS_OF_FUNCTIONS, lambda node, scope: lambdas.call(node, scope, typed)
    ),
}


def _after_aggregate(node: Node, scope: Scope) -> Expr:
    """Reject FILTER, WITHIN GROUP or IGNORE NULLS after an expression that is not an aggregate. An
    aggregate in a wrong place gets an error of its own elsewhere."""
    typed(node.this, scope)
    kind = "FILTER" if isinstance(node, exp.Filter) else "WITHIN GROUP or IGNORE NULLS"
    raise unsupported(
        f"{kind} after an expression that is not an aggregate", "write it after an aggregate"
    )


def _placeholder(node: Node, _: Scope) -> Expr:
    if node.this is None:
        raise unsupported("a parameter ?", "write :x, and its value in parameters")
    if node.this != PLACE:
        raise QueryError(
            "missing-parameter",
            f"the statement has a parameter :{node.name}, which has no value",
            remedy="give it a value in parameters",
        )
    return Column("", PLACE, INT)


_RULES: dict[type[Node], Callable[[Node, Scope], Expr]] = {
    exp.CurrentDate: lambda node, _: rewritten.call("current_date", node.expressions),
    exp.CurrentTimestamp: lambda node, _: rewritten.call("current_timestamp", node.expressions),
    exp.Placeholder: _placeholder,
    exp.JSONExtract: _json_path,
    exp.Identifier: lambdas.parameter,
    exp.Filter: _after_aggregate,
    exp.WithinGroup: _after_aggregate,
    exp.IgnoreNulls: _after_aggregate,
    exp.RespectNulls: _after_aggregate,
    exp.Not: _not,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.RegexpLike: lambda node, scope: rewritten.call(
        "rlike", [typed(node.this, scope), typed(node.expression, scope)]
    ),
    exp.IntDiv: lambda node, scope: quotient(
        typed(node.this, scope), typed(node.expression, scope)
    ),
    exp.TryCast: _cast,
    exp.Bracket: _bracket,
    exp.Dot: _dot,
    exp.BitwiseNot: lambda node, scope: bits("bit_not", [typed(node.this, scope)]),
    **dict.fromkeys(_BITS, _bitwise),
    exp.NullSafeNEQ: lambda node, scope: Call(
        "not",
        (compare("eq_null_safe", typed(node.this, scope), typed(node.expression, scope)),),
        BOOLEAN,
    ),
    exp.Extract: _extract,
    exp.Literal: _literal,
    exp.RawString: lambda node, _: Literal(str(node.this), parse_type("string")),
    exp.HexString: lambda node, _: Literal(str(node.this).lower(), parse_type("binary")),
    exp.Concat: _concat_literal,
    exp.Boolean: lambda node, _: Literal(bool(node.this), BOOLEAN),
    exp.Null: lambda node, _: Literal(None, NULL),
    exp.Neg: _neg,
    exp.Interval: lambda node, _: interval_literal(node),
    exp.Cast: _cast,
    exp.Case: _case,
    exp.If: _if,
    exp.Trim: _trim,
    exp.Anonymous: _typed_function,
    exp.DPipe: lambda node, scope: rewritten.call(
        "concat", [typed(node.this, scope), typed(node.expression, scope)]
    ),
}
