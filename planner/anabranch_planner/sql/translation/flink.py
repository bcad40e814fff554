"""Translation of Flink's time windows to Spark's: group functions, and table functions in FROM.

``TUMBLE(ts, i)`` in GROUP BY is ``window(ts, i)``, and ``TUMBLE_START(ts, i)`` its ``start``.
``FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), i)) GROUP BY window_start, window_end`` is ``FROM t
GROUP BY window(t.ts, i)``. Spark lacks ``CUMULATE``, which keeps its name. The parser can't read a
table as an argument, so table functions are first simplified as tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp

from anabranch_planner.sql.places import closing
from anabranch_planner.sql.unresolved import Node, at, unsupported

_KINDS = ("TUMBLE", "HOP", "SESSION", "CUMULATE")
_CALLS = {"SESSION": "session_window", "CUMULATE": "cumulate"}
_EDGES = {"_START": "start", "_END": "end"}
_OTHERS = ("_ROWTIME", "_PROCTIME")
#: Columns that a window table function of Flink adds -> fields of Spark's window.
_ADDED = {"window_start": "start", "window_end": "end"}
_TIME = "window_time"
_PARTITION = "PARTITIONED"


# --- tokens --------------------------------------------------------------------------------------


def simplified(tokens: Sequence[Token]) -> list[Token]:
    """``tokens`` with ``TABLE(TUMBLE(TABLE t PARTITION BY k, ...))`` as ``TUMBLE(t, PARTITIONED(k),
    ...)``; other tokens are unchanged."""
    left_out, inserted = set[int](), dict[int, list[Token]]()
    for index, token in enumerate(tokens):
        if token.text.upper() not in _KINDS or not _is(tokens, index + 1, TokenType.L_PAREN):
            continue
        # SESSION is a keyword to the parser.
        token.token_type = TokenType.VAR
        end = closing(tokens, index + 1)
        tables = [i for i in range(index + 2, end or 0) if _is(tokens, i, TokenType.TABLE)]
        if end is None or not tables:
            continue
        left_out.add(tables[0])
        _partition(tokens, tables[0], end, left_out, inserted)
        if _is(tokens, index - 1, TokenType.L_PAREN) and _is(tokens, index - 2, TokenType.TABLE):
            left_out |= {index - 2, index - 1}
            if _is(tokens, end + 1, TokenType.R_PAREN):
                left_out.add(end + 1)
    return [
        made
        for index, token in enumerate(tokens)
        for made in (*inserted.get(index, ()), *(() if index in left_out else (token,)))
    ]


def _is(tokens: Sequence[Token], index: int, kind: TokenType) -> bool:
    return 0 <= index < len(tokens) and tokens[index].token_type is kind


def _partition(
    tokens: Sequence[Token],
    start: int,
    end: int,
    left_out: set[int],
    inserted: dict[int, list[Token]],
) -> None:
    """Turn the tokens ``TABLE t PARTITION BY k`` from ``start`` on into ``t, PARTITIONED(k)``."""
    first = next((i for i in range(start, end) if _is(tokens, i, TokenType.PARTITION_BY)), None)
    if first is None:
        return
    last = next(
        (
            i for i in range(first, end)
            if _is(tokens, i, TokenType.COMMA)
            and (tokens[i + 1].text.upper() == "DESCRIPTOR" or _is(tokens, i + 2, TokenType.FARROW))
        ),
        end,
    )  # fmt: skip
    by = tokens[first]

    def made(kind: TokenType, text: str) -> Token:
        return Token(kind, text, by.line, by.col, by.start, by.end)

    left_out.add(first)
    inserted[first] = [
        made(TokenType.COMMA, ","), made(TokenType.VAR, _PARTITION), made(TokenType.L_PAREN, "("),
    ]  # fmt: skip
    inserted[last] = [made(TokenType.R_PAREN, ")")]


# --- trees ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Windowed:
    """A window table function in FROM: its table, the alias, and the call of Spark's window."""

    alias: str
    call: exp.Anonymous
    partition: list[Node]


