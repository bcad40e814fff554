"""Prices of the maintained tables of a plan's views (post-join parts), and each query's share.

A plan chooses the steps that produce joined rows, not the tables over them, because sharing groups
is never more expensive than separate groups (ADR 0105). So tables are priced in addition to the
plan's cost: CPU seconds per unit of time, stored rows and bytes.

Maintenance of a table consists of *parts*, each paid once: the groups of a prefix of GROUP BY, each
aggregate in them, the rows of each different view over them, and each query's file of changes. A
query needs the parts that contribute to its rows. As in :mod:`~anabranch_planner.plans.shares`, a
part's cost is divided equally among its queries. This is the Shapley value, so shares add up to the
total, and no query pays more than alone (the sum of its parts): sharing never raises the total.

Views share groups if their joined rows are the same (equal joins and conditions), the prefixes of
their groupings are equal, and they begin in the same epoch or have sums only, from which earlier
rows can be subtracted. Residual conditions do not reduce the estimated number of joined rows. The
number of groups is the number of distinct keys, at most that of joined rows; a batch with ``n``
rows changes ``G (1 - exp(-n / G))`` of ``G`` groups.

Not priced are rows kept for outer joins and for rolling conditions, checkpoints, subtracted sums,
and the recomputation of partitions by window functions.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from anabranch_contract import codec
from anabranch_contract.protocol.measurements import StreamSample
from anabranch_contract.queries.expressions import Column, columns, substitute
from anabranch_contract.queries.joins import JoinQuery, Label, QueryId, Relation
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.queries.types import TypeKind
from anabranch_contract.queries.views import (
    WEIGHT,
    GroupingPrefix,
    TimeWindow,
    View,
    ViewAggregate,
    call_text,
    renamed,
)
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics import table_constants as prices
from anabranch_planner.cost.statistics.sampling import distinct_in
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.steps import SubJoins
from anabranch_planner.logical.expression_text import text_of

_TEXTS = (TypeKind.STRING, TypeKind.BINARY)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """CPU seconds for maintaining a table during a unit of stream time; bytes stored afterwards."""

    seconds: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class TablePart:
    """A part of a table's maintenance, paid once for its ``users`` (sorted, never empty)."""

    upkeep: Upkeep
    users: tuple[QueryId, ...]


@dataclass(frozen=True, slots=True)
class TableShare:
    """A query's share of the parts of table maintenance that it needs; their cost for it alone."""

    share: Upkeep
    alone: Upkeep


@dataclass(frozen=True, slots=True)
class PricedTable:
    """A maintained table with its price, stored once for all of its queries.

    Attributes:
        grouping: text of GROUP BY; empty: all rows form one group, or rows are not grouped.
        aggregates: texts of all aggregates that a query reads. ``grouped``: whether the table has
            groups. ``queries``: the queries that read it, sorted.
        rows_in: joined rows per unit of time. ``touched``: groups that batches change per unit of
            time (a group counts once per batch). ``rows``: stored groups, or rows, at the end of
            the unit of time.
        parts: parts of its maintenance.
        apart: reason why its queries do not read a larger table with the same joined rows and
            grouping; empty if there is none.
    """

    grouping: str
    aggregates: tuple[str, ...]
    grouped: bool
    queries: tuple[QueryId, ...]
    rows_in: float
    touched: float
    rows: float
    parts: tuple[TablePart, ...]
    apart: str = ""

    @property
    def upkeep(self) -> Upkeep:
        """Maintenance cost of all parts of the table."""
        return _sum(part.upkeep for part in self.parts)

    def shares(self) -> dict[QueryId, TableShare]:
        """Query -> its share of the table's maintenance."""
        parts: dict[QueryId, list[tuple[Upkeep, int]]] = {query: [] for query in self.queries}
        for part in self.parts:
            for query in part.users:
                parts[query].append((part.upkeep, len(part.users)))
        return {
            query: TableShare(
                _sum(Upkeep(one.seconds / n, one.bytes / n) for one, n in some),
                _sum(one for one, _ in some),
            )
            for query, some in parts.items()
        }


