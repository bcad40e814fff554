"""Parser of SELECT statements, which become :class:`~anabranch_planner.sql.unresolved.Unresolved`.

This pass checks only the shape of the statement; later passes resolve names and types. Function
calls are left as written (sqlglot's rewriting is switched off), so that only ``functions.py``
defines their meaning.

A query in FROM or in WITH becomes a source that is a query itself. A query of WITH that is read
several times is parsed once, and its readers share one object. The number of streams is limited
(:data:`MOST_SOURCES`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_planner.sql.aggregates import holds_aggregate
from anabranch_planner.sql.arguments import check_arguments, refuse_others
from anabranch_planner.sql.clauses.constant_rows import read_constants
from anabranch_planner.sql.clauses.everyday import keep_commas, no_stream, simplify, with_commas
from anabranch_planner.sql.clauses.generators import generators_of, in_items
from anabranch_planner.sql.clauses.join_kinds import as_of, is_right, kind_of
from anabranch_planner.sql.clauses.listed_rows import write_out_rows
from anabranch_planner.sql.clauses.own_queries import INNER, POST_JOIN, own_clause
from anabranch_planner.sql.clauses.set_operations import as_values, clauses_after, set_operation
from anabranch_planner.sql.clauses.spellings import PATH, respell
from anabranch_planner.sql.clauses.window_layers import layer_windows
from anabranch_planner.sql.mistakes.accepted import check_parsed, check_tokens
from anabranch_planner.sql.mistakes.beginnings import SHAPE, check_beginning, no_query
from anabranch_planner.sql.mistakes.malformed import malformed, too_deep
from anabranch_planner.sql.places import check_intervals
from anabranch_planner.sql.quoted_names import read_names
from anabranch_planner.sql.translation.flink import simplified, spelled_as_spark
from anabranch_planner.sql.unresolved import (
    SUBQUERY,
    Condition,
    FromEntry,
    Node,
    OuterSide,
    PostJoin,
    SelectItem,
    Unresolved,
    at,
    describe,
    unsupported,
)

if TYPE_CHECKING:
    from sqlglot.dialects.dialect import Dialect, DialectType

#: Maximum number of streams that a statement may read, counting every mention.
MOST_SOURCES = 100
_PLACE = re.compile(r"\(?[Ll]ine:? (\d+), [Cc]ol(?:umn)?:? (\d+)\)?")
_OPENING = re.compile(r"['\"`]|/\*")
#: Maximum number of quotes that :func:`unclosed_at` examines, from the end of the text backwards.
_OPENINGS = 200
#: Prefix that turns an expression into a statement for the parser.
_PREFIX = "SELECT "
_LAST = "write it in the FROM of the whole statement, a RIGHT JOIN before all other outer joins"
_HIDING = frozenset({JoinKind.SEMI, JoinKind.ANTI})


class SparkDialect(Spark):
    """Spark's SQL dialect, as of Spark 4."""

    class Tokenizer(Spark.Tokenizer):
        """Tokenizer that reads a doubled quote in a text, ``'it''s'``, as one quote."""

        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'"]

    class Generator(SparkGenerator):
        """Generator of SQL that keeps EXCLUDE, QUALIFY and DISTINCT ON, without subqueries."""

        SUPPORTS_WINDOW_EXCLUDE = True
        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            kind: write
            for kind, write in SparkGenerator.TRANSFORMS.items()
            if kind is not exp.Select
        }

    def tokenize(self, sql: str, dialect: DialectType = None) -> list[Token]:
        """Tokenize ``sql``; ``window(`` becomes a function name instead of a keyword, and
        ``MATCH_CONDITION (`` a keyword.

        The parser would otherwise read ``GROUP BY window(`` as the start of a WINDOW clause.
        """
        tokens: list[Token] = super().tokenize(sql, dialect)
        for token, after in itertools.pairwise(tokens):
            if token.token_type is TokenType.WINDOW and after.token_type is TokenType.L_PAREN:
                token.token_type = TokenType.VAR
            if token.text.upper() == "MATCH_CONDITION" and after.token_type is TokenType.L_PAREN:
                token.token_type = TokenType.MATCH_CONDITION
        return tokens


