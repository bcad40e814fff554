"""Rejection of SQL clauses that the translation to :class:`.Unresolved` would ignore.

The parser knows many more clauses than are supported, and attaches them to syntax nodes as
arguments: ``LIMIT 5 PERCENT`` is a ``LIMIT`` with the argument ``limit_options``. Ignoring an
argument would silently change the meaning of a statement. So :data:`CONSUMED` lists the arguments
that the translation reads, per node type, and :func:`check_arguments` checks the whole tree. Node
types without an entry are rejected by the pass that reads them.
"""

from __future__ import annotations

from collections.abc import Container

from sqlglot import exp

from anabranch_planner.sql.mistakes.beginnings import SHAPE
from anabranch_planner.sql.unresolved import Node, at, unsupported

_BINARY = frozenset({"this", "expression"})
_UNARY = frozenset({"this"})
_LIST = frozenset({"expressions"})

#: Node type -> arguments that are translated, or rejected with a message of their own.
CONSUMED: dict[type[Node], frozenset[str]] = {
    # Clauses
    exp.Select: frozenset({
        "with_", "expressions", "from_", "joins", "where", "distinct", "group", "having", "order",
        "limit", "offset", "qualify", "windows", "laterals",
    }),
    exp.Lateral: frozenset({"this", "view", "outer", "alias"}),
    exp.Unnest: frozenset({"expressions", "alias", "offset"}),
    exp.Aliases: _UNARY | _LIST,
    exp.Subquery: frozenset({"this", "alias", "joins", "with_"}),
    **dict.fromkeys(
        (exp.Union, exp.Intersect, exp.Except),
        _BINARY | {"distinct", "with_", "order", "limit", "offset"},
    ),
    exp.With: frozenset({"expressions", "recursive"}),
    exp.CTE: frozenset({"this", "alias"}),
    exp.TableAlias: frozenset({"this", "columns"}),
    exp.From: _UNARY,
    exp.Table: frozenset({"this", "alias", "joins", "db", "catalog", "version"}),
    exp.Join: frozenset({"this", "side", "kind", "method", "match_condition", "on", "using"}),
    exp.Version: _BINARY | {"kind"},
    exp.Where: _UNARY,
    exp.Having: _UNARY,
    exp.Group: frozenset({"expressions", "all", "rollup", "cube", "grouping_sets", "totals"}),
    exp.Rollup: _LIST,
    exp.Cube: _LIST,
    exp.GroupingSets: _LIST,
    exp.Distinct: frozenset({"expressions", "on"}),
    exp.Order: _UNARY | _LIST,
    exp.Qualify: _UNARY,
    exp.Window: frozenset({"this", "partition_by", "order", "alias", "over", "spec"}),
    exp.WindowSpec: frozenset({"kind", "start", "start_side", "end", "end_side", "exclude"}),
    exp.WithinGroup: _BINARY,
    exp.IgnoreNulls: _UNARY,
    exp.RespectNulls: _UNARY,
    exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
    exp.Limit: frozenset({"expression"}),
    exp.Offset: frozenset({"expression"}),
    exp.Alias: frozenset({"this", "alias"}),
    exp.Star: frozenset({"except_", "replace", "rename"}),
    # Names and constants
    exp.Identifier: frozenset({"this", "quoted"}),
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    exp.Var: _UNARY,
    exp.Literal: frozenset({"this", "is_string"}),
    exp.RawString: _UNARY,
    exp.HexString: _UNARY,
    exp.Boolean: _UNARY,
    exp.Null: frozenset(),
    exp.Interval: frozenset({"this", "unit"}),
    exp.IntervalSpan: _BINARY,
    exp.DataType: frozenset({"this", "expressions", "nested"}),
    exp.DataTypeParam: _UNARY,
    # Expressions
    exp.Paren: _UNARY,
    exp.Tuple: _LIST,
    **dict.fromkeys(
        (
            exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ,
            exp.Is, exp.Escape, exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Extract, exp.Dot,
            exp.Filter, exp.NullSafeNEQ, exp.IntDiv,
            exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor,
        ),
        _BINARY,
    ),
    # The values of ``safe`` and ``typed`` depend on the dialect, not on the statement.
    exp.Div: _BINARY | {"safe", "typed"},
    exp.DPipe: _BINARY | {"safe"},
    exp.Not: _UNARY,
    exp.BitwiseNot: _UNARY,
    exp.Bracket: frozenset({"this", "expressions", "offset", "safe"}),
    exp.Neg: _UNARY,
    exp.Like: _BINARY | {"negate"},
    exp.ILike: _BINARY | {"negate"},
    exp.Between: frozenset({"this", "low", "high", "symmetric"}),
    exp.In: frozenset({"this", "expressions", "query", "unnest", "field"}),
    **dict.fromkeys(
        (exp.Cast, exp.TryCast), frozenset({"this", "to", "format", "action", "safe"})
    ),
    exp.RegexpLike: _BINARY | {"full_match"},
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.If: frozenset({"this", "true", "false"}),
    exp.Trim: frozenset({"this", "expression", "position"}),
    exp.Concat: _LIST,
    exp.Anonymous: frozenset({"this", "expressions"}),
}  # fmt: skip

