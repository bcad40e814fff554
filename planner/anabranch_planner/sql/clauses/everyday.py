"""Common SQL spellings rewritten as equivalent ones: hints, qualified names, LIKE ANY and ALL,
fields of structs, FETCH FIRST."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import reduce
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.clauses.generators import flattened
from anabranch_planner.sql.clauses.values import look_up_values
from anabranch_planner.sql.unresolved import (
    GENERATORS,
    Node,
    as_written,
    at,
    conjunction,
    describe,
    operands,
    unsupported,
)

if TYPE_CHECKING:
    from sqlglot import Token


#: Syntax nodes in FROM, WITH and LATERAL that name a table.
_NAMED = (exp.Table, exp.Subquery, exp.CTE, exp.Lateral, exp.TableAlias)
#: SQL function -> words that may separate its arguments instead of commas.
_SPOKEN = {
    **dict.fromkeys(("SUBSTRING", "SUBSTR", "OVERLAY"), frozenset({"FROM", "FOR", "PLACING"})),
    "FLOOR": frozenset({"TO"}),
}
#: Key in a cast's metadata: it was a call, so its column is named like the operand.
CAST_CALL = "cast call"
#: Types whose names are also functions that cast to the type.
_CASTS = frozenset({
    "bigint", "binary", "boolean", "date", "double", "float", "int", "smallint", "string",
    "timestamp", "tinyint",
})  # fmt: skip
#: Functions that take a unit of time first if they have three arguments.
OF_UNIT = frozenset({
    "date_add", "dateadd", "date_diff", "datediff", "timestampadd", "timestampdiff",
})  # fmt: skip


def simplify(statement: Node) -> None:
    """Replace common spellings in ``statement`` by equivalent ones.

    Hints are dropped, because the planner decides how to join. Streams have no catalogs or
    databases, so only the last part of a qualified name is kept.

    Raises:
        QueryError: ``unsupported-sql``: two tables whose names differ only before the last part.
    """
    qualifiers: dict[str, str] = {}
    for table in list(statement.find_all(exp.Table)):
        if table.args.get("db"):
            _unqualify(table, qualifiers)
    look_up_values(statement)
    names = {name.lower() for table in statement.find_all(*_NAMED) for name in _names(table)}
    # Qualifiers of a time window's ends, as in window.start.
    names |= {"window", "session_window", "cumulate"}
    reads = statement.find(exp.From) is not None
    for node in list(statement.walk()):
        if isinstance(node, exp.Select):
            node.set("hint", None)
        elif isinstance(node, exp.Column) and node.table.lower() in qualifiers:
            node.set("db", None)
            node.set("catalog", None)
        elif isinstance(node, exp.Transform):
            node.replace(exp.Anonymous(this="transform", expressions=[node.this, node.expression]))
        elif reads and isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier):
            _reach(node, names)
        elif isinstance(node, exp.Like | exp.ILike) and isinstance(
            node.expression, exp.Any | exp.All
        ):
            _write_out(node)
        elif isinstance(node, exp.Fetch):
            _limit(node)
        elif isinstance(node, exp.Anonymous) and str(node.this).lower() in OF_UNIT:
            _quote_unit(node)
        elif isinstance(node, exp.Anonymous) and str(node.this).lower() in _CASTS:
            _cast(node)


def _quote_unit(call: exp.Anonymous) -> None:
    """Make the unit in ``timestampdiff(MINUTE, x, y)`` a text (parsed as a column)."""
    unit = call.expressions[0] if len(call.expressions) == 3 else None
    if isinstance(unit, exp.Column) and not unit.table:
        unit.replace(exp.Literal.string(unit.name))


def _cast(call: exp.Anonymous) -> None:
    """Replace ``date(x)``, ``string(x)`` and similar calls by casts."""
    if len(call.expressions) == 1:
        kind = exp.DataType.build(str(call.this), dialect="spark")
        made = exp.Cast(this=call.expressions[0], to=kind)
        made.meta[CAST_CALL] = True
        call.replace(made)


def _limit(fetch: exp.Fetch) -> None:
    """Replace ``FETCH FIRST n ROWS ONLY`` by LIMIT; other forms are rejected with LIMIT's."""
    options = fetch.args["limit_options"]
    if not options.args.get("percent") and not options.args.get("with_ties"):
        count = fetch.args.get("count") or exp.Literal.number(1)
        fetch.replace(exp.Limit(expression=count))


def _names(table: Node) -> Iterator[str]:
    yield from filter(None, (table.alias, table.name))