class JoinDialect(SparkDialect):
    """Spark's dialect with function calls left as the user wrote them."""

    class Parser(SparkParser):
        """Parser with strict ``CAST`` (ANSI mode), any function name, and ``text:path``."""

        STRICT_CAST = True
        COLON_IS_VARIANT_EXTRACT = True
        TABLE_ALIAS_TOKENS = SparkParser.TABLE_ALIAS_TOKENS - {TokenType.MATCH_CONDITION}
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse
            for name, parse in SparkParser.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM")
        }

    def to_json_path(self, path: Node | None) -> Node | None:
        """The path of ``text -> 'path'``, whose text is added to the node's metadata."""
        made: Node | None = super().to_json_path(path)
        if made is not None and isinstance(path, exp.Literal):
            made.meta[PATH] = path.name
        return made


def parse_statement(sql: str) -> Unresolved:
    """The unresolved form of one SELECT statement.

    Raises:
        QueryError: ``malformed-sql``, or ``unsupported-sql`` naming the construct.
    """
    statements = [s for s in _parse(sql) if s is not None and not isinstance(s, exp.Semicolon)]
    if not statements:
        more = ": there are only comments and semicolons" if sql.strip() else ""
        raise QueryError("malformed-sql", f"the statement is empty{more}", remedy=SHAPE)
    if len(statements) != 1:
        with at(statements[1]):
            raise QueryError(
                "several-statements",
                f"expected one statement, found {len(statements)}",
                remedy="register each query by itself",
            )
    return read_tree(statements[0])


def read_tree(statement: Node) -> Unresolved:
    """The unresolved form of a parsed statement whose arguments have already been checked.

    Raises:
        QueryError: ``unsupported-sql`` naming the construct.
    """
    with at(statement):
        return _query(statement, {}, whole=True)


def parse_expression(text: str) -> Node:
    """Parse a single expression, e.g. a condition of a structured query.

    Raises:
        QueryError: ``malformed-sql``.
    """
    parsed = _parse(text, _PREFIX)
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
    for part in node.walk():
        if part.meta.get("line") == 1:
            part.meta["col"] -= len(_PREFIX)
    return node


def parse_item(text: str, field: str) -> SelectItem:
    """Parse one entry of a SELECT list: an expression, ``*`` or ``alias.*``."""
    return _item(parse_expression(text), field)


def _parse(text: str, prefix: str = "") -> list[Node | None]:
    """Parse the statements in ``prefix + text``; columns in errors are counted in ``text``."""
    sql = prefix + text
    try:
        return _parsed(sql, whole=not prefix)
    except QueryError as error:
        line, column = error.position or (0, 0)
        if line != 1:
            raise
        raise error.moved(position=(1, max(column - len(prefix), 1))) from error.__cause__
    except RecursionError as cause:
        raise too_deep() from cause


_UNCLOSED, _NEAR = "an unclosed quote or comment", "check the statement near that place"


def _parsed(sql: str, *, whole: bool) -> list[Node | None]:
    """Parse the statements in ``sql``; ``whole``: ``sql`` is the user's text, without a prefix."""
    dialect, tokens = JoinDialect(), list[Token]()
    try:
        tokens = with_commas(simplified(dialect.tokenize(sql)))
        if whole:
            check_beginning(tokens)
        check_tokens(tokens)
        read_names(sql, tokens)
        _check_quotes(sql, tokens)
        check_intervals(tokens)
        statements = list(dialect.parser().parse(tokens, sql))
    except SqlglotError as cause:
        message, position = what_is_wrong(cause)
        place = position or unclosed_at(sql) or (1, 1)
        raise malformed(sql, tokens, message, place, _NEAR) from cause
    check_parsed(statements, tokens)
    for statement in statements:
        if isinstance(statement, exp.Query):
            with at(statement):
                keep_commas(statement, tokens)
                write_out_rows(statement)
                read_constants(statement)
                simplify(statement)
                respell(statement)
                spelled_as_spark(statement)
                layer_windows(statement)
                check_arguments(statement)
    return statements


