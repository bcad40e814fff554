"""Random views for tests of maintained tables, random weighted rows for them, and the views' SQL
for DuckDB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from anabranch_contract.queries.expressions import BOOLEAN, Call, Column, Expr, Literal, Output
from anabranch_contract.queries.types import DataType, parse_type
from anabranch_contract.queries.views import (
    GROUPING_ID,
    PAIRS,
    PLACE,
    WINDOW_END,
    WINDOW_START,
    AggregateFunction,
    Excluded,
    Frame,
    FrameUnit,
    RankFunction,
    SortKey,
    TimeWindow,
    Total,
    View,
    ViewAggregate,
    Windowed,
    WindowFunction,
)
from anabranch_runtime.columns.arrow_types import arrow_type

F = AggregateFunction
W = WindowFunction
BIGINT, DOUBLE, STRING = (parse_type(t) for t in ("bigint", "double", "string"))
MINUTE = 60_000_000
START = datetime(2026, 1, 1, tzinfo=UTC)

#: Columns of joined rows: keys, then values.
KEYS = {
    "ki": "bigint", "ks": "string", "kd": "decimal(20,2)", "kf": "double", "kt": "timestamp",
    "kb": "boolean", "ka": "date", "kr": "float", "kn": "decimal(6,1)",
}  # fmt: skip
VALUES = {
    "xi": "int", "xl": "bigint", "xd": "decimal(12,2)", "xw": "decimal(30,4)", "xf": "double",
    "xg": "double", "xs": "string", "xt": "timestamp", "xb": "boolean",
}  # fmt: skip
TYPES = {name: parse_type(kind) for name, kind in (KEYS | VALUES).items()}
TIME = "xt"
_NUMBERS = ("xi", "xl", "xd", "xw", "xg")

Row = tuple[Any, ...]


def _value(name: str, random: Random) -> Any:
    """Return a value of a small domain, so that values recur."""
    if random.random() < 0.12:
        return None
    n = random.randrange(5)
    match name:
        case "ki" | "xi":
            return n - 1
        case "ks":
            return ("", "a", "A", "ab", "é" * 9)[n]
        case "xs":
            return ("b", "a", "", "ab", "long text of more than sixteen bytes")[n]
        case "kd":
            return Decimal((-10_000_000_000_000_000, 0, 1, 150, 10**19)[n]).scaleb(-2)
        case "kn" | "xd":
            return Decimal(n * 7 - 9).scaleb(-1)
        case "xw":
            return Decimal(random.randrange(-(10**28), 10**28)).scaleb(-4)
        case "kf" | "kr":
            return (0.0, -0.0, math.nan, 1.5, -2.25)[n]
        case "xf":
            return random.choice((0.0, -1.5, math.nan, math.inf, -math.inf, 1e-300, 1e300, 0.1))
        case "xg":
            return random.randrange(-40, 80) / 8 + random.choice((0.0, 0.0, 0.1))
        case "xl":
            return random.choice((n, -n, 10**15 + n))
        case "kb" | "xb":
            return n < 2
        case "ka":
            return date(2026, 1, 1) + timedelta(n)
        case "kt":
            return START + timedelta(microseconds=n)
    return START + timedelta(seconds=random.randrange(3600))


@dataclass(frozen=True, slots=True)
class Case:
    """A view, the columns that it reads, and its SQL over the table ``net``."""

    view: View
    columns: tuple[str, ...]
    sql: str

    @property
    def schema(self) -> pa.Schema:
        """Schema of the joined rows."""
        return pa.schema([(n, arrow_type(TYPES[n])) for n in self.columns])

    def row(self, random: Random) -> Row:
        """Return a random joined row."""
        return tuple(_value(n, random) for n in self.columns)

    def table(self, rows: list[Row]) -> pa.Table:
        """Return ``rows`` as a table."""
        columns = zip(*rows, strict=True) if rows else [()] * len(self.columns)
        arrays = [
            pa.array(list(values), field.type)
            for values, field in zip(columns, self.schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)


def _column(name: str) -> Column:
    return Column("", name, TYPES[name])


def _sort(expr: Expr, text: str, random: Random) -> tuple[SortKey, str]:
    down, first = random.random() < 0.5, random.random() < 0.5
    words = f"{text} {'DESC' if down else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
    return SortKey(expr, down, first), words


def _aggregate(name: str, random: Random, *, sampled: bool) -> tuple[ViewAggregate, str]:
    """Return a random aggregate, and its SQL."""

    def made(
        function: F, column: str | None, kind: DataType, sql: str, *, distinct: bool = False,
        by: str | None = None, option: str = "", descending: bool = False,
        then: tuple[tuple[str, bool], ...] = (),
    ) -> tuple[ViewAggregate, str]:  # fmt: skip
        return ViewAggregate(
            name, function, column, distinct, kind, by, option, descending, then
        ), sql

    pick = random.randrange(16)
    number = random.choice(_NUMBERS)
    distinct = random.random() < 0.3
    word = "DISTINCT " if distinct else ""
    if pick == 0:
        return made(F.COUNT, None, BIGINT, "count(*)")
    if pick == 1:
        column = random.choice(tuple(TYPES))
        # DuckDB never has to distinguish -0.0 and 0.0: the oracle's input has no -0.0.
        return made(F.COUNT, column, BIGINT, f"count({word}{column})", distinct=distinct)
    if pick in (2, 3):
        column = random.choice((*_NUMBERS, "xf"))
        result = _number_type(F.SUM, column)
        if column == "xf":
            # Rounded once, as in DuckDB's fsum, except for sizes that it can't represent.
            distinct, word = False, ""
            return made(F.SUM, column, result, _float_sum("xf"))
        return made(F.SUM, column, result, f"sum({word}{column})", distinct=distinct)
    if pick == 4:
        result = _number_type(F.AVG, number)
        return made(F.AVG, number, result, f"avg({word}{number})", distinct=distinct)
    if pick in (5, 6):
        column = random.choice(tuple(TYPES))
        function = random.choice((F.MIN, F.MAX))
        return made(function, column, TYPES[column], f"{function}({column})")
    if pick == 7:
        column = random.choice(("xi", "xd", "xg"))
        function = random.choice((F.STDDEV_SAMP, F.STDDEV_POP, F.VAR_SAMP, F.VAR_POP))
        return made(function, column, DOUBLE, f"{function}({column}::double)")
    if pick == 8:
        column, by = random.choice(tuple(VALUES)), random.choice(("xi", "ks", "xd", "kf"))
        function = random.choice((F.MIN_BY, F.MAX_BY))
        order = "ASC NULLS FIRST" if function is F.MIN_BY else "DESC NULLS LAST"
        sql = f"(list({column} ORDER BY {by} {order}, {column} {order}) FILTER ({by} IS NOT NULL))"
        return made(function, column, TYPES[column], f"{sql}[1]", by=by)
    if pick == 9:
        share = random.choice(("0", "0.1", "0.25", "0.5", "0.07", "0.9", "1"))
        sql = f"quantile_cont({number}::double, {share})"
        return made(F.PERCENTILE_CONT, number, DOUBLE, sql, option=share)
    if pick == 10:
        column = random.choice(("xi", "xs", "xt", "xd"))
        share = random.choice(("0", "0.1", "0.25", "0.5", "0.07", "0.9", "1"))
        down = random.random() < 0.3
        order = "DESC" if down else "ASC"
        sql = f"percentile_disc({share}) WITHIN GROUP (ORDER BY {column} {order})"
        return made(F.PERCENTILE_DISC, column, TYPES[column], sql, option=share, descending=down)
    if pick == 11:
        separator = random.choice((",", "", "; "))
        drawn = random.sample(("xi", "kd", "xd", "xs"), random.choice((0, 1, 1, 2, 3)))
        # Sort keys after the value itself have no effect.
        keys = drawn[: drawn.index("xs") + 1] if "xs" in drawn else drawn
        downs = [(key, random.random() < 0.5) for key in keys]
        written = [f"{key} {'DESC NULLS LAST' if d else 'ASC NULLS FIRST'}" for key, d in downs]
        order = ", ".join(written if "xs" in keys else [*written, "xs"])
        sql = f"string_agg(xs, '{separator}' ORDER BY {order})"
        first = downs[0] if downs else (None, False)
        return made(
            F.LISTAGG, "xs", STRING, sql, by=first[0], option=separator, descending=first[1],
            then=tuple(downs[1:]),
        )  # fmt: skip
    if pick == 12:
        column = random.choice(("xi", "xl", "ki"))
        function = random.choice((F.BIT_AND, F.BIT_OR, F.BIT_XOR))
        return made(function, column, TYPES[column], f"{function}({column})")
    if pick == 13:
        column, down = random.choice(("xi", "xs", "xd", "xt", "xb")), random.random() < 0.5
        # The entries of a histogram are ordered by value.
        later = f"b.value {'>=' if down else '>'} a.value"
        entries = f"map_entries(histogram({column}))"
        chosen = f"list_reduce({entries}, lambda a, b: CASE WHEN {later} THEN b ELSE a END).key"
        sql = f"CASE WHEN count({column}) > 0 THEN {chosen} END"
        return made(F.MODE, column, TYPES[column], sql, descending=down)
    if pick == 14:
        column = random.choice(("xi", "xd", "xg"))
        function = random.choice((F.SKEWNESS, F.KURTOSIS))
        n = f"count({column})"
        sql = f"kurtosis_pop({column}::double)"
        if function is F.SKEWNESS:
            # DuckDB's function is for samples, NULL for two values.
            share = f"({n} - 2) / sqrt({n} * ({n} - 1))"
            sql = f"CASE {n} WHEN 2 THEN 0.0 ELSE skewness({column}::double) * {share} END"
        varied = f"min({column}) < max({column})"
        return made(function, column, DOUBLE, f"CASE WHEN {varied} THEN {sql} END")
    one, other = random.choice((("xi", "xg"), ("xg", "xd"), ("xd", "xi")))
    function = random.choice(sorted(PAIRS))
    sql = f"{function}({one}::double, {other}::double)"
    if function in (F.CORR, F.REGR_SLOPE, F.REGR_INTERCEPT, F.REGR_R2):
        known = f"FILTER ({one} IS NOT NULL AND {other} IS NOT NULL)"
        of = (one, other) if function is F.CORR else (other,)
        varied = " AND ".join(f"min({c}) {known} < max({c}) {known}" for c in of)
        sql = f"CASE WHEN {varied} THEN {sql} END"
    return made(function, one, DOUBLE, sql, by=other)


def _number_type(function: str, column: str) -> DataType:
    """Return the type of a sum or average."""
    kind = TYPES[column]
    if kind.kind != "decimal":
        return DOUBLE if function == "avg" or kind.kind == "double" else BIGINT
    more, digits = (10, 0) if function == "sum" else (4, 4)
    return parse_type(f"decimal({min(38, kind.precision + more)},{kind.scale + digits})")


def _float_sum(column: str) -> str:
    """Return SQL of a float sum with Spark's NaN and infinities; DuckDB refuses some overflows."""
    plus, minus = (f"count(*) FILTER ({column} = '{s}inf'::double)" for s in ("", "-"))
    nan = f"count(*) FILTER (isnan({column}))"
    return (
        f"CASE WHEN {nan} > 0 OR ({plus} > 0 AND {minus} > 0) THEN 'nan'::double "
        f"WHEN {plus} > 0 THEN 'inf'::double WHEN {minus} > 0 THEN '-inf'::double "
        f"ELSE fsum({column}) FILTER (isfinite({column})) END"
    )


