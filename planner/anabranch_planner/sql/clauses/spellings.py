"""Common calls of other systems rewritten as Spark's: JSON operators, ``= ANY(array)``, ``FILTER``
with ``OVER``, lists of percentiles, several columns of a JSON text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.aggregates import TOTALS, call_over, function_over, holds_aggregate
from anabranch_planner.sql.unresolved import Node, as_written, at, describe, not_null, unsupported

#: Key in a JSON path's metadata: the path as text.
PATH = "path"
_PERCENTILES = frozenset({"approx_percentile", "percentile", "percentile_approx"})
#: Types that Spark lacks and that the parser reads as other types -> type to recommend.
_UNREAD = {"BIT": "BOOLEAN", "UUID": "STRING"}
#: Digits after the point in the seconds of a timestamp.
_MICROS = 6
#: Parameters of ``make_interval``, in order.
_PARTS = ("years", "months", "weeks", "days", "hours", "mins", "secs")
#: Comparison with all rows or some row of a subquery -> aggregates that decide it.
_DECIDING: dict[tuple[type[Node], type[Node]], tuple[str, ...]] = {
    (exp.GT, exp.All): ("max",), (exp.GTE, exp.All): ("max",),
    (exp.LT, exp.All): ("min",), (exp.LTE, exp.All): ("min",),
    (exp.GT, exp.Any): ("min",), (exp.GTE, exp.Any): ("min",),
    (exp.LT, exp.Any): ("max",), (exp.LTE, exp.Any): ("max",),
    (exp.EQ, exp.All): ("min", "max"), (exp.NEQ, exp.Any): ("min", "max"),
}  # fmt: skip
#: Units of ``FLOOR(ts TO unit)``.
_UNITS = frozenset({
    "second", "minute", "hour", "day", "week", "month", "quarter", "year", "millisecond",
})  # fmt: skip


def respell(statement: Node) -> None:
    """Replace calls of other systems in ``statement`` that this module knows, innermost first.

    Raises:
        QueryError: ``unsupported-sql``, ``unnamed-output``.
    """
    for node in reversed(list(statement.walk())):
        rule = _RULES.get(type(node))
        if rule is None:
            continue
        with at(node):
            made = rule(node)
        if made is not None:
            made.meta.update({k: v for k, v in node.meta.items() if k not in made.meta})
            node.replace(made)


def call(name: str, *arguments: Node) -> exp.Anonymous:
    """An SQL syntax node that calls the function ``name``."""
    return exp.Anonymous(this=name, expressions=list(arguments))


# --- arrays --------------------------------------------------------------------------------------


def _compared(node: Node) -> Node | None:
    """Rewrite ``x = ANY(xs)`` and other comparisons with array elements or a subquery's rows."""
    side = node.expression
    if isinstance(side, exp.Anonymous) and str(side.this).upper() == "ALL":
        side = exp.All(this=exp.Paren(this=side.expressions[0]))
    if not isinstance(side, exp.Any | exp.All):
        return None
    listed, value = side.this, node.this
    if isinstance(listed, exp.Query):
        return _with_rows(node, side)
    while isinstance(listed, exp.Paren):
        listed = listed.this
    if isinstance(node, exp.EQ) and isinstance(side, exp.Any):
        return call("array_contains", listed.copy(), value.copy())
    item = exp.to_identifier("anabranch_item")
    test = type(node)(this=value.copy(), expression=exp.Column(this=item.copy()))
    name = "exists" if isinstance(side, exp.Any) else "forall"
    return call(name, listed.copy(), exp.Lambda(this=test, expressions=[item]))