def _check_quotes(sql: str, tokens: Iterable[Token]) -> None:
    """Reject doubled quotes in double quotes, which Spark and the tokenizer read differently."""
    end = -1
    for token in tokens:
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


def what_is_wrong(cause: SqlglotError) -> tuple[str, tuple[int, int] | None]:
    """The message of an error by sqlglot's parser or optimiser, with line and column if known."""
    if isinstance(cause, ParseError) and cause.errors:
        error = cause.errors[0]
        near = str(error.get("highlight") or "").strip()
        # The parser reports the last column of the token.
        column = int(error.get("col") or 1) - max(len(near), 1) + 1
        return (
            "syntax error" + (f" near {near[:60]!r}" if near else ""),
            (int(error.get("line") or 1), max(column, 1)),
        )
    text = re.sub(r"\s+", " ", str(cause))
    place = _PLACE.search(text)
    if place is not None:
        # The optimiser reports the last column of the name.
        named = re.search(r"'([^']*)'", text)
        column = int(place[2]) - (len(named[1]) - 1 if named else 0)
        return text[: place.start()].strip(" .,"), (int(place[1]), max(column, 1))
    return (_UNCLOSED if "tokenizing" in text else text[:200]), None


def unclosed_at(sql: str, reader: Dialect | None = None) -> tuple[int, int] | None:
    """Line and column of an unclosed quote or comment in ``sql``, which ``reader`` divides into
    tokens. None if there is none, or there are so many quotes that the search would take too long.

    >>> unclosed_at("SELECT 'a'\\nFROM 'b")
    (2, 6)
    """
    reader = reader or JoinDialect()
    openings = list(_OPENING.finditer(sql))[-_OPENINGS:]
    if _can_be_read(sql, reader):
        return None
    for opening in reversed(openings):
        before = sql[: opening.start()]
        # The tokenizer fails at the unclosed quote: find the last text before it that is readable.
        if _can_be_read(before, reader):
            return before.count("\n") + 1, len(before) - before.rfind("\n")
    return None


def _can_be_read(sql: str, reader: Dialect) -> bool:
    try:
        reader.tokenize(sql)
    except SqlglotError:
        return False
    return True


def _query(statement: Node, ctes: Mapping[str, Unresolved], *, whole: bool = False) -> Unresolved:
    """Parse a query at any depth, with the queries ``ctes`` (lower-case name -> query) in scope. A
    subquery (not ``whole``) with post-join clauses is marked by :attr:`Unresolved.nested`."""
    with at(statement):
        if not isinstance(body := _body(statement), exp.SetOperation):
            return _unresolved(body, ctes, whole=whole)
        inner = _with(body, ctes)
        clauses = _post_join(clauses_after(body))
        return _limited(set_operation(body, lambda side: _query(side, inner), clauses, whole=whole))


def _body(statement: Node) -> exp.Select | exp.SetOperation:
    if isinstance(statement, exp.Paren | exp.Subquery) and isinstance(statement.this, exp.Query):
        if statement.args.get("with_") is not None:
            raise unsupported("WITH before a query in parentheses", "move it into them")
        refuse_others(statement, {"this"})
        return _body(statement.this)
    if not isinstance(statement, exp.Select | exp.SetOperation):
        if isinstance(statement, exp.Alias | exp.Column | exp.Literal | exp.Anonymous):
            raise QueryError("malformed-sql", "this is not a SELECT statement", remedy=SHAPE)
        reads = statement.find(exp.Select) is not None
        raise no_query(type(statement).__name__.upper(), reads=reads)
    return statement


