"""Names that Spark gives to SELECT items without AS, where they are certain.

A column keeps the user's spelling, also inside a cast. Any other item is named by the text that
Spark renders for its expression. Items whose text is not certain need ``AS``.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from sqlglot import exp

from anabranch_contract.queries.text_values import interval_text
from anabranch_contract.queries.types import (
    INTERVALS,
    NUMERIC,
    TIMESTAMPS,
    DataType,
    TypeKind,
    interval_of,
)
from anabranch_planner.binding.functions.rewrites import REWRITINGS
from anabranch_planner.binding.typecheck import cast_target, interval_literal
from anabranch_planner.sql import functions
from anabranch_planner.sql.clauses.everyday import CAST_CALL
from anabranch_planner.sql.unresolved import COLUMN, Node, bare

_INFIX: dict[type[Node], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.And: "AND",
    exp.Or: "OR",
}
_SUMS = (exp.Add, exp.Sub, exp.Mul)
_MOMENTS = TIMESTAMPS | {TypeKind.DATE}
_DAY = interval_of("day", "day")
_SUBSTRING_END = "2147483647"
#: Functions whose names Spark writes in capitals in column names.
_IN_CAPITALS = frozenset({
    "acos", "asin", "atan", "atan2", "ceil", "cos", "degrees", "e", "exp", "expm1", "floor",
    "hypot", "log", "log10", "log1p", "log2", "pi", "power", "radians", "regexp_like", "rlike",
    "signum", "sin", "sqrt", "tan",
})  # fmt: skip
#: Functions that Spark replaces by other functions in column names.
_OTHERWISE = frozenset({
    "charindex", "curdate", "date_add", "date_diff", "dateadd", "datediff", "isnotnull", "isnull",
    "mod", "months_between", "position", "regexp", "regexp_replace", "timezone", "to_char",
    "to_varchar", "try_variant_get", "variant_get",
})  # fmt: skip


#: Function that returns the type of an SQL expression, or None if the type is unknown.
Kind = Callable[[Node], DataType] | None


def spark_name(node: Node, kind: Kind = None) -> str | None:
    """Spark's name of the select item ``node``; None if the item needs ``AS``.

    Args:
        kind: returns the type of an operand; without it, sums with interval literals have no name.
    """
    inside = bare(node)
    if isinstance(inside, exp.Dot) and _is_path(inside):
        return str(inside.expression.name)
    if isinstance(inside, exp.JSONExtract):
        last = inside.expression.expressions[-1]
        return str(last.this) if isinstance(last, exp.JSONPathKey) else None
    if isinstance(inside, exp.Cast) and isinstance(bare(inside.this), exp.Column):
        return _text(inside.this, kind)
    return _text(inside, kind)


def _is_path(node: Node) -> bool:
    """Whether a SELECT item, ``node``, is a column, or a field of one at any depth of nesting."""
    while isinstance(node, exp.Dot):
        node = node.this
    return isinstance(node, exp.Column)


def _text(node: Node, kind: Kind) -> str | None:
    """Spark's text of an SQL expression in a column name; None if uncertain."""
    node = bare(node)
    if isinstance(node, exp.Column) or COLUMN in node.meta:
        return str(node.meta.get(COLUMN) or node.name)
    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else _number(str(node.this))
    if CAST_CALL in node.meta:
        return _text(node.this, kind)
    if isinstance(node, exp.Null):
        return "NULL"
    if isinstance(node, exp.CurrentDate):
        return "current_date()"
    if isinstance(node, exp.CurrentTimestamp):
        return "current_timestamp()"
    if isinstance(node, exp.Boolean):
        return "true" if node.this else "false"
    if isinstance(node, exp.Interval):
        found = interval_literal(node)
        return interval_text(found.value, found.type) if isinstance(found.value, int) else None
    if isinstance(node, exp.Case):
        return _case(node, kind)
    if isinstance(node, exp.Dot):
        inner = _text(node.this, kind)
        return None if inner is None else f"{inner}.{node.expression.name}"
    parts = _sum(node, kind) if isinstance(node, _SUMS) else _template(node)
    if parts is None:
        return None
    template, arguments = parts
    texts = [_text(a, kind) for a in arguments]
    if any(t is None for t in texts):
        return None
    return template.format(*texts, all=", ".join(t or "" for t in texts))


