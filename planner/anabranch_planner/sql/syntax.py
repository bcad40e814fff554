"""SQL text to :class:`~anabranch_planner.sql.unresolved.Unresolved`; what is no join is refused.

Only the shape of the statement is looked at here; names and types are the business of later
passes. Functions are kept as written (the parser's own rewriting of them is switched off), so
that one place, ``functions.py``, decides what each of them means.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parsers.spark import SparkParser

from anabranch_planner.errors import QueryError
from anabranch_planner.sql.functions import UNARY_PLUS
from anabranch_planner.sql.unresolved import Condition, Item, Node, Source, Unresolved

_SHAPE = "write SELECT ... FROM a JOIN b ON ... [WHERE ...]"
#: What the select statement may carry besides these is refused under the given name.
_SELECT_PARTS = {"expressions", "from_", "joins", "where"}
_NAMES = {
    "with_": ("WITH (common table expressions)", "register the inner query's joins directly"),
    "distinct": ("DISTINCT", "remove duplicates where the results are read"),
    "group": ("GROUP BY", "aggregate where the results are read"),
    "having": ("HAVING", "aggregate where the results are read"),
    "order": ("ORDER BY", "results are unordered; sort where they are read"),
    "sort": ("SORT BY", "results are unordered; sort where they are read"),
    "cluster": ("CLUSTER BY", "leave it out: the planner chooses partitions"),
    "distribute": ("DISTRIBUTE BY", "leave it out: the planner chooses partitions"),
    "limit": ("LIMIT", "a continuous query has no end; stop reading instead"),
    "offset": ("OFFSET", "a continuous query has no end; skip where the results are read"),
    "hint": ("a hint", "leave it out: the planner chooses the join order"),
    "laterals": ("LATERAL VIEW", "explode before the rows enter the stream"),
    "qualify": ("QUALIFY", "use window functions where the results are read"),
    "windows": ("WINDOW", "use window functions where the results are read"),
    "locks": ("FOR UPDATE", "leave it out: streams are append-only"),
    "sample": ("TABLESAMPLE", "sample before the rows enter the stream"),
    "pivots": ("PIVOT", "pivot where the results are read"),
    "version": ("a table version", "streams have one version"),
    "kind": ("SELECT AS", _SHAPE),
}


class JoinDialect(Spark):
    """Spark's dialect with function calls left as the user wrote them."""

    class Tokenizer(Spark.Tokenizer):
        """Reads ``'it''s'`` as one literal with a quote in it, as Spark 4 does."""

        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'"]

    class Parser(SparkParser):
        """Keeps ``CAST`` strict (as in ANSI mode) and every other function by its name."""

        STRICT_CAST = True
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse
            for name, parse in SparkParser.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM")
        }
        UNARY_PARSERS: ClassVar[dict[Any, Any]] = {
            **SparkParser.UNARY_PARSERS,
            TokenType.PLUS: lambda self: exp.Anonymous(
                this=UNARY_PLUS, expressions=[self._parse_unary()]
            ),
        }


def parse_statement(sql: str) -> Unresolved:
    """The unresolved form of one SELECT statement.

    Raises:
        QueryError: ``malformed-sql``, or ``unsupported-sql`` naming the construct.
    """
    if not sql.strip():
        raise QueryError("malformed-sql", "the statement is empty", remedy=_SHAPE)
    statements = [s for s in _parse(sql) if s is not None and not isinstance(s, exp.Semicolon)]
    if len(statements) != 1:
        raise QueryError(
            "several-statements" if statements else "malformed-sql",
            f"expected one statement, found {len(statements)}",
            remedy="register each query by itself" if statements else _SHAPE,
        )
    return _unresolved(_select(statements[0]))


def parse_expression(text: str) -> Node:
    """One expression, e.g. a condition of a structured query.

    Raises:
        QueryError: ``malformed-sql``.
    """
    parsed = _parse(f"SELECT {text}")
    statement = parsed[0] if len(parsed) == 1 else None
    extra = (
        not isinstance(statement, exp.Select)
        or len(statement.expressions) != 1
        or any(value for name, value in statement.args.items() if name != "expressions")
    )
    if extra or not text.strip():
        raise QueryError(
            "malformed-sql", f"{text!r} is not one expression", remedy="give one expression each"
        )
    assert isinstance(statement, exp.Select)
    node: Node = statement.expressions[0]
    return node


def parse_item(text: str, field: str) -> Item:
    """One entry of a select list, given as text: an expression, ``*`` or ``alias.*``."""
    return _item(parse_expression(text), field)


def _parse(sql: str) -> list[Node | None]:
    try:
        _check_quotes(sql)
        return list(sqlglot.parse(sql, read=JoinDialect))
    except SqlglotError as cause:
        raise QueryError(
            "malformed-sql", _one_line(cause), remedy="check the statement near that place"
        ) from cause
    except RecursionError as cause:
        raise QueryError(
            "malformed-sql",
            "the statement is nested too deeply",
            remedy="use IN (...) or fewer parentheses",
        ) from cause


def _check_quotes(sql: str) -> None:
    """Refuse doubled quotes inside double quotes: the tokenizer differs from Spark there."""
    end = -1
    for token in JoinDialect().tokenize(sql):
        if token.token_type is not TokenType.STRING:
            continue
        text = sql[token.start : token.end + 1]
        if text.startswith('"') and ("''" in text or token.start == end + 1):
            raise QueryError(
                "unsupported-sql",
                f"the literal {text} has doubled quotes within double quotes",
                remedy="put it in single quotes",
            )
        end = token.end