def _with_rows(node: Node, side: Node) -> Node:
    """Rewrite ``x > ALL (SELECT y ...)`` as a test of number, maximum and minimum of the rows.

    It is true without rows, or if ``x`` exceeds the maximum; then NULL if a row is NULL. The
    condition for ANY is similar.
    """
    query = side.this
    inner = query.this if isinstance(query, exp.Subquery) else query
    value = node.this.copy()
    if isinstance(node, exp.EQ) and isinstance(side, exp.Any):
        return exp.In(this=value, query=exp.Subquery(this=inner.copy()))
    if isinstance(node, exp.NEQ) and isinstance(side, exp.All):
        return exp.Not(this=exp.In(this=value, query=exp.Subquery(this=inner.copy())))
    names = _DECIDING.get((type(node), type(side)))
    if names is None:
        what = f"{describe(value)} compared with {type(side).__name__.upper()} rows of a subquery"
        raise unsupported(what, "write [NOT] EXISTS (SELECT 1 ... WHERE the comparison)")
    select, item = _rows_of(inner)
    calls = {"all": call("count", exp.Star()), "known": call("count", item)}
    calls |= {name: call(name, item.copy()) for name in names}
    pairs = [part for name, one in calls.items() for part in (exp.Literal.string(name), one)]
    select.set("expressions", [call("named_struct", *pairs)])

    def of(name: str) -> Node:
        # Equal subqueries become a single join later, so it may be copied.
        whole = exp.Subquery(this=select.copy())
        whole.meta.update(query.meta)
        return exp.Dot(this=whole, expression=exp.to_identifier(name))

    every, zero = isinstance(side, exp.All), exp.Literal.number(0)
    tests: list[Node] = [type(node)(this=value.copy(), expression=of(name)) for name in names]
    decided = reduce(lambda a, b: (exp.And if every else exp.Or)(this=a, expression=b), tests)
    different, null = exp.NEQ(this=of("all"), expression=of("known")), exp.Null()
    if every:
        certain = exp.Or(this=exp.Not(this=different), expression=null)
        both: Node = exp.And(this=exp.Paren(this=decided), expression=exp.Paren(this=certain))
        found: Node = exp.Or(this=exp.EQ(this=of("all"), expression=zero), expression=both)
    else:
        unknown = exp.Paren(this=exp.And(this=different, expression=null))
        both = exp.Paren(this=exp.Or(this=decided, expression=unknown))
        found = exp.And(this=exp.NEQ(this=of("all"), expression=zero), expression=both)
    return exp.Paren(this=found)


def _rows_of(query: Node) -> tuple[exp.Select, Node]:
    """A SELECT that may aggregate the rows of ``query``, and the expression of its only column.

    Raises:
        QueryError: ``unsupported-sql``: the rows have several columns.
    """
    listed = query.selects if isinstance(query, exp.Query) else []
    if len(listed) != 1:
        raise unsupported("a comparison with rows of several columns", "select one column")
    item = listed[0].unalias()
    whole = isinstance(item, exp.Star) or holds_aggregate(item) or item.find(exp.Window)
    kept = {"expressions", "from_", "joins", "where", "with_", "laterals", "distinct", "order"}
    others = any(value for name, value in query.args.items() if name not in kept)
    if isinstance(query, exp.Select) and not whole and not others:
        select = query.copy()
        select.set("distinct", None)
        select.set("order", None)
        return select, item.copy()
    name = exp.to_identifier("anabranch_item")
    alias = exp.TableAlias(this=exp.to_identifier("anabranch_rows"), columns=[name])
    rows = exp.Subquery(this=query.copy(), alias=alias)
    return exp.Select(from_=exp.From(this=rows)), exp.Column(this=name.copy())


# --- JSON ----------------------------------------------------------------------------------------


def _extracted(node: Node) -> Node | None:
    """Rewrite ``text ->> 'a'``, ``text -> 'a' ->> 'b'`` as ``get_json_object(text, '$.a.b')``."""
    if isinstance(node.parent, exp.JSONExtractScalar | exp.JSONExtract):
        return None
    steps, value = list[str](), node
    while isinstance(value, exp.JSONExtractScalar | exp.JSONExtract) and not value.args.get(
        "variant_extract"
    ):
        step = _step(value.expression)
        if step is None:
            raise unsupported(
                f"the path {describe(value.expression)} into JSON", "write '$.a.b[0]', a literal"
            )
        steps.append(step)
        value = value.this
    if value is node or (isinstance(value, exp.Literal) and isinstance(node.parent, exp.Lambda)):
        return None
    path = "$" + "".join(reversed(steps))
    if isinstance(node, exp.JSONExtract):
        raise unsupported(
            "-> without ->> after it, which is a value of type json,",
            f"write get_json_object({as_written(value)}, '{path}') for its text",
        )
    return call("get_json_object", value.copy(), exp.Literal.string(path))