_LIMIT = "write LIMIT with a number of rows, after ORDER BY"
#: Argument -> its name in messages, and the remedy.
_NAMES = {
    "sort": ("SORT BY", "results are unordered; sort where they are read"),
    "cluster": ("CLUSTER BY", "leave it out: the planner chooses partitions"),
    "distribute": ("DISTRIBUTE BY", "leave it out: the planner chooses partitions"),
    "hint": ("a hint", "leave it out: the planner chooses the join order"),
    "spec": ("a frame of rows", "leave it out: the function reads all of its partition"),
    "hints": ("a hint after a table", "leave it out: the planner chooses how a query runs"),
    "cross_apply": (
        "CROSS APPLY or OUTER APPLY",
        "write CROSS JOIN (SELECT ...) AS t, or LEFT "
        "JOIN (SELECT ...) AS t ON ... with the conditions in ON",
    ),
    "locks": ("FOR UPDATE", "leave it out: streams are append-only"),
    "sample": ("TABLESAMPLE", "write WHERE pmod(hash(x), 100) < 10 for 10 percent of the keys x"),
    "pivots": (
        "PIVOT here",
        "write sum(x) FILTER (WHERE p = 'a') AS a, with GROUP BY, or in Spark's "
        "dialect FROM (SELECT k, p, x FROM t) PIVOT (sum(x) FOR p IN ('a'))",
    ),
    "when": ("a table version", "streams have one version"),
    "kind": ("SELECT AS", SHAPE),
    "into": ("SELECT INTO", "the query's sink says where the results go"),
    "operation_modifiers": ("a modifier of SELECT", "leave it out"),
    "prewhere": ("PREWHERE", "write the condition into WHERE"),
    "final": ("FINAL", "declare the stream's key and keep the latest of it"),
    "with_fill": ("ORDER BY ... WITH FILL", "fill gaps where the results are read"),
    "siblings": ("ORDER SIBLINGS BY", "write ORDER BY"),
    "match": ("MATCH_RECOGNIZE", "write the pattern as joins with time conditions"),
    "connect": ("CONNECT BY", "write out as many joins as are wanted"),
    "collate": ("COLLATE", "leave it out: texts are compared by their bytes"),
    "materialized": ("MATERIALIZED", "leave it out: subqueries are inlined"),
    "only": ("ONLY before a table", "leave it out: streams have no children"),
    "ordinality": ("WITH ORDINALITY", "number the rows before they enter the stream"),
    "join_mark": ("a join marked with (+)", "write LEFT JOIN"),
    "is_global": ("GLOBAL IN", "leave GLOBAL out"),
    "global_": ("a GLOBAL JOIN", "leave GLOBAL out"),
    "percent": ("LIMIT ... PERCENT", _LIMIT),
    "with_ties": ("LIMIT ... WITH TIES", _LIMIT),
}
#: (node type, argument) -> name in messages, where it differs from :data:`_NAMES`.
_NAMES_OF: dict[tuple[type[Node], str], tuple[str, str]] = {
    (exp.Limit, "expressions"): ("LIMIT ... BY", "keep the first rows of each key where the "
                                 "results are read"),
    (exp.Limit, "offset"): ("LIMIT with two numbers", "write LIMIT n OFFSET m"),
    (exp.Window, "partition_by"): ("PARTITION BY beside a named window", "move it into WINDOW"),
    (exp.Window, "order"): ("ORDER BY beside a named window", "move it into WINDOW"),
    **dict.fromkeys(
        [(kind, "by_name") for kind in (exp.Union, exp.Intersect, exp.Except)],
        ("BY NAME", "select the columns of all operands in the same order"),
    ),
    (exp.Subquery, "limit"): ("LIMIT after a query in parentheses", "move it into them"),
    (exp.Subquery, "offset"): ("OFFSET after a query in parentheses", "move it into them"),
    (exp.Subquery, "order"): ("ORDER BY after a query in parentheses", "move it into them"),
    (exp.Subquery, "where"): ("WHERE after a query in parentheses", "move it into them"),
    (exp.Subquery, "group"): ("GROUP BY after a query in parentheses", "move it into them"),
    (exp.Subquery, "having"): ("HAVING after a query in parentheses", "move it into them"),
}  # fmt: skip