def _sum(node: Node, kind: Kind) -> tuple[str, list[Node]] | None:
    """Spark's name of a sum, difference or product; without parentheses if it adds an interval to a
    date or timestamp."""
    left, right, symbol = bare(node.this), bare(node.expression), _INFIX[type(node)]
    literals = [isinstance(side, exp.Interval) for side in (left, right)]
    # `INTERVAL 1 YEAR 2 MONTHS` is parsed as a sum.
    if all(literals) or (any(literals) and kind is None):
        return None
    template = f"({{}} {symbol} {{}})"
    if kind is None:
        return template, [left, right]
    types = [kind(side) for side in (left, right)]
    a, b = types[0].kind, types[1].kind
    if (a in INTERVALS and b in _MOMENTS) or (a in NUMERIC and b in INTERVALS):
        left, right, types = right, left, types[::-1]
    if types[1].kind in INTERVALS and types[0].kind in _MOMENTS:
        template = f"{{}} {symbol} {{}}"
        if types[0].kind is TypeKind.DATE and types[1] == _DAY:
            days = "extractansiintervaldays({})"
            days = days if isinstance(node, exp.Add) else f"(- {days})"
            template = f"date_add({{}}, {days})"
    return template, [left, right]


def _template(node: Node) -> tuple[str, list[Node]] | None:
    """Spark's name of a computed column, as a format string and the operands to fill in."""
    infix = _INFIX.get(type(node))
    if infix is not None:
        chain = isinstance(node, exp.And | exp.Or)
        # Spark rebalances chains of AND or OR, so its name is certain only with two operands.
        if chain and (isinstance(node.this, type(node)) or isinstance(node.expression, type(node))):
            return None
        return f"({{}} {infix} {{}})", [node.this, node.expression]
    if isinstance(node, exp.NEQ):
        return "(NOT ({} = {}))", [node.this, node.expression]
    if isinstance(node, exp.Neg):
        literal = isinstance(node.this, exp.Literal) and not node.this.is_string
        return ("-{}" if literal else "(- {})"), [node.this]
    if isinstance(node, exp.Not):
        inner = bare(node.this)
        if isinstance(node.this, exp.Is) and isinstance(inner.expression, exp.Null):
            return "({} IS NOT NULL)", [inner.this]
        return "(NOT {})", [node.this]
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return "({} IS NULL)", [node.this]
    if isinstance(node, exp.Between):
        return "between({}, {}, {})", [node.this, node.args["low"], node.args["high"]]
    if isinstance(node, exp.In):
        items = ", ".join("{}" for _ in node.expressions)
        return f"({{}} IN ({items}))", [node.this, *node.expressions]
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1:
        return "{}[{}]", [node.this, node.expressions[0]]
    if isinstance(node, exp.Like):
        return ("(NOT {} LIKE {})" if node.args.get("negate") else "{} LIKE {}"), [
            node.this,
            node.expression,
        ]
    if isinstance(node, exp.DPipe):
        return "concat({}, {})", [node.this, node.expression]
    if isinstance(node, exp.Trim):
        return "trim({})", [node.this]
    if isinstance(node, exp.If) and node.args.get("false") is not None:
        return "(IF({}, {}, {}))", [node.this, node.args["true"], node.args["false"]]
    if isinstance(node, exp.Cast) and not isinstance(bare(node.this), exp.Literal):
        return f"CAST({{}} AS {str(cast_target(node)).upper()})", [node.this]
    if isinstance(node, exp.Anonymous):
        return _function(node)
    return None


def _function(node: exp.Anonymous) -> tuple[str, list[Node]] | None:
    name = str(node.this).lower()
    if functions.FUNCTION in node.meta:
        return f"{name}({{all}})", list(node.expressions)
    if name in ("substr", "substring"):
        end = f", {_SUBSTRING_END}" if len(node.expressions) == 2 else ""
        return f"{name}({{all}}{end})", list(node.expressions)
    if name in _IN_CAPITALS:
        return f"{name.upper()}({{all}})", list(node.expressions)
    found = REWRITINGS.get(name)
    if found is not None and name not in _OTHERWISE:
        # Spark's name shows the defaults of missing arguments.
        plain = name in ("greatest", "least") or found.most in (None, len(node.expressions))
    else:
        plain = functions.is_known(name) or name in functions.MEETING
    return (f"{name}({{all}})", list(node.expressions)) if plain else None


def _case(node: exp.Case, kind: Kind) -> str | None:
    """Spark's text of a CASE expression in a column name; None if uncertain."""
    subject = _text(node.this, kind) if node.this is not None else None
    if node.this is not None and subject is None:
        return None
    words = ["CASE"]
    for branch in node.args["ifs"]:
        condition, value = _text(branch.this, kind), _text(branch.args["true"], kind)
        if condition is None or value is None:
            return None
        words += ["WHEN", condition if subject is None else f"({subject} = {condition})"]
        words += ["THEN", value]
    default = node.args.get("default")
    if default is not None:
        value = _text(default, kind)
        if value is None:
            return None
        words += ["ELSE", value]
    return " ".join([*words, "END"])


def _number(text: str) -> str | None:
    """An exact numeric literal in plain notation; None for a double (Spark prints it as Java)."""
    return None if "e" in text.lower() else f"{Decimal(text):f}"