@dataclass(frozen=True, slots=True)
class PricedTables:
    """The tables of a plan's queries; every query with a view reads one."""

    tables: tuple[PricedTable, ...] = ()


def tables(
    queries: Sequence[JoinQuery],
    model: CostModel,
    statistics: Statistics,
    *,
    samples: Mapping[str, StreamSample] | None = None,
    apart: Mapping[str, Hashable] | None = None,
    begun: Mapping[str, Hashable] | None = None,
) -> PricedTables:
    """Price the maintained tables of ``queries``.

    Args:
        queries: all planned queries, with the parts of outer joins and the branches of unions.
        statistics: the statistics of ``model``.
        samples: stream -> sample of its tuples, for keys whose distinct values are not counted.
        apart: query -> any further input of its joined rows (its freshness); queries with different
            values share no table. ``begun``: query -> its beginning; queries with equal beginnings
            have had the same joined rows so far.
    """
    inputs = _Inputs(queries, model, statistics, samples or {})
    joins: dict[str, list[JoinQuery]] = {}
    for query in queries:
        joins.setdefault(registered(query.id), []).append(query)
    alike: dict[Hashable, list[_TableReader]] = {}
    for query in sorted(queries, key=lambda q: q.id):
        if query.id in joins and query.view is not None:
            begin = (begun or {}).get(query.id)
            reader = _TableReader(query, query.view, joins[query.id], begin)
            alike.setdefault((reader.key, (apart or {}).get(query.id)), []).append(reader)
    return PricedTables(
        tuple(
            replace(_priced(readers, inputs), apart=why)
            for some in alike.values()
            for readers, why in _divided(some)
        )
    )


