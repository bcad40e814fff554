"""The post-join part of a query: aggregates, HAVING, the SELECT list, ORDER BY, LIMIT.

Planner and tasks handle a query with a view as its join, whose results (*joined rows*) have exactly
the columns that the view reads. A view is a table derived from all joined rows so far, and
maintained incrementally. Each change of a row is an upsert or a delete by the row's *identity*: the
grouping columns or, without grouping, the rank.

Columns in a view's expressions have an empty alias. They are keys and aggregates by name or,
without grouping, the columns of joined rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from msgspec import structs

from anabranch_contract.codec import Row
from anabranch_contract.durations import format_duration
from anabranch_contract.queries.expressions import Column, Expr, Output, columns, substitute
from anabranch_contract.queries.types import TIMESTAMPS, DataType, TypeKind

#: Additional columns of a view's changes: the kind of change, and the version of the view.
CHANGE, VERSION = "anabranch_change", "anabranch_version"
#: Last column (BIGINT) of the joined rows that a post-join part over streams of changes reads.
WEIGHT = "anabranch_weight"
#: Column that identifies a row of a view without grouping: its rank.
RANK = "anabranch_rank"
#: A row's place (INT, from 1) in its partition by the ranking function, which a view's expressions
#: read. Rows with equal sort keys may have the same place, but not the same :data:`RANK`.
PLACE = "anabranch_place"
#: Prefix of the names of :class:`Windowed` columns.
WINDOWED = "anabranch_windowed"
#: Prefix of the joined rows' columns from which a :class:`TimeLimit` is computed.
MOMENT = "anabranch_moment"
#: Number (BIGINT, from 1) of a row among the equal rows of its group.
COPY = "anabranch_copy"
#: Grouping column of GROUPING SETS: bit ``i`` from the right is set if the ``i``-th key from the
#: right is not grouped by, as ``grouping_id()`` in Spark.
GROUPING_ID = "grouping_id"
#: The two grouping columns of a time window.
WINDOW_START, WINDOW_END = "window_start", "window_end"
_TIMESTAMP = DataType(TypeKind.TIMESTAMP)
_BIGINT = DataType(TypeKind.BIGINT)


class Change(StrEnum):
    """Kind of a change: upsert or delete of a view's row, insert or delete of a join's result."""

    INSERT = "insert"
    UPSERT = "upsert"
    DELETE = "delete"


class AggregateFunction(StrEnum):
    """Aggregate functions that views support."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    STDDEV_SAMP = "stddev_samp"
    STDDEV_POP = "stddev_pop"
    VAR_SAMP = "var_samp"
    VAR_POP = "var_pop"
    #: ``column`` of the row with the greatest (least) ``by``; of several such rows, the greatest
    #: (least) ``column``. Rows with NULL in ``by`` are ignored; NULL in ``column`` is least.
    MAX_BY = "max_by"
    MIN_BY = "min_by"
    #: ``CONT``: over doubles, interpolated at position p(n - 1), counted from 0. ``DISC``: over any
    #: ordered type, the first value that at least a share p of all values do not exceed.
    #: ``option``: p as a decimal fraction. ``descending``: values are sorted descending.
    PERCENTILE_CONT = "percentile_cont"
    PERCENTILE_DISC = "percentile_disc"
    #: Texts ordered by ``by`` and ``then``, then by themselves, joined by ``option``. NULL in a
    #: sort key comes first if ascending, last if descending. Without texts the value is NULL.
    LISTAGG = "listagg"
    #: Values as an array, in the order as for texts; empty without values.
    COLLECT_LIST = "collect_list"
    #: Statistics of the pairs (``column``, ``by``) of doubles without NULLs. NULL if a variance is
    #: zero; ``covar_samp`` is NULL if there is only one pair.
    CORR = "corr"
    COVAR_POP = "covar_pop"
    COVAR_SAMP = "covar_samp"
    #: Slope and intercept of the line through the pairs (``by``, ``column``), the square of their
    #: correlation, and sums of squares and products around the means. The first three are NULL if
    #: ``by`` is constant.
    REGR_SLOPE = "regr_slope"
    REGR_INTERCEPT = "regr_intercept"
    REGR_R2 = "regr_r2"
    REGR_SXX = "regr_sxx"
    REGR_SXY = "regr_sxy"
    REGR_SYY = "regr_syy"
    #: Statistics of one column of doubles; NULL if the variance is zero.
    SKEWNESS = "skewness"
    KURTOSIS = "kurtosis"
    #: Bits that are set in all, in some, or in an odd number of the integers. NULL without values.
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    #: The most frequent value; of several, the least (``descending``: the greatest) one.
    MODE = "mode"