def _with(select: exp.Query, outer: Mapping[str, Unresolved]) -> Mapping[str, Unresolved]:
    """Queries that ``select`` may read, by name: from its own WITH and enclosing ones."""
    clause = select.args.get("with_")
    if clause is None:
        return outer
    if clause.args.get("recursive"):
        raise unsupported("WITH RECURSIVE", "write out as many joins as are wanted")
    known, own = dict(outer), set[str]()
    for cte in clause.expressions:
        name = str(cte.alias)
        with at(cte):
            if name.lower() in own:
                raise QueryError(
                    "duplicate-alias",
                    f"WITH names {name!r} twice",
                    remedy="give each query in it a name of its own",
                )
            inner = _query(cte.this, known)
            own.add(name.lower())
            columns = _names(cte.args["alias"])
            if columns:
                source = FromEntry(inner, name, columns=columns, node=cte)
                inner = Unresolved((source,), (), (SelectItem(None),))
            known[name.lower()] = inner
    return known


def _unresolved(select: exp.Select, outer: Mapping[str, Unresolved], *, whole: bool) -> Unresolved:
    joins, generators = generators_of(select, select.args.get("joins") or ())
    listed, own = in_items(select, len(generators))
    generators += own
    nested = None if whole else own_clause(select, joins, generators)
    whole = whole or nested is not None
    ctes = _with(select, outer)
    if not select.expressions:
        raise QueryError("malformed-sql", "the SELECT list is empty", remedy=SHAPE)
    from_ = select.args.get("from_")
    if from_ is None:
        raise QueryError("malformed-sql", "the query has no FROM clause", remedy=SHAPE)
    items, sides = _items(listed), list[OuterSide]()
    if whole:
        sources, conditions, sides = _from(from_.this, joins, ctes)
    else:
        sources, conditions = _joined(from_.this, joins, ctes)
    if sides and any(map(is_right, joins)):
        items = _in_order(items, sides, sources[0])
    where = select.args.get("where")
    if where is not None:
        conditions.append(Condition(where.this, len(sources)))
    post_join = _post_join(select) if whole else None
    return _limited(
        Unresolved(
            tuple(sources),
            tuple(conditions),
            tuple(items),
            post_join,
            tuple(sides),
            nested,
            generators=tuple(generators),
            subqueries=_subqueries(select, conditions, ctes),
        )
    )


def _subqueries(
    select: exp.Select, conditions: Iterable[Condition], ctes: Mapping[str, Unresolved]
) -> dict[int, Unresolved]:
    """Parse the subqueries of expressions: number -> subquery; nodes get it as metadata."""
    clauses = (*(one.node for one in conditions), *map(select.args.get, ("having", "order")))
    found: dict[int, Unresolved] = {}
    for clause in (*select.expressions, *clauses):
        if clause is None:
            continue
        for node in list(clause.walk(prune=lambda part: isinstance(part, exp.Query))):
            if isinstance(node, exp.Query):
                holder = node.parent
                of_in = isinstance(holder, exp.In) and node.arg_key == "query"
                if holder is None or not (of_in or isinstance(holder, exp.Exists)):
                    holder = node
                if isinstance(node.parent, exp.Any | exp.All):
                    with at(node):
                        raise unsupported(
                            describe(node.parent), "write [NOT] IN, or compare with max()"
                        )
                found[len(found) + 1] = as_values(node, _query(node, ctes))
                holder.meta[SUBQUERY] = len(found)
    return found


def _items(listed: Iterable[Node | SelectItem]) -> list[SelectItem]:
    items = []
    for one in listed:
        if isinstance(one, SelectItem):
            items.append(one)
            continue
        with at(one):
            items.append(_item(one, ""))
    return items