def case(seed: int) -> Case:
    """Return the random view number ``seed``."""
    random = Random(seed)
    drawn = random.random()
    if drawn > 0.93:
        return _copied(random)
    return _ranked(random) if drawn < 0.3 else _grouped(random)


def _copied(random: Random) -> Case:
    """Return groups that occur as often as they have rows without a value."""
    keys = random.sample(tuple(KEYS), random.choice((1, 1, 2, 3)))
    value = random.choice(tuple(VALUES))
    counts = [ViewAggregate("g1", F.COUNT, None, False, BIGINT),
              ViewAggregate("g2", F.COUNT, value, False, BIGINT)]  # fmt: skip
    every, known = (Column("", a.name, BIGINT) for a in counts)
    shown = [*keys, *keys[: len(keys) - 1]]
    outputs = tuple(Output(f"o{n}", _column(key)) for n, key in enumerate(shown))
    sort, words = _sort(outputs[0].expr, "o0", random)
    order = (sort,) if random.random() < 0.3 else ()
    ties = "".join(f", {o.name} ASC NULLS FIRST" for o in outputs)
    view = View(
        True, tuple((k, TYPES[k]) for k in keys), tuple(counts), outputs, None,
        Call("gt", (every, known), BOOLEAN), order,
        copies=Call("sub", (every, known), BIGINT),
    )  # fmt: skip
    listed = ", ".join(f"{key} AS o{n}" for n, key in enumerate(shown))
    count = f"count(*) - count({value})"
    sql = (
        f"SELECT * EXCLUDE m, unnest(range(1, m + 1)) AS anabranch_copy FROM (SELECT {listed}, "
        f"{count} AS m FROM net GROUP BY {', '.join(keys)} HAVING {count} > 0)"
        f" ORDER BY {words}{ties}, anabranch_copy"
    )
    return Case(view, (*keys, value), sql)