def _one_line(cause: SqlglotError) -> str:
    if isinstance(cause, ParseError) and cause.errors:
        error = cause.errors[0]
        near = str(error.get("highlight") or "").strip()
        where = f"line {error.get('line')}, column {error.get('col')}"
        return f"syntax error at {where}" + (f", near {near!r}" if near else "")
    text = re.sub(r"\s+", " ", str(cause))
    return "syntax error: an unclosed quote or comment" if "tokenizing" in text else text[:200]


def _select(statement: Node) -> exp.Select:
    if isinstance(statement, exp.Paren | exp.Subquery) and isinstance(statement.this, exp.Query):
        statement = statement.this
    if isinstance(statement, exp.SetOperation):
        kind = type(statement).__name__.upper()
        raise _unsupported(kind, "register each SELECT as a query of its own")
    if not isinstance(statement, exp.Select):
        if isinstance(statement, exp.Alias | exp.Column | exp.Literal | exp.Anonymous):
            raise QueryError("malformed-sql", "this is no SELECT statement", remedy=_SHAPE)
        kind = type(statement).__name__
        raise _unsupported(f"a {kind} statement", _SHAPE)
    return statement


def _unsupported(what: str, remedy: str) -> QueryError:
    return QueryError("unsupported-sql", f"{what} is not supported", remedy=remedy)


def _refuse_parts(node: Node, allowed: set[str]) -> None:
    for name, value in node.args.items():
        if value and name not in allowed:
            what, remedy = _NAMES.get(name, (name.strip("_").upper(), _SHAPE))
            raise _unsupported(what, remedy)


def _unresolved(select: exp.Select) -> Unresolved:
    _refuse_parts(select, _SELECT_PARTS)
    if not select.expressions:
        raise QueryError("malformed-sql", "the SELECT list is empty", remedy=_SHAPE)
    from_ = select.args.get("from_")
    if from_ is None:
        raise QueryError("malformed-sql", "the query has no FROM clause", remedy=_SHAPE)
    sources = [_source(from_.this, ())]
    conditions = []
    pending = _joins_of(from_.this, select)
    for join in pending:
        using = _join(join)
        sources.append(_source(join.this, using))
        if join.args.get("on") is not None:
            conditions.append(Condition(join.args["on"], len(sources)))
    where = select.args.get("where")
    if where is not None:
        conditions.append(Condition(where.this, len(sources)))
    items = tuple(_item(node, "") for node in select.expressions)
    return Unresolved(tuple(sources), tuple(conditions), items)


def _joins_of(first: Node, select: exp.Select) -> list[exp.Join]:
    """All joins in order; a comma-separated table may carry joins of its own."""
    joins: list[exp.Join] = list(first.args.get("joins") or ())
    for join in select.args.get("joins") or ():
        joins.append(join)
        joins.extend(join.this.args.get("joins") or ())
    return joins


def _join(join: exp.Join) -> tuple[str, ...]:
    """Check that ``join`` is an inner join; its USING columns."""
    side, kind, method = (str(join.args.get(k) or "").upper() for k in ("side", "kind", "method"))
    if kind in ("SEMI", "ANTI"):
        raise _unsupported(f"a {kind} JOIN", "use an inner JOIN")
    if side or kind == "OUTER":
        raise _unsupported(f"a {side or 'FULL'} OUTER JOIN", "use an inner JOIN")
    if method or kind not in ("", "INNER", "CROSS"):
        raise _unsupported(
            f"a {method or kind} JOIN", "use JOIN ... ON or USING with the columns written out"
        )
    _refuse_parts(join, {"this", "side", "kind", "method", "on", "using"})
    return tuple(_identifier(node) for node in join.args.get("using") or ())


def _identifier(node: Node) -> str:
    if isinstance(node, exp.Column) and not node.table:
        return node.name
    if isinstance(node, exp.Identifier):
        return node.name
    raise QueryError(
        "malformed-sql", f"{describe(node)} is no column name", remedy="write USING (column)"
    )


def _source(node: Node, using: tuple[str, ...]) -> Source:
    if isinstance(node, exp.Subquery | exp.Select | exp.Paren | exp.Lateral):
        raise _unsupported("a subquery in FROM", "join the streams themselves")
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise _unsupported(f"{describe(node)} in FROM", "name a registered stream")
    if node.args.get("db") or node.args.get("catalog"):
        raise _unsupported(f"the qualified name {describe(node)}", "name a registered stream")
    _refuse_parts(node, {"this", "alias", "joins"})
    alias = node.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        raise _unsupported("a column list after an alias", "rename columns in the SELECT list")
    return Source(node.name, alias.name if alias is not None else node.name, using)


def _item(node: Node, field: str) -> Item:
    name = None
    if isinstance(node, exp.Alias):
        name, node = node.alias, node.this
    star = node.this if isinstance(node, exp.Column) else node
    if isinstance(star, exp.Star):
        if any(star.args.values()) or (isinstance(node, exp.Column) and node.args.get("db")):
            raise _unsupported("* with EXCEPT", "name the columns that you want")
        if name is not None:
            raise _unsupported("* with an alias", "name the columns that you want")
        qualifier = node.table if isinstance(node, exp.Column) else None
        return Item(None, None, qualifier, field)
    return Item(node, name, None, field)


def describe(node: Node) -> str:
    """A short SQL rendering of ``node`` for error messages."""
    text = re.sub(r"\s+", " ", node.sql(dialect="spark"))
    return text if len(text) <= 60 else text[:57] + "..."