def _in_order(items: list[SelectItem], outer: list[OuterSide], left: FromEntry) -> list[SelectItem]:
    """SELECT ``items`` with ``*`` replaced by ``t.*`` of the tables in their written order, because
    a RIGHT JOIN was read as a LEFT JOIN of ``left`` with the first of ``outer``."""
    found = []
    for item in items:
        if item.node is not None or item.qualifier is not None:
            found.append(item)
            continue
        shown = (side.source for side in outer[1:] if side.kind not in _HIDING)
        entries = (outer[0].source, left, *shown)
        names = [s.alias or (s.of if isinstance(s.of, str) else "") for s in entries]
        changed = item.without or item.replaced or any(e.using or e.natural for e in entries)
        if changed or not all(names):
            with at(left.node):
                raise unsupported("* over a RIGHT JOIN", "name the columns, or write a LEFT JOIN")
        found += (replace(item, qualifier=name) for name in names)
    return found


def _from(
    first: Node, joins: list[exp.Join], ctes: Mapping[str, Unresolved]
) -> tuple[list[FromEntry], list[Condition], list[OuterSide]]:
    """The inner joins of a FROM list with their conditions, and its outer joins from left to right.
    A RIGHT JOIN is the LEFT JOIN of its right table with all joins before it."""
    last = next((n for n in reversed(range(len(joins))) if is_right(joins[n])), None)
    if last is not None and _reads_all(first, joins[last + 1 :]):
        sides = [_mirrored(joins[last], first, joins[:last], ctes)]
        sources, conditions = _joined(joins[last].this, [], ctes)
        outer = joins[last + 1 :]
    else:
        sides = []
        inner, outer = _without_outer(joins, first)
        sources, conditions = _joined(first, inner, ctes)
    sides += (_outer_side(join, join.this, ctes) for join in outer)
    return sources, conditions, sides


def _without_outer(joins: list[exp.Join], first: Node) -> tuple[list[exp.Join], list[exp.Join]]:
    """Split a statement's joins: inner joins, and all joins from the first outer join on."""
    first_kept = (n for n, j in enumerate(joins) if kind_of(j) not in INNER or as_of(j))
    end = next(first_kept, len(joins))
    return (joins[:end], joins[end:]) if _reads_all(first, joins[end:]) else (joins, [])


def _reads_all(first: Node, joins: Iterable[exp.Join]) -> bool:
    """Whether ``joins`` are of supported kinds, and FROM has no joins in parentheses."""
    nested = [first, *(join.this for join in joins)]
    return not any(n.args.get("joins") for n in nested) and None not in map(kind_of, joins)


def _mirrored(
    join: exp.Join, first: Node, before: list[exp.Join], ctes: Mapping[str, Unresolved]
) -> OuterSide:
    """Return the right side of the LEFT JOIN for a RIGHT JOIN: the sources before it."""
    if not before:
        return _outer_side(join, first, ctes)
    if join.args.get("using"):
        with at(join):
            raise unsupported("USING in a RIGHT JOIN with a join", "write ON")
    sources, conditions, outer = _from(first, before, ctes)
    inside = Unresolved(tuple(sources), tuple(conditions), (), outer=tuple(outer))
    return OuterSide(JoinKind.LEFT, FromEntry(inside, None, node=first), join.args.get("on"))


def _outer_side(join: exp.Join, other: Node, ctes: Mapping[str, Unresolved]) -> OuterSide:
    """The right side of an outer, semi or anti join; for a RIGHT JOIN its left table, ``other``."""
    with at(join):
        using = tuple(_identifier(node) for node in join.args.get("using") or ())
        asof = as_of(join)
        natural = str(join.args.get("method") or "").upper() == "NATURAL"
        source = _source(other, ctes, versioned=asof is not None)
        source = replace(source, using=using, natural=natural)
        return OuterSide(kind_of(join) or JoinKind.LEFT, source, join.args.get("on"), asof)