def _step(path: Node) -> str | None:
    """A step in a path of ``get_json_object`` from a name, index or path; None: impossible."""
    text = path.meta.get(PATH)
    if text is None:
        return None
    text = str(text)
    if text.startswith("$"):
        return text[1:]
    if text.isdecimal():
        return f"[{text}]"
    return f".{text}" if text.isidentifier() else None if "'" in text else f"['{text}']"


def _lambda(node: exp.Lambda) -> Node | None:
    """Repair ``f(text -> 'a' ->> 'b')``, whose first arrow the parser reads as that of a lambda."""
    root = node.this
    while isinstance(root, exp.JSONExtractScalar | exp.JSONExtract):
        root = root.this
    if root is node.this or not isinstance(root, exp.Literal) or len(node.expressions) != 1:
        return None
    path = exp.JSONPath(expressions=[])
    path.meta[PATH] = root.name
    made = node.this.copy()
    inner = made
    while not isinstance(inner.this, exp.Literal):
        inner = inner.this
    text = exp.Column(this=node.expressions[0].copy())
    inner.set("this", exp.JSONExtract(this=text, expression=path))
    return _extracted(made)


def _json_columns(node: Node) -> Node | None:
    """Rewrite ``json_tuple(text, 'a', 'b')`` after LATERAL VIEW as ``inline`` of one struct."""
    names = [name.name for name in (node.args.get("alias") or exp.TableAlias()).columns]
    found = _members(node.this, names)
    if found is None:
        return None
    pairs = [part for name, value in found for part in (exp.Literal.string(name), value)]
    made = node.copy()
    made.set("this", call("inline", call("array", call("named_struct", *pairs))))
    return made


def _members(node: Node, names: Sequence[str]) -> list[tuple[str, Node]] | None:
    """Names and values of the columns of ``json_tuple``; None for another function."""
    if not isinstance(node, exp.Anonymous) or str(node.this).lower() != "json_tuple":
        return None
    text, *keys = node.expressions
    found = list[tuple[str, Node]]()
    for number, key in enumerate(keys):
        step = isinstance(key, exp.Literal) and key.is_string and _named_step(key.name)
        if not step:
            raise unsupported(f"json_tuple() of the name {describe(key)}", "write it as a literal")
        value = call("get_json_object", text.copy(), exp.Literal.string("$" + step))
        found.append((names[number] if number < len(names) else f"c{number}", value))
    return found


def _named_step(name: str) -> str:
    return f".{name}" if name.isidentifier() else "" if "'" in name else f"['{name}']"


def _items(node: exp.Select) -> Node | None:
    """Rewrite ``SELECT json_tuple(text, 'a', 'b') AS (a, b)`` with two items."""
    items, changed = list[Node](), False
    for item in node.expressions:
        several = isinstance(item, exp.Aliases)
        names = [name.name for name in item.expressions] if several else [item.alias]
        inner = item.this if isinstance(item, exp.Aliases | exp.Alias) else item
        found = _members(inner, [name for name in names if name])
        changed |= found is not None
        items += [item] if found is None else [exp.alias_(v, n) for n, v in found]
    if changed:
        node.set("expressions", items)
    return None


# --- aggregates ----------------------------------------------------------------------------------


def _over(node: exp.Window) -> Node | None:
    """Rewrite ``sum(x) FILTER (WHERE c) OVER ...`` as ``sum(CASE WHEN c THEN x END) OVER ...``."""
    if not isinstance(node.this, exp.Filter) or function_over(node) not in TOTALS:
        return None
    inner = call_over(node).copy()
    value = inner.expressions[0] if len(inner.expressions) == 1 else None
    if value is None or isinstance(value, exp.Distinct):
        return None
    kept = exp.Literal.number(1) if isinstance(value, exp.Star) else value.copy()
    condition = node.this.expression.this.copy()
    value.replace(exp.Case(ifs=[exp.If(this=condition, true=kept)]))
    made = node.copy()
    made.set("this", inner)
    return made