@dataclass(frozen=True, slots=True)
class _TableReader:
    """A query, its view, the joins whose rows the view reads, and the beginning of the query."""

    query: JoinQuery
    view: View
    joins: Sequence[JoinQuery]
    begun: Hashable

    @property
    def is_plain(self) -> bool:
        """Whether the view reads its query's joined rows unchanged."""
        return self.query.outer is None and not self.query.united and not self.view.limits

    @property
    def texts(self) -> dict[str, str]:
        """The view's columns of joined rows -> texts of their expressions over streams."""
        query = self.query
        streams = {
            m.label: str(query.relation_of(m.label).stream)
            + ("#" + m.label.rpartition("#")[2] if "#" in m.label.rpartition("]")[2] else "")
            for m in query.members
        }

        def named(column: Column) -> Column:
            alias = streams.get(Label(column.alias), column.alias)
            return Column(alias, column.name, column.type)

        below = {o.name: text_of(substitute(o.expr, named)) for o in query.projection}
        outer = () if query.outer is None else query.outer.projection
        return {**below, **{o.name: below.get(o.name, o.name) for o in outer}}

    @property
    def deletes(self) -> bool:
        """Whether rows that the view reads may be deleted."""
        return bool(self.view.limits) or any(o.name == WEIGHT for o in self.query.projection)

    @property
    def names(self) -> dict[str, str]:
        """The view's columns of joined rows -> names that are equal if the expressions are."""
        plain = self.is_plain
        below = self.query.projection if self.query.outer is None else self.query.outer.projection
        return {o.name: str(o.expr) if plain else o.name for o in below}

    def columns(self, names: Iterable[str]) -> Iterator[Column]:
        """Columns of streams from which the joined columns ``names`` of the view are computed."""
        query = self.query
        below = {o.name: o.expr for o in query.projection}
        outer = {} if query.outer is None else {o.name: o.expr for o in query.outer.projection}
        for name in names:
            read = [c.name for c in columns(outer[name])] if name in outer else [name]
            for one in read:
                if one in below:
                    yield from columns(query.unexpanded(below[one]))

    @property
    def kept(self) -> tuple[str, ...]:
        """Parts of the view that must not be shared with a view begun in another epoch, since rows
        can't be subtracted from them (sessions, max); may be empty."""
        window = self.view.window
        if not (self.is_plain and self.view.grouped):
            return ("rows without groups",)
        if window is not None and window.session:
            return ("sessions",)
        return tuple(call_text(a, self.texts) for a in self.view.aggregates if not a.is_linear)

    @property
    def prefix(self) -> GroupingPrefix | None:
        """Prefix of a grouped view's GROUP BY, whose groups can be shared; None for other views."""
        return GroupingPrefix.of(self.view, self.names) if self.view.grouped else None

    @property
    def meaning(self) -> Hashable:
        """Key that is equal for views with the same rows if their joined rows are the same."""
        return codec.dumps(self.view), tuple(self.names.items())

    @property
    def key(self) -> Hashable:
        """Key that is equal for views that could read the same maintained table."""
        query = self.query
        if not self.is_plain:
            return query.id
        rows = (
            frozenset((m.label, m.relation) for m in query.members),
            frozenset(query.classes),
            frozenset(
                (one, other, bound)
                for one, row in zip(query.labels, query.bounds, strict=True)
                for other, bound in zip(query.labels, row, strict=True)
                if bound is not None
            ),
            frozenset(map(str, query.residuals)),
            query.expansions,
            frozenset(query.looked_up),
        )
        return rows, self.deletes, self.prefix or self.meaning


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Estimates of the numbers of joined rows and of groups, for pricing tables."""

    queries: Sequence[JoinQuery]
    model: CostModel
    statistics: Statistics
    samples: Mapping[str, StreamSample]
    _subs: SubJoins = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_subs", SubJoins(self.queries))

    def rows(self, joins: Sequence[JoinQuery]) -> tuple[float, float]:
        """Number of joined rows per unit of time, and of the history including that unit."""
        mirs = [self._subs.of(join, frozenset(join.labels)) for join in joins]
        added = math.fsum(self.model.added(mir) for mir in mirs)
        if not self.model.by_start:
            return added, added
        return added, added + math.fsum(self.model.cardinality(mir) for mir in mirs)

    def distinct(self, reader: _TableReader, names: Iterable[str]) -> float:
        """Number of distinct combinations of values of a view's joined columns, at least 1."""
        read: dict[Label, set[str]] = {}
        for column in reader.columns(names):
            read.setdefault(Label(column.alias), set()).add(column.name)
        return math.prod(
            self._values(reader.query.relation_of(label), tuple(sorted(columns)))
            for label, columns in sorted(read.items())
            if label in reader.query.labels
        )

    def _values(self, relation: Relation, names: tuple[str, ...]) -> float:
        """Number of distinct values of a relation's columns: counted, from a sample or assumed."""
        known = self.statistics
        if known.distinct(relation.id, names) is not None:
            return self.model.distinct(relation.id, names)
        sample = self.samples.get(relation.stream)
        if sample is None or not sample.size or not set(names) <= set(sample.columns):
            return self.model.distinct(relation.id, names)
        return distinct_in(sample, names, known.cardinality(relation.id) or sample.seen)

    def spans(self, reader: _TableReader, window: TimeWindow) -> float | None:
        """Microseconds of event time that the column of a window spans; None if unknown."""
        read = (reader.query.relation_of(Label(c.alias)) for c in reader.columns([window.column]))
        known = [span for one in read if (span := self.model.span(one.id)) is not None]
        return max(known, default=None)


def _divided(readers: Sequence[_TableReader]) -> Iterator[tuple[list[_TableReader], str]]:
    """Divide views that could share a table by the epochs in which they began; with the reason for
    a table of their own. Views of sums read the groups with the most views, as in the runtime
    (``views.common``)."""
    together: dict[Hashable, list[_TableReader]] = {}
    for reader in readers:
        together.setdefault(reader.begun, []).append(reader)
    main = max(together.values(), key=lambda some: (any(r.kept for r in some), len(some)))
    shared = [r for some in together.values() for r in some if some is main or not r.kept]
    yield shared, ""
    for some in together.values():
        left = [] if some is main else [reader for reader in some if reader.kept]
        if left:
            kept = ", ".join(dict.fromkeys(one for reader in left for one in reader.kept))
            others = ", ".join(sorted(r.query.id for r in readers if r not in left))
            why = f"{kept} can't be subtracted, and they began in another epoch"
            yield left, f"not shared with {others}: {why}"