def _post_join(select: exp.Select) -> PostJoin | None:
    """The post-join clauses of a statement; None if it has neither such clauses nor aggregates."""
    parts = select.args
    aggregated = any(holds_aggregate(item) for item in select.expressions)
    if not aggregated and not any(parts.get(name) for name in POST_JOIN):
        return None
    distinct, having, order = (parts.get(name) for name in ("distinct", "having", "order"))
    qualify, on = parts.get("qualify"), None if distinct is None else distinct.args.get("on")
    group, first, every = _group(parts.get("group"))
    ordered = () if order is None else tuple(order.expressions)
    for entry in ordered:
        if isinstance(entry.this, exp.Var):
            raise unsupported("ORDER BY ALL", "name the columns")
    return PostJoin(
        distinct=distinct is not None and on is None,
        distinct_on=() if on is None else tuple(on.expressions) or (on,),
        group=group,
        group_first=first,
        group_all=every,
        having=None if having is None else having.this,
        qualify=None if qualify is None else qualify.this,
        order=ordered,
        limit=_number_of(parts.get("limit")),
        offset=_number_of(parts.get("offset")),
    )


def _group(clause: Node | None) -> tuple[tuple[Node, ...] | None, tuple[Node, ...], bool]:
    """Read GROUP BY: its entries (None: no clause); keys before GROUPING SETS in ``a, b GROUPING
    SETS (...)``; whether it is GROUP BY ALL."""
    if clause is None:
        return None, (), False
    if clause.args.get("totals"):
        raise unsupported("GROUP BY with TOTALS", "write WITH ROLLUP")
    listed, every = tuple(clause.expressions), bool(clause.args.get("all"))
    for name, kind in (("rollup", exp.Rollup), ("cube", exp.Cube)):
        # WITH ROLLUP stands after the list of keys; in other dialects ROLLUP contains its keys.
        for part in clause.args.get(name) or ():
            if not isinstance(part, kind):
                raise unsupported(f"{describe(part)} in GROUP BY", f"write {kind.__name__.upper()}")
            if part.expressions:
                listed = (*listed, part)
            else:
                return (kind(expressions=[node.copy() for node in listed]),), (), every
    sets = tuple(clause.args.get("grouping_sets") or ())
    return (sets, listed, every) if sets else (listed, (), every)


def _number_of(clause: Node | None) -> Node | None:
    if clause is None:
        return None
    if isinstance(clause.expression, exp.Var) and clause.expression.name.upper() == "ALL":
        return None
    if not isinstance(clause, exp.Limit | exp.Offset):
        raise unsupported(describe(clause), "write LIMIT and a number")
    node: Node = clause.expression
    return node


def _limited(query: Unresolved) -> Unresolved:
    if query.size > MOST_SOURCES:
        raise QueryError(
            "too-many-sources",
            f"the statement reads {query.size} streams once its subqueries are written out",
            remedy=f"read {MOST_SOURCES} at most",
        )
    return query


def _joined(
    first: Node, joins: Iterable[exp.Join], ctes: Mapping[str, Unresolved]
) -> tuple[list[FromEntry], list[Condition]]:
    """The joined sources in order, and the conditions; entries of a comma list may have joins."""
    ordered: list[exp.Join] = list(first.args.get("joins") or ())
    for join in joins:
        ordered.append(join)
        ordered.extend(join.this.args.get("joins") or ())
    sources, conditions = [_source(first, ctes)], []
    for join in ordered:
        with at(join):
            using = _join(join)
            natural = str(join.args.get("method") or "").upper() == "NATURAL"
            source = _source(join.this, ctes)
        crossed = str(join.args.get("kind") or "").upper() == "CROSS"
        sources.append(replace(source, using=using, natural=natural, crossed=crossed))
        if join.args.get("on") is not None:
            conditions.append(Condition(join.args["on"], len(sources)))
    return sources, conditions