def _called(node: exp.Anonymous) -> Node | None:
    name = str(node.this).lower()
    if name in _PERCENTILES and not isinstance(node.parent, exp.Filter):
        return _percentiles(node, None)
    if name == "make_interval":
        return _make_interval(node)
    if name == "to_timestamp_ltz" and len(node.expressions) == 2 and node.expressions[1].is_int:
        kind = {"0": "seconds", "3": "millis", "6": "micros"}.get(
            node.expressions[1].name, "millis"
        )
        remedy = f"write timestamp_{kind}({as_written(node.expressions[0])})"
        raise unsupported("to_timestamp_ltz() of a number", remedy)
    if name == "sequence" and len(node.expressions) in (2, 3):
        return _moments(*node.expressions)
    if name == "floor" and len(node.expressions) == 2:
        unit = node.expressions[1]
        if isinstance(unit, exp.Column | exp.Var) and unit.name.lower() in _UNITS:
            return call("date_trunc", exp.Literal.string(unit.name), node.expressions[0].copy())
    return None


def _make_interval(node: exp.Anonymous) -> Node | None:
    """Rewrite ``make_interval(hours => 1)`` with all arguments in order, without names."""
    if not any(isinstance(one, exp.Kwarg) for one in node.expressions):
        return None
    given = dict[str, Node]()
    for name, one in zip(_PARTS, node.expressions, strict=False):
        if isinstance(one, exp.Kwarg):
            name, one = one.this.name.lower(), one.expression
        given[name] = one.copy()
    if not given.keys() <= {*_PARTS}:
        raise unsupported(as_written(node), f"name some of {', '.join(_PARTS)}")
    zero = exp.Literal.number(0)
    return call("make_interval", *(given.get(name) or zero.copy() for name in _PARTS))


def _moments(first: Node, last: Node, step: Node | None = None) -> Node | None:
    """Rewrite ``sequence(first, last, step)`` of dates or times by means of a sequence of numbers;
    None for a sequence of numbers."""
    if step is None and all(isinstance(one, exp.Cast) and _is_time(one) for one in (first, last)):
        step = exp.Interval(this=exp.Literal.string("1"), unit=exp.Var(this="DAY"))
    if not isinstance(step, exp.Interval):
        return None
    unit = str(step.args.get("unit") or "").upper().rstrip("S")
    item, number = exp.to_identifier("anabranch_moment"), exp.to_identifier("anabranch_number")
    steps: Node = exp.Mul(this=exp.Column(this=number.copy()), expression=step.copy())
    if unit in ("DAY", "WEEK"):
        # Then a date plus the step is a date.
        days = exp.DataType(this=exp.Interval(unit=exp.Var(this="DAY")))
        steps = exp.Cast(this=steps, to=days)
    moment = exp.Lambda(
        this=exp.Add(this=first.copy(), expression=steps), expressions=[number.copy()]
    )
    monthly = unit in ("MONTH", "YEAR", "QUARTER")
    whole = exp.Paren(this=exp.Sub(this=last.copy(), expression=first.copy()))
    count: Node = exp.IntDiv(this=whole, expression=step.copy())
    if monthly:
        months = call(
            "timestampdiff", exp.Literal.string("MONTH"), *(one.copy() for one in (first, last))
        )
        count = exp.Add(this=months, expression=exp.Literal.number(1))
    # If the last value is before the first, a step of -1 causes the same error as in Spark.
    there = exp.LTE(this=first.copy(), expression=last.copy())
    before = exp.GT(this=first.copy(), expression=last.copy())
    count = exp.Case(ifs=[exp.If(this=there, true=count),
                          exp.If(this=before, true=exp.Literal.number(-1))])  # fmt: skip
    numbers = call("sequence", exp.Literal.number(0), count, exp.Literal.number(1))
    made = call("transform", numbers, moment)
    if not monthly:
        return made
    inside = exp.LTE(this=exp.Column(this=item.copy()), expression=last.copy())
    return call("filter", made, exp.Lambda(this=inside, expressions=[item]))


def _is_time(node: exp.Cast) -> bool:
    return node.to.this in (exp.DataType.Type.DATE, *exp.DataType.TEMPORAL_TYPES)


def _zoned(node: exp.AtTimeZone) -> Node:
    """Rewrite ``ts AT TIME ZONE 'x'`` as ``timezone('x', ts)``."""
    return call("timezone", node.args["zone"].copy(), node.this.copy())