def _priced(readers: Sequence[_TableReader], inputs: _Inputs) -> PricedTable:
    """Price the maintained table that ``readers`` share."""
    first = readers[0]
    added, held = inputs.rows(first.joins)
    rounds = inputs.model.rounds
    # Number of batches that bring joined rows.
    rounds = rounds * -math.expm1(-added / rounds)
    make = _groups if first.view.grouped else _ranking
    return make(readers, inputs, added, held, rounds)


def _groups(
    readers: Sequence[_TableReader], inputs: _Inputs, added: float, held: float, rounds: float
) -> PricedTable:
    """Price the groups that readers share, their aggregates, and each reader's rows over them."""
    first, view = readers[0], readers[0].view
    window, session = view.window, view.window is not None and view.window.session
    sets = view.sets or (tuple(range(len(view.keys))),)
    copies = _copies(window)
    distinct = [inputs.distinct(first, (view.keys[n][0] for n in some)) for some in sets]
    spans = None if window is None else inputs.spans(first, window)
    rows = touched = 0.0
    for one in distinct:
        rows += _held(one, held, window, spans)
        # Number of windows that contain a batch's rows, if their event times are close together.
        near = 1.0
        if window is not None and not session and spans:
            near = copies + spans * added / max(held, 1.0) / rounds / window.slide
        each = min(one * near, _held(one, held, window, spans)) or 1.0
        touched += rounds * each * -math.expm1(-added * copies / max(rounds, 1e-9) / each)
    entered = added * copies * len(sets)
    users = tuple(sorted(reader.query.id for reader in readers))
    keys, texts = len(view.group_keys), sum(kind.kind in _TEXTS for _, kind in view.keys)
    each_row = prices.SESSION_ROW if session else prices.GROUPS_ROW
    width = prices.GROUP_BYTES + keys * prices.KEY_BYTES + texts * prices.TEXT_BYTES
    parts = [
        TablePart(
            Upkeep(
                rounds * prices.GROUPS_CALL
                + entered * each_row
                + touched * (prices.TOUCHED + keys * prices.TOUCHED_KEY),
                prices.TABLE_BYTES + rows * width + held * prices.SESSION_BYTES * session,
            ),
            users,
        )
    ]
    read: dict[ViewAggregate, set[QueryId]] = {}
    calls: dict[ViewAggregate, str] = {}
    for reader in readers:
        for call in reader.view.aggregates:
            known = renamed(call, reader.names)
            read.setdefault(known, set()).add(reader.query.id)
            if known not in calls:
                calls[known] = call_text(call, reader.texts)
    for call, some in read.items():
        cost = prices.aggregate_costs(call, deletes=first.deletes or session)
        seconds = rounds * prices.AGGREGATE_CALL + entered * cost.row + touched * cost.touched
        kept = held * copies * len(sets) * cost.kept
        parts.append(TablePart(Upkeep(seconds, rows * cost.group + kept), tuple(sorted(some))))
    changes = added if session else touched
    parts += _views(readers, rounds, changes, rows)
    text = GroupingPrefix.of(view, first.texts).text
    called = tuple(calls.values())
    return PricedTable(text, called, True, users, added, touched, rows, tuple(parts))


def _views(
    readers: Sequence[_TableReader], rounds: float, changes: float, rows: float
) -> Iterator[TablePart]:
    """Price readers' rows over groups (once for equal views), and the readers' files of changes."""
    alike: dict[Hashable, list[_TableReader]] = {}
    for reader in readers:
        alike.setdefault((reader.meaning, reader.begun), []).append(reader)
    for some in alike.values():
        view, whole = some[0].view, some[0].view.whole
        each = prices.TOUCHED_VIEW + prices.TOUCHED_WHOLE * whole
        width = prices.VIEW_BYTES + prices.ORDER_BYTES * whole
        upkeep = Upkeep(rounds * prices.VIEW_CALL + changes * each, rows * width)
        yield TablePart(upkeep, tuple(sorted(reader.query.id for reader in some)))
        shown = rows if view.limit is None else min(rows, view.limit)
        written = changes if view.limit is None else min(changes, rounds * 2 * view.limit)
        for reader in some:
            yield _file(reader, rounds, written, shown)