#: Aggregate functions of pairs of doubles.
PAIRS = frozenset({
    AggregateFunction.CORR, AggregateFunction.COVAR_POP, AggregateFunction.COVAR_SAMP,
    AggregateFunction.REGR_SLOPE, AggregateFunction.REGR_INTERCEPT, AggregateFunction.REGR_R2,
    AggregateFunction.REGR_SXX, AggregateFunction.REGR_SXY, AggregateFunction.REGR_SYY,
})  # fmt: skip
#: Aggregate functions that can be computed from sums over rows.
_LINEAR = frozenset(AggregateFunction) - {
    AggregateFunction.MIN, AggregateFunction.MAX, AggregateFunction.MIN_BY,
    AggregateFunction.MAX_BY, AggregateFunction.PERCENTILE_CONT, AggregateFunction.PERCENTILE_DISC,
    AggregateFunction.LISTAGG, AggregateFunction.COLLECT_LIST, AggregateFunction.MODE,
}  # fmt: skip


class ViewAggregate(Row, frozen=True):
    """The aggregate ``name`` of the joined rows' ``column`` (None: of whole rows, as in
    ``count(*)``).

    FILTER needs no field. In rows that fail its condition one argument is NULL (``by`` of
    ``max_by`` and ``min_by``, else ``column``), so the aggregate ignores these rows.

    Attributes:
        distinct: for ``count``, ``sum``, ``avg``, ``listagg`` and ``collect_list``: whether equal
            values are counted once.
        by: column with the function's second argument or with its sort key.
        option: a constant argument: the fraction of a percentile, or the separator of texts.
        descending: whether ``by``, or for percentiles ``column``, is sorted descending.
        then: further sort keys of lists after ``by``: (column, whether it sorts descending).
    """

    name: str
    function: AggregateFunction
    column: str | None
    distinct: bool
    type: DataType
    by: str | None = None
    option: str = ""
    descending: bool = False
    then: tuple[tuple[str, bool], ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The joined rows' columns that the aggregate reads."""
        found = (self.column, self.by, *(name for name, _ in self.then))
        return tuple(name for name in found if name is not None)

    @property
    def is_linear(self) -> bool:
        """Whether sums over rows suffice; deleted rows are subtracted from these sums."""
        return self.function in _LINEAR and not self.distinct


def call_text(call: ViewAggregate, texts: Mapping[str, str]) -> str:
    """Return an aggregate as SQL text. ``texts``: columns of the joined rows -> their expressions.

    >>> call = ViewAggregate("g1", AggregateFunction.LISTAGG, "a", True, _BIGINT, None, ",")
    >>> call_text(call, {"a": "o.name"})
    "listagg(DISTINCT o.name, ',') WITHIN GROUP (ORDER BY o.name)"
    """
    value = "*" if call.column is None else texts[call.column]
    direction = " DESC" if call.descending else ""
    then = "".join(f", {texts[name]}{' DESC' * down}" for name, down in call.then)
    if call.function in (AggregateFunction.PERCENTILE_CONT, AggregateFunction.PERCENTILE_DISC):
        return f"{call.function}({call.option}) WITHIN GROUP (ORDER BY {value}{direction})"
    if call.function is AggregateFunction.MODE:
        return f"mode() WITHIN GROUP (ORDER BY {value}{direction})"
    text, by = "DISTINCT " * call.distinct + value, None if call.by is None else texts[call.by]
    if call.function is AggregateFunction.LISTAGG:
        separator = call.option.replace("\\", "\\\\").replace("'", "\\'")
        order = f"{by or value}{direction}{then}"
        return f"{call.function}({text}, '{separator}') WITHIN GROUP (ORDER BY {order})"
    if call.function is AggregateFunction.COLLECT_LIST:
        return f"{call.function}({text} ORDER BY {by or value}{direction}{then})"
    return f"{call.function}({text}{'' if by is None else f', {by}'})"


class Total(Row, frozen=True):
    """An aggregate over all joined rows, computed from the groups' aggregates: a sum of sums, a sum
    of counts, the minimum of minima. Groups excluded by HAVING are included."""

    name: str
    aggregate: str
    function: AggregateFunction
    type: DataType


class TimeWindow(Row, frozen=True):
    """Time windows as in Spark, in microseconds: they are ``length`` long and begin ``start`` after
    every multiple of ``slide`` since 1970. A row is in every window that contains its ``column``.

    A *session* of a group's rows ends ``length`` after its last row; rows with shorter distances
    are in one session. Its ``slide`` is its ``length``, its ``start`` 0.

    *Cumulating* windows have a ``step``, which divides ``length``: windows that begin together end
    at every multiple of it, up to ``length``. Their ``slide`` is their ``length``.
    """

    column: str
    length: int
    slide: int
    start: int = 0
    session: bool = False
    step: int = 0

    @property
    def shares_rows(self) -> bool:
        """Whether a row may be in several of the time windows."""
        return self.slide < self.length or bool(self.step)

    @property
    def edges(self) -> int:
        """Number of columns that identify a window: its start, or start and end."""
        return 1 + (self.session or bool(self.step))


def window_text(window: TimeWindow, column: str) -> str:
    """Return a time window over ``column`` as SQL text.

    >>> window_text(TimeWindow("w", 60_000_000, 60_000_000, session=True), "o.ts")
    "session_window(o.ts, '1 minute')"
    """
    if window.session:
        return f"session_window({column}, '{format_duration(window.length)}')"
    lengths = [window.length, window.slide]
    if window.step:
        lengths = [window.step, window.length]
    lengths += [window.start] if window.start else []
    name = "cumulate" if window.step else "window"
    return f"{name}({', '.join([column, *(repr(format_duration(n)) for n in lengths)])})"


class TimeLimit(Row, frozen=True):
    """A condition on the time of the batch: a joined row is in the view from its *moment* on or,
    with ``until``, before its moment. A moment that is NULL is never reached.

    All values are microseconds; a day is its midnight. The moment is the least multiple of ``unit``
    at or after ``column`` + ``shift``, plus ``delay``. If ``months`` is not 0, the multiples are
    instead the first days of every ``months``-th month of a year, and the moment is the least of
    them that, moved by ``later`` months, is at or after ``column`` + ``shift``.
    """

    column: str
    shift: int
    until: bool
    unit: int = 1
    delay: int = 0
    months: int = 0
    later: int = 0


def limit_text(limit: TimeLimit, column: str) -> str:
    """Return a time limit, whose moments are computed from ``column``, as SQL text.

    >>> limit_text(TimeLimit("m", 60_000_000, until=True), "o.ts")
    "current_timestamp() < o.ts + INTERVAL '1 minute'"
    >>> limit_text(TimeLimit("m", 0, until=False, unit=3_600_000_000), "o.ts")
    "current_timestamp() >= the next multiple of '1 hour' from o.ts"
    >>> limit_text(TimeLimit("m", 0, until=True, months=3, later=-1), "o.ts")
    'current_timestamp() < the next multiple of 3 months, moved by -1 months, from o.ts'
    """

    def moved(text: str, by: int) -> str:
        return f"{text} {'-' if by < 0 else '+'} INTERVAL '{format_duration(abs(by))}'"

    text = moved(column, limit.shift) if limit.shift else column
    if limit.unit > 1:
        text = f"the next multiple of '{format_duration(limit.unit)}' from {text}"
    if limit.months:
        own = f", moved by {limit.later} months," if limit.later else ""
        text = f"the next multiple of {limit.months} months{own} from {text}"
    text = moved(text, limit.delay) if limit.delay else text
    return f"current_timestamp() {'<' if limit.until else '>='} {text}"


class SortKey(Row, frozen=True):
    """One sort key of a view's ORDER BY."""

    expr: Expr
    descending: bool = False
    nulls_first: bool = True


class RankFunction(StrEnum):
    """Functions that rank the rows of a partition; they differ in how ties are ranked."""

    ROW_NUMBER = "row_number"
    RANK = "rank"
    DENSE_RANK = "dense_rank"


class WindowFunction(StrEnum):
    """Window functions: a value for each row from the rows around it in its partition."""

    #: The value of the row ``number`` rows before or after.
    LAG = "lag"
    LEAD = "lead"
    #: The value in the first, last or ``number``-th row of the frame.
    FIRST_VALUE = "first_value"
    LAST_VALUE = "last_value"
    NTH_VALUE = "nth_value"
    #: Aggregates over the frame, which ignore NULLs.
    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    #: Number of the row's bucket: the partition is divided into ``number`` buckets whose sizes
    #: differ by at most one row.
    NTILE = "ntile"
    #: ``percent_rank``: share of the other rows that come before the row's first peer.
    #: ``cume_dist``: share of the rows up to the row's last peer.
    PERCENT_RANK = "percent_rank"
    CUME_DIST = "cume_dist"


class FrameUnit(StrEnum):
    """Unit of a window frame's limits: rows, groups of peers, or differences of the sort key."""

    ROWS = "rows"
    RANGE = "range"
    GROUPS = "groups"


class Excluded(StrEnum):
    """Rows that a window frame excludes: the current row, its peers, or both."""

    NOTHING = "no others"
    ROW = "current row"
    TIES = "ties"
    GROUP = "group"


class Frame(Row, frozen=True):
    """A window frame: the rows of a partition from ``start`` to ``end``, relative to the current
    row, without the ``excluded`` ones.

    Limits are numbers of rows or, with ``GROUPS``, of groups of peers. With ``RANGE`` they are
    differences of the only sort key in its direction: integers, days, microseconds, or units of a
    decimal's last digit; 0 means the *peers*, the rows with equal sort keys. Negative limits are
    before the current row; None is the first or last row of the partition.
    """

    unit: FrameUnit = FrameUnit.RANGE
    start: int | None = None
    end: int | None = 0
    excluded: Excluded = Excluded.NOTHING


class Windowed(Row, frozen=True):
    """A window function: column ``name`` of a row, from ``column`` of its partition's rows.

    Attributes:
        column: column that the function reads; None: rows are counted.
        number: the function's constant argument.
        default: value of ``lag`` and ``lead`` if the partition has no such row, as an expression
            over the current row's columns; None: NULL.
        frame: frame of the functions in :data:`FRAMED`.
        ignore_nulls: whether rows with NULL in ``column`` are skipped.
    """

    name: str
    function: WindowFunction
    column: str | None
    type: DataType
    number: int = 1
    default: Expr | None = None
    frame: Frame = Frame()
    ignore_nulls: bool = False


#: Window functions that read a frame.
FRAMED = frozenset({
    WindowFunction.FIRST_VALUE, WindowFunction.LAST_VALUE, WindowFunction.NTH_VALUE,
    WindowFunction.COUNT, WindowFunction.SUM, WindowFunction.AVG, WindowFunction.MIN,
    WindowFunction.MAX,
})  # fmt: skip


def windowed_text(
    one: Windowed, texts: Mapping[str, str], over: str, key: DataType | None = None
) -> str:
    """Return a window function as SQL text. ``texts``: column of the joined rows -> expression.

    Args:
        over: text of PARTITION BY and ORDER BY. ``key``: type of the only sort key.

    >>> lead = Windowed("w1", WindowFunction.LEAD, "c1", _BIGINT, 2)
    >>> windowed_text(lead, {"c1": "o.price"}, "ORDER BY o.id")
    'lead(o.price, 2) OVER (ORDER BY o.id)'
    >>> running = Windowed("w2", WindowFunction.SUM, "c1", _BIGINT, frame=Frame(start=-3))
    >>> windowed_text(running, {"c1": "o.price"}, "ORDER BY o.id", _BIGINT)
    'sum(o.price) OVER (ORDER BY o.id RANGE BETWEEN 3 PRECEDING AND CURRENT ROW)'
    """
    function, arguments = one.function, [] if one.column is None else [texts[one.column]]
    if function is WindowFunction.COUNT and one.column is None:
        arguments = ["*"]
    shifted = function in (WindowFunction.LAG, WindowFunction.LEAD)
    needed = function in (WindowFunction.NTILE, WindowFunction.NTH_VALUE)
    if needed or (shifted and (one.number != 1 or one.default is not None)):
        arguments.append(str(one.number))
    if one.default is not None:
        known = substitute(one.default, lambda c: Column("", texts.get(c.name, c.name), c.type))
        arguments.append(str(known))
    nulls = " IGNORE NULLS" if one.ignore_nulls else ""
    frame = ""
    if function in FRAMED and one.frame != Frame():
        start = _limit_text(one.frame.start, "PRECEDING", one.frame.unit, key)
        end = _limit_text(one.frame.end, "FOLLOWING", one.frame.unit, key)
        frame = f"{one.frame.unit.upper()} BETWEEN {start} AND {end}"
        if one.frame.excluded is not Excluded.NOTHING:
            frame += f" EXCLUDE {one.frame.excluded.upper()}"
    inside = " ".join(part for part in (over, frame) if part)
    return f"{function}({', '.join(arguments)}){nulls} OVER ({inside})"


def _limit_text(limit: int | None, open_side: str, unit: FrameUnit, key: DataType | None) -> str:
    """Return one limit of a frame as SQL; ``open_side``: PRECEDING or FOLLOWING, if unbounded."""
    if limit is None:
        return f"UNBOUNDED {open_side}"
    if limit == 0:
        return "CURRENT ROW"
    size: object = abs(limit)
    if unit is FrameUnit.RANGE and key is not None:
        if key.kind in TIMESTAMPS:
            size = f"INTERVAL '{format_duration(abs(limit))}'"
        elif key.kind is TypeKind.DECIMAL:
            size = Decimal(abs(limit)).scaleb(-key.scale)
    return f"{size} {'PRECEDING' if limit < 0 else 'FOLLOWING'}"


@dataclass(frozen=True, slots=True)
class View:
    """The post-join part of a query: a maintained table over joined rows.

    Attributes:
        grouped: whether joined rows are grouped; if not, they are only ordered and limited.
        keys: grouping columns of the joined rows as (name, type), without ``window``.
        having: condition that a group must satisfy.
        order: sort keys; ties are broken by identity, then by all columns.
        limit: maximum number of rows after the first ``offset`` rows; None: all.
        totals: aggregates over all groups, which expressions may read like keys and aggregates.
        sets: GROUPING SETS: one entry per distinct set, with the positions in ``keys`` of its keys,
            ascending; the other keys are NULL. Aggregates never read keys. Before the first joined
            row the empty set has a row only if ``keys`` is empty. Empty: one set of all keys.
        partition: columns that divide joined rows into partitions if they are not grouped; each
            combination of their values (NULL is a value) has a ranking and a ``limit`` of its own.
            ``offset`` is 0.
        ranking: ranking function; rows whose rank is at most ``limit`` are kept (None: all rows).
            Expressions read the rank as ``PLACE``.
        windowed: window functions, whose columns expressions read by name; there is no ``limit``.
        limits: conditions on the batch's time under which a joined row is in the view; empty: none.
        copies: expression (BIGINT, at least 1) of the number of equal rows that each group has in
            the view; None: one row. With it, the SELECT list consists of the keys, and there is no
            ``limit``.
    """

    grouped: bool
    keys: tuple[tuple[str, DataType], ...]
    aggregates: tuple[ViewAggregate, ...]
    projection: tuple[Output, ...]
    window: TimeWindow | None = None
    having: Expr | None = None
    order: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    totals: tuple[Total, ...] = ()
    sets: tuple[tuple[int, ...], ...] = ()
    partition: tuple[tuple[str, DataType], ...] = ()
    ranking: RankFunction = RankFunction.ROW_NUMBER
    windowed: tuple[Windowed, ...] = ()
    copies: Expr | None = None
    limits: tuple[TimeLimit, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether a change of one group may change rows of other groups (LIMIT, totals)."""
        return self.limit is not None or bool(self.totals)

    @property
    def ranked(self) -> bool:
        """Whether rows are ranked by a function or within partitions, not only limited."""
        named = any(column.name == PLACE for o in self.projection for column in columns(o.expr))
        known = self.partition or named or self.windowed
        return not self.grouped and bool(known or self.ranking is not RankFunction.ROW_NUMBER)

    @property
    def group_keys(self) -> tuple[tuple[str, DataType], ...]:
        """All grouping columns; empty if rows are not grouped, or if all form one group."""
        keys = self.keys
        if self.sets:
            keys = (*keys, (GROUPING_ID, _BIGINT))
        if self.window is None:
            return keys
        return (*keys, (WINDOW_START, _TIMESTAMP), (WINDOW_END, _TIMESTAMP))

    @property
    def hidden(self) -> tuple[Output, ...]:
        """Grouping or partition columns that are not in the SELECT list, under unique names."""
        shown = {o.expr for o in self.projection}
        known = self.group_keys if self.grouped else self.partition
        keys = (Column("", name, kind) for name, kind in known)
        taken = {o.name.lower() for o in self.projection}
        found = []
        for key in keys:
            if key not in shown:
                name = f"anabranch_{key.name}"
                while name in taken:
                    name += "_"
                taken.add(name)
                found.append(Output(name, key))
        return tuple(found)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a changed row; empty if the view has one row only."""
        names = {o.expr: o.name for o in reversed((*self.projection, *self.hidden))}
        known = self.group_keys if self.grouped else self.partition
        numbers = (name for name, _ in numbers_of(self))
        return (*(names[Column("", name, kind)] for name, kind in known), *numbers)


@dataclass(frozen=True, slots=True)
class GroupingPrefix:
    """The grouping of a view, as a prefix of its computation. Views with equal prefixes over the
    same rows have equal groups, which one table maintains for all of them.

    Columns of the joined rows are named so that equal expressions have equal names.

    Attributes:
        keys, window, sets: as in :class:`View`; without ``sets`` the keys are sorted.
        kept: for session windows the columns that aggregates read, since sessions store all rows.
    """

    keys: tuple[tuple[str, DataType], ...]
    window: TimeWindow | None = None
    sets: tuple[tuple[int, ...], ...] = ()
    kept: tuple[str, ...] = ()

    @classmethod
    def of(cls, view: View, names: Mapping[str, str]) -> GroupingPrefix:
        """Return the prefix of a grouped view; ``names``: joined rows' column -> name there."""
        keys = tuple((names[name], kind) for name, kind in view.keys)
        window = view.window
        kept: tuple[str, ...] = ()
        if window is not None:
            window = structs.replace(window, column=names[window.column])
        if window is not None and window.session:
            read = (names[c] for a in view.aggregates for c in a.reads)
            kept = tuple(n for n in dict.fromkeys(read) if n != window.column)
        return cls(keys if view.sets else tuple(sorted(keys)), window, view.sets, kept)

    @property
    def text(self) -> str:
        """The grouping as in GROUP BY; empty if all rows form one group."""
        keys = [name for name, _ in self.keys]
        found = ", ".join(keys)
        if self.sets:
            some = ("(" + ", ".join(keys[n] for n in one) + ")" for one in self.sets)
            found = f"GROUPING SETS ({', '.join(some)})"
        over = [] if self.window is None else [window_text(self.window, self.window.column)]
        return ", ".join([found] * bool(found) + over)


def renamed(aggregate: ViewAggregate, names: Mapping[str, str]) -> ViewAggregate:
    """Return the aggregate without its name, over columns renamed by ``names``, so that aggregates
    with equal values over equal rows are equal objects."""
    column, by = (None if c is None else names[c] for c in (aggregate.column, aggregate.by))
    then = tuple((names[key], down) for key, down in aggregate.then)
    return structs.replace(aggregate, name="", column=column, by=by, then=then)


def numbers_of(view: View) -> tuple[tuple[str, DataType], ...]:
    """Return (name, type) of the view's columns that number rows: ranks, or copies of a group."""
    name = COPY if view.copies is not None else None if view.grouped else RANK
    return () if name is None else ((name, _BIGINT),)


def change_columns(view: View) -> tuple[tuple[str, DataType], ...]:
    """Return (name, type) of a change's columns: the view's, hidden grouping columns, rank or copy,
    kind of change, and version."""
    return (
        *((o.name, o.expr.type) for o in (*view.projection, *view.hidden)),
        *numbers_of(view),
        (CHANGE, DataType(TypeKind.STRING)),
        (VERSION, DataType(TypeKind.BIGINT)),
    )