def _reach(column: exp.Column, names: Set[str]) -> None:
    """Rewrite ``alias.column.field`` and ``column.field`` with the operator that reads a field of a
    struct. ``names``: names of all tables, to distinguish aliases from columns."""
    parts = column.parts
    own = 2 if parts[0].name.lower() in names else 1
    if own >= len(parts):
        return
    table = parts[0].copy() if own == 2 else None
    made: Node = exp.Column(this=parts[own - 1].copy(), table=table)
    made.meta.update(column.meta)
    for field in parts[own:]:
        made = exp.Dot(this=made, expression=field.copy())
        made.meta.update(column.meta)
    column.replace(made)


def _round_arrays(tokens: Sequence[Token]) -> None:
    """Turn ``ARRAY[x, y]`` into ``ARRAY(x, y)``, which the parser distinguishes from ``a[0]``."""
    opened: list[bool] = []
    for before, token in itertools.pairwise(tokens):
        if token.token_type is TokenType.L_BRACKET:
            opened.append(before.token_type is TokenType.ARRAY)
            if opened[-1]:
                token.token_type = TokenType.L_PAREN
        elif token.token_type is TokenType.R_BRACKET and opened and opened.pop():
            token.token_type = TokenType.R_PAREN


def with_commas(tokens: list[Token]) -> list[Token]:
    """``tokens`` with commas instead of the words in ``substring(s FROM 2 FOR 3)`` and ``overlay(s
    PLACING 'x' FROM 2)``: the calls take the same arguments in this order."""
    _round_arrays(tokens)
    #: For each open parenthesis, the function's name if it is one of :data:`_SPOKEN`.
    calls: list[Token | None] = []
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            before = tokens[index - 1] if index else None
            calls.append(before if before and before.text.upper() in _SPOKEN else None)
        elif token.token_type is TokenType.R_PAREN:
            calls[-1:] = []
        elif token.token_type is TokenType.TILDE and _follows_value(tokens, index):
            # An operator ~ between two values matches a regular expression.
            token.token_type = TokenType.RLIKE
        elif (
            calls
            and calls[-1]
            and token.text.upper() in _SPOKEN[calls[-1].text.upper()]
            and _between(tokens, index)
        ):
            token.token_type = TokenType.COMMA
            # Spark names the column of such a call ``substring``, even if it is written SUBSTR.
            if calls[-1].text.upper() == "SUBSTR":
                calls[-1].text = "substring"
    return tokens


def _follows_value(tokens: Sequence[Token], index: int) -> bool:
    ends = (TokenType.VAR, TokenType.STRING, TokenType.R_PAREN, TokenType.IDENTIFIER)
    before = tokens[index - 1] if index else None
    return before is not None and (before.token_type in ends or before.text == "!")


def _between(tokens: Sequence[Token], index: int) -> bool:
    """Whether the word at ``index`` separates two arguments, and is not an argument itself."""
    edges = (TokenType.COMMA, TokenType.L_PAREN, TokenType.R_PAREN, TokenType.DOT)
    before, after = tokens[index - 1].token_type, tokens[index + 1].token_type
    # In these, the word separates no arguments: IS DISTINCT FROM, (s).placing, f(placing, 2).
    return before not in (*edges[:2], *edges[3:], TokenType.DISTINCT) and after not in edges[::2]


def keep_commas(tree: Node, tokens: Iterable[Token]) -> None:
    """Turn CROSS JOINs in ``tree`` that were written as commas back into commas. The parser reads
    commas in FROM as CROSS JOINs, but after a comma conditions must connect the tables."""
    if any(token.text.upper() == "CROSS" for token in tokens):
        return
    for join in tree.find_all(exp.Join):
        if str(join.args.get("kind") or "").upper() == "CROSS":
            join.set("kind", None)


def no_stream(node: Node) -> QueryError:
    """The error for an entry of FROM that is neither a stream nor a subquery."""
    inside = node.this if isinstance(node, exp.Table) else None
    if isinstance(inside, exp.Anonymous) and str(inside.this).lower() in GENERATORS:
        text = ", ".join(map(as_written, inside.expressions))
        called = f"{inside.this}({text})"
        return unsupported(
            f"{called} in FROM without LATERAL",
            f"write LATERAL {called} AS t(item), after the stream that it reads",
        )
    if not isinstance(node, exp.Lateral):
        return flattened(node) or unsupported(
            f"{describe(node)} in FROM", "name a registered stream"
        )
    remedy = "write the subquery without LATERAL, and its conditions into ON"
    select = node.this.this if isinstance(node.this, exp.Subquery) else None
    limit = select.args.get("limit") if isinstance(select, exp.Select) else None
    if isinstance(select, exp.Select) and len(select.expressions) == 1:
        item = select.expressions[0]
        name = item.alias_or_name or "value"
        scalar = select.copy()
        scalar.expressions[0].replace(item.unalias().copy())
        remedy = f"write ({as_written(scalar)}) AS {name} in the SELECT list"
        limit = None if limit is not None and limit.expression.name == "1" else limit
    if limit is not None:
        assert isinstance(select, exp.Select)
        remedy = _first_rows(node, select) or (
            "join a subquery with the first rows of each key: JOIN (SELECT ... QUALIFY "
            f"row_number() OVER (PARTITION BY k ORDER BY x) <= {limit.expression}) AS t ON ..."
        )
    return unsupported("LATERAL in FROM", remedy)