def spelled_as_spark(statement: Node) -> None:
    """Replace Flink's windows in ``statement`` by Spark's spelling.

    Raises:
        QueryError: ``unsupported-sql``: a window has no equivalent, or is not in GROUP BY.
    """
    for select in list(statement.find_all(exp.Select)):
        _replace_table_function(select)
    for node in list(statement.find_all(exp.Anonymous)):
        with at(node):
            made = _grouped(node)
        if made is not None:
            node.replace(made)


def _grouped(node: exp.Anonymous) -> Node | None:
    """Spark's call for Flink's TUMBLE() etc., or TUMBLE_START() etc.; None for others."""
    name = str(node.this).upper()
    kind, _, suffix = name.partition("_")
    if kind not in _KINDS or (suffix and f"_{suffix}" not in (*_EDGES, *_OTHERS)):
        return None
    if f"_{suffix}" in _OTHERS:
        raise unsupported(f"{node.this}()", f"write {kind}_START() or {kind}_END()")
    call = _call(kind, node.expressions, node)
    if not suffix:
        return call
    edge = exp.Identifier(this=_EDGES[f"_{suffix}"])
    return exp.Dot(this=call, expression=edge)


def _call(kind: str, arguments: Sequence[Node], node: exp.Anonymous) -> exp.Anonymous:
    """The call of Spark's window function for Flink's window ``kind`` with these arguments."""
    least, most = {"TUMBLE": (2, 3), "HOP": (3, 4), "SESSION": (2, 2), "CUMULATE": (3, 4)}[kind]
    if not least <= len(arguments) <= most:
        example = {
            "TUMBLE": "TUMBLE(ts, INTERVAL '10' MINUTE)",
            "HOP": "HOP(ts, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE)",
            "SESSION": "SESSION(ts, INTERVAL '5' MINUTE)",
            "CUMULATE": "CUMULATE(ts, INTERVAL '1' HOUR, INTERVAL '1' DAY)",
        }[kind]
        raise unsupported(f"{node.this}() of {len(arguments)} arguments", f"write {example}")
    time, *durations = (argument.copy() for argument in arguments)
    if kind == "HOP":
        durations[:2] = durations[1::-1]
    if kind == "TUMBLE" and len(durations) == 2:
        durations.insert(1, durations[0].copy())
    made = exp.Anonymous(this=_CALLS.get(kind, "window"), expressions=[time, *durations])
    made.meta.update(node.meta)
    return made


def _replace_table_function(select: exp.Select) -> None:
    from_ = select.args.get("from_")
    tables = [] if from_ is None else [from_.this]
    tables += [join.this for join in select.args.get("joins") or ()]
    windowed = [found for table in tables if (found := _windowed(table)) is not None]
    if not windowed:
        return
    if len(windowed) > 1:
        with at(windowed[1].call):
            raise unsupported("a second window", "register one query for each window")
    one = windowed[0]
    group = select.args.get("group")
    with at(one.call):
        keys = {c.name.lower() for c in _added(group, one.alias)} if group is not None else set()
        if group is None or keys <= {_TIME}:
            raise unsupported(
                "a window in FROM without GROUP BY of it",
                "write GROUP BY window_start, window_end; to join rows of equal windows, name the "
                "streams, and write ON date_bin(INTERVAL '5' MINUTE, a.ts) = "
                "date_bin(INTERVAL '5' MINUTE, b.ts) with their event times",
            )
        if one.call.this == _CALLS["CUMULATE"] and "window_end" not in keys:
            raise unsupported(
                "CUMULATE() without GROUP BY of window_end",
                "windows that begin together differ in their ends: write GROUP BY window_start, "
                "window_end",
            )
        _require_partition(group, one)
    for name, clause in select.args.items():
        parts = clause if isinstance(clause, list) else [clause]
        for part in parts:
            if isinstance(part, exp.Expr):
                _replace_columns(name, part, one)