def _overlaps(node: exp.Overlaps) -> Node:
    """Rewrite ``(a, b) OVERLAPS (c, d)`` by the SQL standard: ends in any order, maybe NULL."""
    sides = [side.expressions for side in (node.this, node.expression)]
    if [len(side) for side in sides] != [2, 2]:
        raise unsupported("OVERLAPS", "write (a, b) OVERLAPS (c, d)")
    (s, e), (t, f) = (_span(*side) for side in sides)

    def before(a: Node, b: Node) -> Node:
        return exp.LT(this=a.copy(), expression=b.copy())

    def case(a: Node, b: Node, end: Node) -> exp.If:
        # The later span begins within the earlier one; the second test only matters for NULL.
        either = exp.Or(this=before(b, end), expression=before(e if end is f else f, end))
        return exp.If(this=before(a, b), true=either)

    known = exp.And(this=exp.EQ(this=e.copy(), expression=e.copy()),
                    expression=exp.EQ(this=f.copy(), expression=f.copy()))  # fmt: skip
    same = exp.If(this=exp.EQ(this=s.copy(), expression=t.copy()), true=known)
    return exp.Case(ifs=[case(t, s, f), case(s, t, e), same])


def _span(first: Node, last: Node) -> tuple[Node, Node]:
    """Beginning and end of a span of time. The beginning is the earlier end, or the only known one;
    the end is NULL unless both are known. ``last`` may be the length of the span."""
    if isinstance(last, exp.Interval):
        last = exp.Add(this=first.copy(), expression=last.copy())
    both = exp.And(this=not_null(first), expression=not_null(last))
    later = call("greatest", first.copy(), last.copy())
    return call("least", first.copy(), last.copy()), exp.Case(ifs=[exp.If(this=both, true=later)])


def _cast(node: exp.Cast | exp.TryCast) -> None:
    """Reject casts to types that the parser would read as other types."""
    target, value = node.to, as_written(node.this)
    name = str(target.this.value) if isinstance(target.this, exp.DataType.Type) else ""
    digits = target.expressions[0].name if target.expressions else str(_MICROS)
    if name == "TIME":
        remedy = f"write date_format({value}, 'HH:mm:ss') for its text"
        raise unsupported("the type TIME, a time without a date,", remedy)
    if name in _UNREAD:
        raise unsupported(f"the type {name}", f"write CAST({value} AS {_UNREAD[name]})")
    if name.startswith("TIMESTAMP") and digits.isdecimal() and int(digits) < _MICROS:
        part = "SECOND" if digits == "0" else "MILLISECOND"
        remedy = f"write date_trunc('{part}', {value})"
        raise unsupported(f"TIMESTAMP({digits}), of fewer digits than six,", remedy)


def _percentiles(node: Node, condition: Node | None) -> Node | None:
    """Rewrite ``percentile(x, array(0.5, 0.9))`` as an array; NULL without values of x."""
    parts = node.expressions if isinstance(node, exp.Anonymous) else []
    if len(parts) < 2 or str(node.this).lower() not in _PERCENTILES:
        return None
    listed = parts[1]
    if not isinstance(listed, exp.Anonymous) or str(listed.this).lower() != "array":
        return None
    holder = node if condition is None or node.parent is None else node.parent
    if isinstance(holder.parent, exp.Select):
        text = as_written(holder)
        raise QueryError("unnamed-output", f"{text} has no name", remedy=f"write {text} AS name")

    def of(made: Node) -> Node:
        return made if condition is None else exp.Filter(this=made, expression=condition.copy())

    found = [of(call(str(node.this), parts[0].copy(), one.copy())) for one in listed.expressions]
    some = exp.GT(this=of(call("count", parts[0].copy())), expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=some, true=call("array", *found))])


_RULES: dict[type[Node], Callable[..., Node | None]] = {
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), _compared),
    exp.JSONExtractScalar: _extracted,
    exp.JSONExtract: _extracted,
    exp.Lambda: _lambda,
    exp.Lateral: _json_columns,
    exp.Select: _items,
    exp.Window: _over,
    exp.Anonymous: _called,
    exp.Filter: lambda node: _percentiles(node.this, node.expression),
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.AtTimeZone: _zoned,
    exp.Overlaps: _overlaps,
}