def _first_rows(lateral: exp.Lateral, select: exp.Select) -> str | None:
    """Remedy for ``LATERAL (SELECT ... ORDER BY x LIMIT n)``: the equivalent join, with the
    statement's names; None unless all its conditions on earlier tables are equalities of columns.
    """
    join, alias, order = lateral.parent, lateral.alias, select.args.get("order")
    if any(select.args.get(name) for name in ("group", "distinct", "offset", "qualify")):
        return None
    if not alias or order is None or not all(select.args.get(n) for n in ("from_", "where")):
        return None
    tables = [select.args["from_"].this, *(one.this for one in select.args.get("joins") or ())]
    own = {table.alias_or_name.lower() for table in tables}
    named = {item.alias_or_name.lower(): item for item in select.expressions}
    pairs: list[tuple[Node, Node]] = []
    kept: list[Node] = []
    for condition in operands(select.args["where"].this, exp.And):
        read = {c.table.lower() for c in condition.find_all(exp.Column)}
        if read <= own:
            kept.append(condition.copy())
            continue
        sides = [condition.this, condition.expression]
        if not isinstance(condition, exp.EQ) or not all(isinstance(s, exp.Column) for s in sides):
            return None
        inner, outer = sorted(sides, key=lambda side: side.table.lower() not in own)
        if inner.table.lower() not in own or not outer.table or outer.table.lower() in own:
            return None
        if named.setdefault(inner.name.lower(), inner) not in (inner, exp.column(inner.name)):
            return None
        pairs.append((inner, outer))
    if not pairs:
        return None
    inside = select.copy()
    inside.set("limit", None)
    inside.set("order", None)
    inside.set("where", exp.Where(this=conjunction(kept)) if kept else None)
    shown = {item.alias_or_name.lower() for item in select.expressions}
    added = {i.name.lower(): i.copy() for i, _ in pairs if i.name.lower() not in shown}
    inside.set("expressions", [*added.values(), *inside.expressions])
    keys = ", ".join(as_written(inner) for inner, _ in pairs)
    on = " AND ".join(f"{alias}.{inner.name} = {as_written(outer)}" for inner, outer in pairs)
    side = "LEFT " if isinstance(join, exp.Join) and join.args.get("side") == "LEFT" else ""
    return (
        f"write {side}JOIN ({as_written(inside)} QUALIFY row_number() OVER (PARTITION BY {keys} "
        f"{as_written(order).strip()}) <= {select.args['limit'].expression}) AS {alias} ON {on}"
    )


def _unqualify(table: exp.Table, qualifiers: dict[str, str]) -> None:
    before = f"{table.catalog}.{table.db}".strip(".")
    if qualifiers.setdefault(table.name.lower(), before) != before:
        with at(table):
            raise unsupported(
                f"{before}.{table.name} beside {qualifiers[table.name.lower()]}.{table.name}",
                "register one of them as a stream of another name",
            )
    table.set("db", None)
    table.set("catalog", None)


def _write_out(node: Node) -> None:
    """Replace ``x LIKE ANY (a, b)`` by ``x LIKE a OR x LIKE b``, and ALL by AND."""
    kind, listed = node.expression, node.expression.this
    patterns = listed.expressions if isinstance(listed, exp.Tuple) else [listed]
    made = [
        type(node)(
            this=node.this.copy(),
            expression=(p.this if isinstance(p, exp.Paren) else p).copy(),
            negate=node.args.get("negate"),
        )
        for p in patterns
    ]
    # NOT LIKE ALL: no pattern matches; NOT LIKE ANY: some pattern does not match.
    joined: type[exp.Connector] = exp.Or if isinstance(kind, exp.Any) else exp.And
    node.replace(exp.Paren(this=reduce(lambda a, b: joined(this=a, expression=b), made)))
