"""Parsing of SQL text into a statement in which every column names its table."""

from __future__ import annotations

import re
from typing import TypeAlias

from sqlglot import exp
from sqlglot.errors import OptimizeError, SqlglotError
from sqlglot.optimizer.qualify import qualify

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.arguments import CONSUMED, refuse_others
from anabranch_planner.sql.dialects import reader_of
from anabranch_planner.sql.scope import nearest
from anabranch_planner.sql.syntax import unclosed_at, what_is_wrong
from anabranch_planner.sql.unresolved import position_of
from benchmarks.papers.tsc.inline import inlined, uniquely_named

#: Table -> column -> type, the form that sqlglot's ``qualify`` takes.
Catalog: TypeAlias = dict[str, dict[str, str]]
#: Node types whose arguments are checked, since the plan must represent all of them.
_CHECKED = (exp.Limit, exp.Offset, exp.Table, exp.Join, exp.Column)
#: Number of operands from which on a chain of AND or OR is converted into a tree.
_LONG = 16


def read_statement(sql: str, catalog: Catalog, dialect: str) -> exp.Expr:
    """Parse a statement, and inline queries in FROM where possible.

    Args:
        sql: one query, with no semicolon but at its end.
        catalog: the existing tables.
        dialect: sqlglot's name of the dialect of ``sql``.

    Raises:
        QueryError: ``malformed-sql``, ``unknown-name``; ``unsupported-sql`` names the construct.
    """
    reader = reader_of(dialect)
    found: list[exp.Expr] = []
    try:
        found += [s for s in reader.parse(sql) if s is not None]
        if len(found) != 1 or not isinstance(found[0], exp.Query):
            raise refused("what is not a single query", found[0] if found else None)
        _check_tables(found[0], catalog)
        for node in found[0].find_all(*_CHECKED):
            refuse_others(node, CONSUMED[type(node)])
        statement = _balanced(found[0])
        qualified = qualify(
            statement, schema=dict(catalog), dialect=reader, quote_identifiers=False
        )
        return inlined(uniquely_named(qualified))
    except RecursionError as cause:
        raise QueryError(
            "malformed-sql", "the statement is nested too deeply", remedy="use fewer parentheses"
        ) from cause
    except SqlglotError as cause:
        message, position = what_is_wrong(cause)
        position = position or _position_of_unknown(message, found[0] if found else None)
        position = position or (None if found else unclosed_at(sql))
        code = "unknown-name" if isinstance(cause, OptimizeError) else "malformed-sql"
        raise QueryError(
            code, message, remedy="check the statement near that place", position=position
        ) from cause


def refused(what: str, node: exp.Expr | None, remedy: str = "write it as a join") -> QueryError:
    """Return the error for an unsupported construct, with its position."""
    return QueryError(
        "unsupported-sql",
        f"{what} is not supported",
        remedy=remedy,
        position=None if node is None else position_of(node),
    )


def _balanced(statement: exp.Expr) -> exp.Expr:
    """Convert chains of AND and OR in ``statement`` into trees of logarithmic depth.

    The parser makes them as deep as they are long, and algorithms that visit the ancestors of each
    node take quadratic time in the depth.
    """
    for kind in (exp.And, exp.Or):
        chains = [n for n in statement.find_all(kind) if not isinstance(n.parent, kind)]
        for chain in chains:
            parts = _operands(chain, kind)
            if len(parts) > _LONG:
                chain.replace(_tree(kind, parts))
    return statement


def _tree(kind: type[exp.Connector], parts: list[exp.Expr]) -> exp.Expr:
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return kind(this=_tree(kind, parts[:middle]), expression=_tree(kind, parts[middle:]))


def _operands(chain: exp.Expr, kind: type[exp.Connector]) -> list[exp.Expr]:
    """Return the operands of a chain of AND or of OR, left to right; parentheses stay."""
    found: list[exp.Expr] = []
    pending = [chain]
    while pending:
        node = pending.pop()
        if isinstance(node, kind):
            pending += [node.expression, node.this]
        else:
            found.append(node)
    return found


def _position_of_unknown(message: str, statement: exp.Expr | None) -> tuple[int, int] | None:
    """Return the position of the unknown column in an error message of ``qualify``."""
    named = re.search(r"[Uu]nknown column: (\w+)", message)
    if named is None or statement is None:
        return None
    columns = (c for c in statement.find_all(exp.Column) if c.name == named[1])
    return next(filter(None, map(position_of, columns)), None)


def _check_tables(statement: exp.Expr, catalog: Catalog) -> None:
    """Refuse tables that are neither in the catalog nor defined by WITH."""
    known = {name.lower() for name in catalog}
    known |= {cte.alias.lower() for cte in statement.find_all(exp.CTE)}
    for table in statement.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and table.name.lower() not in known:
            raise QueryError(
                "unknown-table",
                f"there is no table {table.name!r}",
                remedy=nearest(table.name, known),
                position=position_of(table),
            )