_FORMAT = ("CAST ... FORMAT", "write to_date(x, 'yyyy-MM-dd') or to_timestamp(x, 'yyyy-MM-dd')")
#: Types of nodes that only other systems know -> name in messages, and the remedy.
_ABSENT: dict[type[Node], tuple[str, str]] = {
    exp.PropertyEQ: (":=", "write = to compare, AS to name a value"),
    exp.SimilarTo: ("SIMILAR TO", "write RLIKE '^(pattern)$'"),
    exp.Glob: ("GLOB", "write LIKE with % and _, or RLIKE"),
    exp.National: ("a text with N before it", "leave N out: all texts are Unicode"),
    exp.StrToDate: _FORMAT,
    exp.StrToTime: _FORMAT,
}


def is_set(value: object) -> bool:
    """Whether an argument of a syntax node has a value: not None, False or empty."""
    return value is not None and value is not False and value != [] and value != ""


def check_arguments(tree: Node) -> None:
    """Reject every clause in ``tree`` that would be ignored: arguments not in :data:`CONSUMED`.

    Constructs that only other systems know are rejected as well.

    Raises:
        QueryError: ``unsupported-sql``, with the argument's name and position.
    """
    for node in tree.walk():
        absent = _ABSENT.get(type(node))
        if absent is not None:
            with at(node):
                raise unsupported(*absent)
        consumed = CONSUMED.get(type(node))
        if consumed is not None:
            refuse_others(node, consumed)


def refuse_others(node: Node, consumed: Container[str]) -> None:
    """Reject arguments of one syntax node that are set but are not in ``consumed``.

    Raises:
        QueryError: ``unsupported-sql``.
    """
    for name, value in node.args.items():
        if name in consumed or not is_set(value):
            continue
        part = value[0] if isinstance(value, list) else value
        if isinstance(part, exp.LimitOptions):
            name = next((option for option in part.args if is_set(part.args[option])), name)
        what, remedy = _called(node, name)
        with at(node), at(part if isinstance(part, exp.Expr) else None):
            raise unsupported(what, remedy)


def _called(node: Node, name: str) -> tuple[str, str]:
    found = _NAMES_OF.get((type(node), name)) or _NAMES.get(name)
    if found is not None:
        return found
    words = name.strip("_").replace("_", " ").upper()
    return f"{words} of {_kind(node)}", "leave that part out"


def _kind(node: Node) -> str:
    word = type(node).__name__
    split = "".join(f" {c}" if c.isupper() and i and not word[i - 1].isupper() else c
                    for i, c in enumerate(word))  # fmt: skip
    return split.upper()