def _grouped(random: Random) -> Case:
    keys = random.sample(tuple(KEYS), random.choice((0, 1, 1, 2, 2, 3)))
    window, source = _window(random)
    if window and window.session:
        source = session_views(window.length, keys)
    named = [f"g{n}" for n in range(random.choice((0, 1, 1, 2, 3)) if keys or window else 2)]
    made = [_aggregate(n, random, sampled=False) for n in named]
    aggregates, texts = [a for a, _ in made], {a.name: sql for a, sql in made}
    sets: tuple[tuple[int, ...], ...] = ()
    if keys and not (window and window.session) and random.random() < 0.2:
        every = [tuple(n for n in range(len(keys)) if m >> n & 1) for m in range(2 ** len(keys))]
        sets = tuple(random.sample(every, random.randrange(1, len(every) + 1)))
        if {n for s in sets for n in s} != set(range(len(keys))):
            sets = (*(s for s in sets if s != every[-1]), every[-1])
    read = dict.fromkeys([*keys, *([TIME] if window else [])])
    read |= dict.fromkeys(c for a in aggregates for c in a.reads)
    group = [Column("", k, TYPES[k]) for k in keys]
    sql_of = {c: c.name for c in group}
    if sets:
        group.append(Column("", GROUPING_ID, BIGINT))
        sql_of[group[-1]] = f"grouping({', '.join(keys)})"
    if window:
        for name in (WINDOW_START, WINDOW_END):
            group.append(Column("", name, parse_type("timestamp")))
            sql_of[group[-1]] = name
    shown: list[tuple[Output, str]] = []
    for column in group:
        if random.random() < 0.8:
            shown.append((Output(f"o{len(shown)}", column), sql_of[column]))
    for a in aggregates:
        expr: Expr = Column("", a.name, a.type)
        text = texts[a.name]
        if a.function is F.COUNT and random.random() < 0.5:
            expr, text = Call("add", (expr, Literal(1, BIGINT)), BIGINT), f"{text} + 1"
        shown.append((Output(f"o{len(shown)}", expr), text))
    if not shown:
        shown.append((Output("one", Literal(1, BIGINT)), "1"))
    having, having_sql = None, ""
    counted = next((a for a in aggregates if a.function is F.COUNT), None)
    if counted is not None and random.random() < 0.4:
        least = Literal(random.randrange(4), BIGINT)
        having = Call("gt", (Column("", counted.name, BIGINT), least), BOOLEAN)
        having_sql = f" HAVING {texts[counted.name]} > {least.value}"
    totals: tuple[Total, ...] = ()
    summed = next((a for a in aggregates if a.function is F.SUM and a.column == "xd"), None)
    if having is None and summed is not None and not summed.distinct and not sets and keys:
        totals = (Total("t1", summed.name, F.SUM, summed.type),)
        having = Call(
            "gt", (Column("", summed.name, summed.type), Column("", "t1", summed.type)), BOOLEAN
        )
        having_sql = f" HAVING sum(xd) > (SELECT sum(xd) FROM {source})"
    order, limit, offset, order_sql = _order(shown, sql_of, group, random)
    group_sql = _group_by(keys, sets, window)
    view = View(
        True, tuple((k, TYPES[k]) for k in keys), tuple(aggregates), tuple(o for o, _ in shown),
        window, having, order, limit, offset, totals, sets,
    )  # fmt: skip
    known = {o.expr: sql for o, sql in shown}
    listed = [f"{sql} AS {o.name}" for o, sql in shown]
    listed += [f"{known.get(o.expr) or sql_of[o.expr]} AS {o.name}" for o in view.hidden]  # type: ignore[index]
    sql = f"SELECT {', '.join(listed)} FROM {source}{group_sql}{having_sql}{order_sql}"
    return Case(view, tuple(read) or ("xi",), sql)