def _ranking(
    readers: Sequence[_TableReader], inputs: _Inputs, added: float, held: float, rounds: float
) -> PricedTable:
    """Price a table of rows without groups: ordered, limited, ranked, or with window functions."""
    first, view = readers[0], readers[0].view
    parts = inputs.distinct(first, (name for name, _ in view.partition))
    most = math.inf if view.limit is None else parts * (view.limit + view.offset)
    rows = min(held, most)
    # Store rows beyond the limit only if rows can be deleted, as replacements.
    drops = view.limit is not None and not first.deletes
    each = prices.RANKED_ROW if drops else prices.KEPT_ROW
    entering = min(added, most * math.log1p(added / max(held - added, most, 1.0))) if drops else 0
    seconds = (
        rounds * prices.RANKING_CALL
        + added * (each + prices.WINDOWED_ROW * len(view.windowed))
        + entering * prices.KEPT_ROW
    )
    kept = rows if drops else held
    width = prices.ROW_BYTES + prices.COLUMN_BYTES * len(first.names)
    users = tuple(sorted(reader.query.id for reader in readers))
    changes = min(2 * entering, rounds * most) if drops else min(added, rounds * most)
    table = TablePart(Upkeep(seconds, prices.TABLE_BYTES + kept * width), users)
    files = (_file(reader, rounds, changes, rows) for reader in readers)
    return PricedTable("", (), False, users, added, changes, kept, (table, *files))


def _file(reader: _TableReader, rounds: float, changes: float, rows: float) -> TablePart:
    """Price a query's file of changes, and its rows for the REST API."""
    shown = min(rows, prices.MOST_SHOWN) * prices.SHOWN
    seconds = rounds * (prices.FILE_CALL + shown) + changes * prices.CHANGE
    return TablePart(Upkeep(seconds), (reader.query.id,))


def _copies(window: TimeWindow | None) -> float:
    """Mean number of a view's time windows that contain a row."""
    if window is None or window.session:
        return 1.0
    if window.step:
        return (window.length / window.step + 1) / 2
    return window.length / window.slide


def _held(distinct: float, rows: float, window: TimeWindow | None, span: float | None) -> float:
    """Number of groups of ``rows`` joined rows with ``distinct`` keys, in all time windows."""
    if window is None:
        return min(distinct, rows)
    if span is None:
        return rows * _copies(window)
    if window.session:
        # A row begins a session if the gap before it has no row of its group.
        rate = rows / distinct / span
        return max(min(distinct, rows), rows * math.exp(-rate * window.length))
    windows = (span / window.slide + 1) * _copies(window)
    if not window.step:
        windows = (span + window.length) / window.slide
    return min(distinct * windows, rows * _copies(window))


def _sum(some: Iterable[Upkeep]) -> Upkeep:
    found = list(some)
    return Upkeep(math.fsum(u.seconds for u in found), math.fsum(u.bytes for u in found))


def tables_document(found: PricedTables) -> list[dict[str, Any]]:
    """The tables as JSON, the most expensive first: ``seconds`` and ``bytes`` of each table, and
    for each query its share (``seconds``, ``bytes``) and the cost of a table of its own
    (``alone_seconds``, ``alone_bytes``)."""
    ranked = sorted(found.tables, key=lambda table: (-table.upkeep.seconds, table.queries))
    return [
        {
            "grouped": table.grouped,
            "grouping": table.grouping,
            "aggregates": list(table.aggregates),
            "rows_in": table.rows_in,
            "touched": table.touched,
            "rows": table.rows,
            "apart": table.apart,
            **asdict(table.upkeep),
            "queries": [
                {
                    "query": query,
                    **asdict(one.share),
                    "alone_seconds": one.alone.seconds,
                    "alone_bytes": one.alone.bytes,
                }
                for query, one in table.shares().items()
            ],
        }
        for table in ranked
    ]