def _windowed(table: Node) -> _Windowed | None:
    """Replace ``table``, a window table function, by its plain table; return its window."""
    call = table.this if isinstance(table, exp.Table) else None
    if not isinstance(call, exp.Anonymous) or str(call.this).upper() not in _KINDS:
        return None
    kind = str(call.this).upper()
    with at(call):
        named: dict[str, Node] = {}
        plain: list[Node] = []
        partition: list[Node] = []
        for argument in call.expressions:
            if isinstance(argument, exp.Kwarg | exp.PropertyEQ):
                named[argument.this.name.upper()] = argument.expression
            elif isinstance(argument, exp.Anonymous) and str(argument.this) == _PARTITION:
                partition = [k for part in argument.expressions for k in _listed(part)]
            else:
                plain.append(argument)
        order = {"TUMBLE": ("SIZE", "OFFSET"), "HOP": ("SLIDE", "SIZE", "OFFSET"),
                 "SESSION": ("GAP",), "CUMULATE": ("STEP", "SIZE", "OFFSET")}[kind]  # fmt: skip
        plain += [named[name] for name in ("DATA", "TIMECOL", *order) if name in named]
        if len(plain) < 2 or not isinstance(plain[0], exp.Column) or plain[0].table:
            raise unsupported(
                f"{call.this}() of another table than a stream",
                f"write FROM TABLE({kind}(TABLE orders, DESCRIPTOR(ts), ...))",
            )
        stream = plain[0].this
        time = plain[1].expressions if _is_descriptor(plain[1]) else [plain[1]]
        alias = table.alias or plain[0].name
        if len(time) != 1 or not isinstance(time[0], exp.Column):
            raise unsupported(f"{call.this}() without a time column", "write DESCRIPTOR(ts)")
        moment = time[0].copy()
        moment.set("table", exp.Identifier(this=alias, quoted=True))
        made = _call(kind, [moment, *plain[2:]], call)
    call.replace(stream.copy())
    return _Windowed(alias, made, partition)


def _is_descriptor(node: Node) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).upper() == "DESCRIPTOR"


def _listed(node: Node) -> list[Node]:
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    return [node.this if isinstance(node, exp.Paren) else node]


def _added(tree: Node, alias: str) -> Iterator[exp.Column]:
    """The columns under ``tree`` that the window table function ``alias`` adds."""
    for column in tree.find_all(exp.Column):
        if column.name.lower() in (*_ADDED, _TIME) and column.table.lower() in ("", alias.lower()):
            yield column


def _require_partition(group: Node, one: _Windowed) -> None:
    if not one.partition and one.call.this != "session_window":
        return
    added = set(map(id, _added(group, one.alias)))
    keys = {node.name.lower() for node in group.expressions if id(node) not in added}
    if keys != {node.name.lower() for node in one.partition}:
        raise unsupported(
            "a session with another PARTITION BY than the keys of GROUP BY",
            "name the same columns in both: sessions are per group",
        )


def _replace_columns(clause: str, part: Node, one: _Windowed) -> None:
    for column in list(_added(part, one.alias)):
        with at(column):
            name = column.name.lower()
            if name == _TIME or clause in ("where", "joins", "from_"):
                raise unsupported(
                    f"{column.name} {'' if name == _TIME else 'in WHERE or ON'}".strip(),
                    "write window_start or window_end, in GROUP BY, SELECT, HAVING or ORDER BY",
                )
            made: Node = one.call.copy()
            if clause != "group":
                qualifier = exp.Identifier(this=str(one.call.this))
                edge = exp.Identifier(this=_ADDED[name])
                edge.meta.update(column.this.meta)
                made = exp.Column(this=edge, table=qualifier)
                if clause == "expressions" and column is part:
                    made = exp.Alias(this=made, alias=column.this.copy())
            column.replace(made)