def _join(join: exp.Join) -> tuple[str, ...]:
    """Check that ``join`` is an inner join, and return the columns of its USING clause."""
    side, kind, method = (str(join.args.get(k) or "").upper() for k in ("side", "kind", "method"))
    if kind in ("SEMI", "ANTI"):
        raise unsupported(f"a {kind} JOIN here", _LAST)
    if side and method:
        raise unsupported(f"a {method} {side} JOIN", "write ON with the columns of both sides")
    if side:
        raise unsupported(f"a {side} JOIN here", _LAST)
    if method not in ("", "NATURAL") or kind not in ("", "INNER", "CROSS"):
        raise unsupported(
            f"a {method or kind} JOIN", "use JOIN ... ON or USING with the columns written out"
        )
    return tuple(_identifier(node) for node in join.args.get("using") or ())


def _identifier(node: Node) -> str:
    if isinstance(node, exp.Column) and not node.table:
        return node.name
    if isinstance(node, exp.Identifier):
        return node.name
    raise QueryError(
        "malformed-sql", f"{describe(node)} is not a column name", remedy="write USING (column)"
    )


def _source(node: Node, ctes: Mapping[str, Unresolved], *, versioned: bool = False) -> FromEntry:
    with at(node):
        version = node.args.get("version")
        if version is not None and not (versioned and str(version.this) == "TIMESTAMP"):
            raise unsupported(
                f"{describe(version)} here",
                "write FOR SYSTEM_TIME AS OF after the table on the right of a JOIN",
            )
        alias = node.args.get("alias")
        name = alias.name if alias is not None and alias.name else None
        columns = _names(alias)
        if isinstance(node, exp.Subquery):
            refuse_others(node, {"this", "alias", "joins"})
            inner = _inside(node.this, ctes)
            if name is not None and inner.outer and not inner.items:
                joined = (f"a {inner.outer[0].called}", node)
                inner = replace(inner, items=(SelectItem(None),), nested=joined)
            return FromEntry(inner, name, columns=columns, node=node)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise no_stream(node)
        of = ctes.get(node.name.lower(), node.name)
        return FromEntry(of, name or node.name, columns=columns, node=node)


def _inside(node: Node, ctes: Mapping[str, Unresolved]) -> Unresolved:
    """The content of parentheses in FROM: a query, or joined tables."""
    if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
        return _query(node, ctes)
    if isinstance(node, exp.Subquery) and not (node.args.get("alias") or node.args.get("joins")):
        refuse_others(node, {"this"})
        return _inside(node.this, ctes)
    first = node.copy()
    first.set("joins", None)
    sources, conditions, outer = _from(first, list(node.args.get("joins") or ()), ctes)
    return _limited(Unresolved(tuple(sources), tuple(conditions), (), outer=tuple(outer)))


def _names(alias: Node | None) -> tuple[str, ...]:
    """The column names of a table alias: ``AS t(a, b)``."""
    if alias is None:
        return ()
    return tuple(_identifier(column) for column in alias.args.get("columns") or ())


def _item(node: Node, field: str) -> SelectItem:
    name = None
    if isinstance(node, exp.Alias):
        name, node = node.alias, node.this
    star = node.this if isinstance(node, exp.Column) else node
    if isinstance(star, exp.Star):
        if star.args.get("rename") or (isinstance(node, exp.Column) and node.args.get("db")):
            raise unsupported("* with RENAME", "name the columns that you want")
        if name is not None:
            raise unsupported("* with an alias", "name the columns that you want")
        qualifier = node.table if isinstance(node, exp.Column) else None
        without = frozenset(one.name.lower() for one in star.args.get("except_") or ())
        replaced = tuple(_item(one, field) for one in star.args.get("replace") or ())
        return SelectItem(None, None, qualifier, field, without, replaced, node)
    return SelectItem(node, name, None, field)