def _window(random: Random) -> tuple[TimeWindow | None, str]:
    pick = random.random()
    if pick > 0.4:
        return None, "net"
    if pick < 0.12:
        gap = random.choice((30, 60, 200)) * 1_000_000
        return TimeWindow(TIME, gap, gap, session=True), ""
    picked = random.choice((
        (10, 10, 0, 0), (10, 10, 3, 0), (15, 5, 0, 0), (7, 3, 1, 0), (5, 20, 0, 0), (20, 20, 0, 5),
        (9, 9, -4, 3),
    ))  # fmt: skip
    length, slide, start, step = (n * MINUTE for n in picked)
    newest = f"(epoch_us(xt) - ((epoch_us(xt) - {start}) % {slide} + {slide}) % {slide})"
    first, size, many = f"({newest} - n * {slide})", str(length), -(-length // slide)
    if step:
        first, size, many = newest, f"(n + 1) * {step}", length // step
    return TimeWindow(TIME, length, slide, start, step=step), (
        f"(SELECT *, make_timestamptz({first}) AS window_start, "
        f"make_timestamptz({first} + {size}) AS window_end FROM net, "
        f"range({many}) AS r(n) WHERE {first} + {size} > epoch_us(xt))"
    )


def _group_by(keys: list[str], sets: tuple[tuple[int, ...], ...], window: TimeWindow | None) -> str:
    extra = ["window_start", "window_end"] if window else []
    if sets:
        texts = [f"({', '.join([keys[n] for n in s] + extra)})" for s in sets]
        # In Spark the empty set has no row without input.
        return f" GROUP BY GROUPING SETS ({', '.join(texts)})"
    return f" GROUP BY {', '.join([*keys, *extra])}" if keys or extra else ""


def _order(
    shown: list[tuple[Output, str]], sql_of: dict[Column, str], group: list[Column], random: Random
) -> tuple[tuple[SortKey, ...], int | None, int, str]:
    if not group or random.random() < 0.6:
        return (), None, 0, ""
    # Floats and averages may differ from DuckDB's in the last digits, and so in their order.
    exact = [(o, t) for o, t in shown if not ((o.expr.type == DOUBLE and t != "kf") or "avg" in t)]
    if not exact:
        return (), None, 0, ""
    output, text = random.choice(exact)
    key, words = _sort(output.expr, text, random)
    ties = [f"{sql_of[c]} ASC NULLS FIRST" for c in group]
    if random.random() < 0.3:
        return (key,), None, 0, f" ORDER BY {', '.join([words, *ties])}"
    limit, offset = random.randrange(1, 6), random.choice((0, 0, 1, 3))
    limited = f" LIMIT {limit} OFFSET {offset}"
    if random.random() < 0.15:
        # Without ORDER BY, the first groups are chosen by their keys.
        return (), limit, offset, f" ORDER BY {', '.join(ties)}{limited}"
    return (key,), limit, offset, f" ORDER BY {', '.join([words, *ties])}{limited}"


def _ranked(random: Random) -> Case:
    columns = random.sample(tuple(TYPES), random.randrange(1, 5))
    order = [_sort(_column(n), n, random) for n in random.sample(columns, min(2, len(columns)))]
    unordered = random.random() < 0.1
    if unordered:
        order = []
    extra = random.sample(tuple(TYPES), random.choice((0, 1, 2)))
    partition = random.sample(tuple(KEYS), 0 if unordered else random.choice((0, 0, 1, 2)))
    ranking = RankFunction.ROW_NUMBER
    outputs = [Output(f"o{n}", _column(name)) for n, name in enumerate(columns)]
    if not unordered and (partition or random.random() < 0.2):
        ranking = random.choice(tuple(RankFunction))
    if random.random() < 0.5:
        outputs.append(Output("place", Column("", PLACE, BIGINT)))
    offset = random.choice((0, 0, 2)) if ranking is RankFunction.ROW_NUMBER else 0
    limit: int | None = random.randrange(1, 6)
    windowed, calls, more = list[Windowed](), list[str](), list[str]()
    if random.random() < 0.6:
        limit, offset = None, 0
        for number in range(random.choice((1, 1, 2, 3))):
            one, call = _windowed(f"n{number}", order, extra, random)
            windowed.append(one)
            calls.append(f"{call} AS {one.name}, ")
            more += [] if one.column is None else [one.column]
            outputs.append(Output(f"beside{number}", Column("", one.name, one.type)))
    view = View(
        False, (), (), tuple(outputs), order=tuple(k for k, _ in order), limit=limit,
        offset=offset, partition=tuple((n, TYPES[n]) for n in partition), ranking=ranking,
        windowed=tuple(windowed),
    )  # fmt: skip
    read = dict.fromkeys([*columns, *partition, *more])
    # Ties: columns of the view, then of the partition, then of functions.
    words = "".join(f"{w}, " for _, w in order)
    ties = ", ".join(f"{n} ASC NULLS FIRST" for n in (*columns, *more))
    over = f"PARTITION BY {', '.join(partition)} " if partition else ""
    own = words.removesuffix(", ") if ranking is not RankFunction.ROW_NUMBER else words + ties
    names = {o.name: o.expr.name for o in (*outputs, *view.hidden)}  # type: ignore[union-attr]
    listed = ", ".join(f"{'place' if n == PLACE else n} AS {o}" for o, n in names.items())
    peers = f"ORDER BY {words.removesuffix(', ')}" if order else ""
    beside = "".join(calls).format(rows=f"{over}ORDER BY {words}{ties}", peers=f"{over}{peers}")
    beside = beside.replace("<order>", f"{words}{ties}")
    sql = (
        f"SELECT {listed}, nth - {offset} AS anabranch_rank FROM (SELECT *, {beside}"
        f"row_number() OVER ({over}ORDER BY {words}{ties}) AS nth, "
        f"{ranking}() OVER ({over}ORDER BY {own}) AS place FROM net) "
        f"WHERE nth > {offset}"
    )
    if limit is not None:
        sql += f" AND place <= {limit + offset}"
    return Case(view, tuple(read), sql)


def _windowed(
    name: str, order: list[tuple[SortKey, str]], columns: list[str], random: Random
) -> tuple[Windowed, str]:
    """A random window function, and its SQL, with ``{rows}`` or ``{peers}`` for the window."""
    function = random.choice(tuple(W))
    column = random.choice(columns or ["xi"])
    if function in (W.NTILE, W.PERCENT_RANK, W.CUME_DIST):
        number = random.randrange(1, 5) if function is W.NTILE else 1
        kind = parse_type("int") if function is W.NTILE else DOUBLE
        arguments = str(number) if function is W.NTILE else ""
        window = "rows" if function is W.NTILE else "peers"
        one = Windowed(name, function, None, kind, number)
        return one, f"{function}({arguments}) OVER ({{{window}}})"
    nulls = random.random() < 0.3
    ignoring = " IGNORE NULLS" if nulls else ""
    if function in (W.LAG, W.LEAD):
        default = _column(column) if random.random() < 0.4 else None
        number = random.choice((1, 1, 2, 3, 0))
        nulls = nulls and number > 0
        ignoring = " IGNORE NULLS" if nulls else ""
        other = "" if default is None else f", {column}"
        one = Windowed(name, function, column, TYPES[column], number, default, ignore_nulls=nulls)
        return one, f"{function}({column}, {number}{other}{ignoring}) OVER ({{rows}})"
    frame, text = _frame(order, random)
    window = f"OVER ({{{'rows' if frame.unit is FrameUnit.ROWS else 'peers'}}}{text})"
    if function in (W.FIRST_VALUE, W.LAST_VALUE, W.NTH_VALUE):
        nth = random.randrange(1, 4) if function is W.NTH_VALUE else 1
        second = f", {nth}" if function is W.NTH_VALUE else ""
        one = Windowed(name, function, column, TYPES[column], nth, frame=frame, ignore_nulls=nulls)
        return one, f"{function}({column}{second} ORDER BY <order>{ignoring}) {window}"
    if function is W.COUNT:
        counted = random.choice((None, column))
        one = Windowed(name, function, counted, BIGINT, frame=frame)
        return one, f"count({counted or '*'}) {window}"
    if function in (W.MIN, W.MAX):
        one = Windowed(name, function, column, TYPES[column], frame=frame)
        return one, f"{function}({column}) {window}"
    column = random.choice(_NUMBERS)
    one = Windowed(name, function, column, _number_type(function, column), frame=frame)
    return one, f"{function}({column}) {window}"


def _frame(order: list[tuple[SortKey, str]], random: Random) -> tuple[Frame, str]:
    """Return a random window frame, and its SQL."""
    if random.random() < 0.2:
        return Frame(), ""
    start, end = random.choice((None, 0, 1, 2, -1, -2, -3)), random.choice((None, 0, 1, 2, 3, -1))
    if start is not None and end is not None and start > end:
        start, end = end, start
    unit, size = FrameUnit.ROWS, "{}"
    if random.random() < 0.6:
        unit = FrameUnit.RANGE
        sizes = {
            "bigint": "{}", "int": "{}", "date": "INTERVAL {} DAY",
            "decimal": "{}::decimal(6,1)/10", "timestamp": "INTERVAL {} MICROSECOND",
        }  # fmt: skip
        kinds = [key.expr.type for key, _ in order]
        size = sizes.get(str(kinds[0].kind), "") if len(kinds) == 1 else ""
        if kinds and kinds[0].kind == "decimal" and kinds[0].scale != 1:
            size = ""
        if not size:
            start, end = start and None, end and None
            unit = random.choice((unit, FrameUnit.GROUPS))
    elif random.random() < 0.3:
        unit = FrameUnit.GROUPS
    limits = [
        f"UNBOUNDED {side}" if limit is None
        else "CURRENT ROW" if not limit
        else f"{size.format(abs(limit))} {'PRECEDING' if limit < 0 else 'FOLLOWING'}"
        for limit, side in ((start, "PRECEDING"), (end, "FOLLOWING"))
    ]  # fmt: skip
    # In DuckDB rows get a total order, without peers.
    rows = unit is FrameUnit.ROWS
    excluded = random.choice((Excluded.NOTHING, *(list(Excluded)[:2] if rows else Excluded)))
    text = f" {unit.upper()} BETWEEN {limits[0]} AND {limits[1]} EXCLUDE {excluded.upper()}"
    return Frame(unit, start, end, excluded), text


def session_views(gap: int, keys: list[str]) -> str:
    """Return SQL of ``net`` with the session of each row per ``keys``."""
    over = f"PARTITION BY {', '.join(keys)} " if keys else ""
    return (
        f"(SELECT *, make_timestamptz(min(epoch_us(xt)) OVER p) AS window_start, "
        f"make_timestamptz(max(epoch_us(xt)) OVER p + {gap}) AS window_end FROM ("
        f"SELECT *, sum(fresh) OVER ({over}ORDER BY xt) AS session FROM ("
        f"SELECT *, CASE WHEN epoch_us(xt) - lag(epoch_us(xt)) OVER ({over}ORDER BY xt) < {gap} "
        f"THEN 0 ELSE 1 END AS fresh FROM net WHERE xt IS NOT NULL)) "
        f"WINDOW p AS (PARTITION BY {', '.join([*keys, 'session'])}))"
    )
