"""Join queries and their parts: stream, relation, label, join key class, time bounds.

A *relation* is a stream with a local filter: the content of a base store. Within a query each alias
gets a canonical *label*: its relation's id, with a suffix ``#k`` from the second alias of the same
relation on. So two queries over the same relation use the same label, and their common sub-joins,
stores and steps are found by comparing labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from anabranch_contract.codec import Row
from anabranch_contract.errors import QueryError, StreamError
from anabranch_contract.queries.changes import TINYINT, TUPLE_WEIGHT, ChangeFormat
from anabranch_contract.queries.expressions import (
    Column,
    Expansion,
    Expr,
    Output,
    columns,
    read_by,
    substitute,
)
from anabranch_contract.queries.outer_joins import OuterJoin
from anabranch_contract.queries.types import FLOATING, TIMESTAMPS, DataType, key_type
from anabranch_contract.queries.views import View

StreamName = NewType("StreamName", str)
RelationId = NewType("RelationId", str)
Label = NewType("Label", str)
QueryId = NewType("QueryId", str)

#: Microseconds; where ``Micros | None`` is declared, None means no bound.
Micros = int
Bounds = tuple[tuple[int | None, ...], ...]

#: Hidden column with a tuple's arrival number ``σ``, which distinguishes equal tuples.
ARRIVAL = "#sigma"


class StreamKind(StrEnum):
    """Kind of a stream: events, rows of a table to look up, or inserts and deletes of tuples."""

    STREAM = "stream"
    TABLE = "table"
    CHANGES = "changes"
    UPSERT = "upsert"


@dataclass(frozen=True, slots=True)
class Stream:
    """An append-only stream, a table, or a stream of changes.

    Attributes:
        columns: (name, type) in order, without the operation column of a stream of changes.
        event_time: the event-time column (a timestamp), or None.
        lateness: allowed lateness in microseconds; None is unbounded (nothing is ever late).
        idle_timeout: microseconds without tuples after which its watermark follows the other
            streams' watermarks; None: never.
        keep_late: whether late, invalid and future tuples are written to files (quarantine).
        ttl: window in microseconds on every alias over the stream, in every query; None: no window.
        latest: key columns. Of tuples with equal keys only those with the greatest event time, as
            of each batch, take part in joins; empty: all tuples do. In a table it is the key, and
            the row that arrived last takes part.
        ahead_of_clock: microseconds by which an event time may exceed the clock in live mode;
            None: any number.
        ahead_of_stream: microseconds by which an event time may exceed the stream's earlier event
            times; None: any number.
        retain: microseconds of event time behind the watermark for which all tuples stay stored,
            with or without queries; None: for ever; 0: only as long as queries need them.
        registration: id that distinguishes the stream from a deleted one of the same name.
        kind: a table has no event time and is retained for ever.
        changes: form in which rows of a stream of changes state inserts and deletes; None: no such
            stream. With a key (upserts) a row replaces the tuple of its key, and as in tables there
            is no event time.
        added: (column, value in earlier rows) of the columns that were added after registration, in
            order, including columns dropped since. The value is a text, cast to the column's type;
            None: NULL.
        widened: (column, its first type) of the columns whose type was widened after registration.
        dropped: (column, its first type) of the columns that were dropped.
    """

    name: StreamName
    columns: tuple[tuple[str, DataType], ...]
    event_time: str | None = None
    lateness: Micros | None = None
    idle_timeout: Micros | None = None
    keep_late: bool = False
    ttl: Micros | None = None
    latest: tuple[str, ...] = ()
    ahead_of_clock: Micros | None = None
    ahead_of_stream: Micros | None = None
    retain: Micros | None = 0
    registration: str = ""
    kind: StreamKind = StreamKind.STREAM
    changes: ChangeFormat | None = None
    added: tuple[tuple[str, str | None], ...] = ()
    widened: tuple[tuple[str, DataType], ...] = ()
    dropped: tuple[tuple[str, DataType], ...] = ()

    def __post_init__(self) -> None:
        names = [c for c, _ in self.columns]
        if not names:
            raise StreamError(
                "empty-stream",
                f"stream {self.name!r} has no columns",
                field="columns",
                remedy="declare at least one column",
            )
        lowered = [c.lower() for c in names]
        for name in names:
            if lowered.count(name.lower()) > 1:
                raise StreamError(
                    "duplicate-column",
                    f"stream {self.name!r} declares column {name!r} more than once",
                    field="columns",
                    remedy="names are case-insensitive; rename one of them",
                )
        if self.event_time is not None:
            kind = dict(self.columns).get(self.event_time)
            if kind is None or kind.kind not in TIMESTAMPS:
                raise StreamError(
                    "bad-event-time",
                    f"event-time column {self.event_time!r} of stream {self.name!r} is "
                    + ("unknown" if kind is None else f"of type {kind}"),
                    field="event_time",
                    remedy="name a timestamp column of the stream",
                )
        self._check_table()
        self._check_changes()
        self._check_ttl()
        self._check_latest()
        self._check_retain()

    @property
    def is_table(self) -> bool:
        """Whether the stream is a table: reference rows that other streams look up."""
        return self.kind is StreamKind.TABLE

    def as_table(self) -> Stream:
        """Return the stream in the role of a table, whose current rows other streams look up."""
        return Stream(
            self.name,
            self.columns,
            latest=self.latest,
            retain=None,
            kind=StreamKind.TABLE,
            added=self.added,
            widened=self.widened,
            dropped=self.dropped,
        )

    def as_changes(self) -> Stream:
        """Return the table in the role of a stream whose arriving rows complete results; with a key
        it becomes a stream of upserts."""
        return Stream(
            self.name,
            self.columns,
            retain=None,
            kind=StreamKind.UPSERT if self.latest else StreamKind.STREAM,
            changes=ChangeFormat(None, key=self.latest) if self.latest else None,
            added=self.added,
            widened=self.widened,
            dropped=self.dropped,
        )

    @property
    def has_changes(self) -> bool:
        """Whether tuples have a weight: rows insert or delete."""
        return self.changes is not None

    @property
    def is_upsert(self) -> bool:
        """Whether a row replaces the tuple with an equal key, and corrects that tuple's results."""
        return self.kind is StreamKind.UPSERT

    @property
    def row_key(self) -> tuple[str, ...]:
        """Key columns: only the latest row per key takes part in joins; empty: all rows do."""
        return self.latest if self.changes is None else self.changes.key

    @property
    def replaces_rows(self) -> bool:
        """Whether a row replaces the stored row of its key, by storing that row's delete."""
        return self.has_no_times and bool(self.row_key)

    @property
    def is_weighted(self) -> bool:
        """Whether stored tuples have a weight: inserts and deletes."""
        return self.has_changes or self.replaces_rows

    @property
    def first_columns(self) -> tuple[tuple[str, DataType], ...]:
        """(name, type) of the columns at registration; columns dropped since then come last."""
        added, first = {name for name, _ in self.added}, dict(self.widened)
        present = ((name, first.get(name, kind)) for name, kind in self.columns)
        return tuple(column for column in (*present, *self.dropped) if column[0] not in added)

    def deletes_results(self, *, looked_up: bool) -> bool:
        """Whether rows may delete earlier results of a query; ``looked_up``: by look-up only."""
        return self.has_changes or (self.replaces_rows and not looked_up)

    @property
    def has_no_times(self) -> bool:
        """Whether tuples have no event time, as in tables and upserts: all current rows join."""
        return self.is_table or self.is_upsert

    @property
    def stored_columns(self) -> tuple[tuple[str, DataType], ...]:
        """(name, type) of a stored tuple's columns: the stream's, and the hidden weight."""
        return (*self.columns, (TUPLE_WEIGHT, TINYINT)) if self.is_weighted else self.columns

    @property
    def is_ordered(self) -> bool:
        """Whether the stream's tuples are ordered by a value ``τ``. It is the event time or, in
        tables and upserts with a key, the row's position in its batch, so that of two rows with
        equal keys the later one replaces the earlier one."""
        return self.event_time is not None or self.replaces_rows

    def _check_table(self) -> None:
        if not self.has_no_times:
            return
        what = "table" if self.is_table else "stream of upserts"
        given = {
            "event_time": self.event_time is not None,
            "idle_timeout": self.idle_timeout is not None,
            "retention.ttl": self.ttl is not None,
            "retain": self.retain is not None,
        }
        for field, wrong in given.items():
            if wrong:
                raise StreamError(
                    "table-property",
                    f"{what} {self.name!r} can't have {field}: its current rows are kept, whatever "
                    "their times",
                    field=field,
                    remedy=f"leave {field} out; a timestamp column can be compared like any other",
                )

    def _check_changes(self) -> None:
        changing = self.kind in (StreamKind.CHANGES, StreamKind.UPSERT)
        if changing != self.has_changes:
            raise StreamError(
                "changes-without-kind",
                f"stream {self.name!r} of kind {self.kind} "
                + ("has" if self.has_changes else "lacks")
                + " a description of inserts and deletes",
                field="kind",
                remedy="give kind changes or upsert, or leave the description out",
            )
        if self.is_upsert != bool(self.row_key) and self.has_changes:
            raise StreamError(
                "upsert-without-key",
                f"stream {self.name!r} of kind {self.kind} "
                + ("lacks a key" if self.is_upsert else "can't have a key"),
                field="key",
                remedy="a key belongs to kind upsert: name its columns there, and only there",
            )
        if self.is_weighted and TUPLE_WEIGHT in dict(self.columns):
            raise StreamError(
                "reserved-column",
                f"{'table' if self.is_table else 'stream of changes'} {self.name!r} can't have a "
                f"column {TUPLE_WEIGHT!r}",
                field="columns",
                remedy="rename it",
            )

    @property
    def is_retained(self) -> bool:
        """Whether all tuples are stored even if no query reads the stream."""
        return self.retain != 0

    def _check_retain(self) -> None:
        if self.retain and self.event_time is None:
            raise StreamError(
                "retain-without-event-time",
                f"stream {self.name!r} has no event time that a duration could count from",
                field="retain",
                remedy="declare event_time, or retain all",
            )

    def _check_ttl(self) -> None:
        if self.ttl is None:
            return
        if self.event_time is None:
            raise StreamError(
                "ttl-without-event-time",
                f"stream {self.name!r} has no event time that a ttl could count from",
                field="retention.ttl",
                remedy="declare event_time, or leave the ttl out",
            )
        if self.ttl < 0:
            raise StreamError(
                "negative-ttl",
                f"the ttl of stream {self.name!r} is negative: {self.ttl} microseconds",
                field="retention.ttl",
                remedy="give a duration of zero or more",
            )

    def _check_latest(self) -> None:
        def refuse(why: str, remedy: str, code: str = "bad-latest") -> StreamError:
            if self.has_no_times:
                return StreamError(
                    "bad-key", f"{self.kind} {self.name!r} {why}", field="key", remedy=remedy
                )
            return StreamError(
                code, f"stream {self.name!r} {why}", field="retention.latest", remedy=remedy
            )

        if self.latest and self.has_changes:
            raise StreamError(
                "latest-of-changes",
                f"stream {self.name!r} of changes can't keep the latest per key: results follow "
                "its deletes",
                field="retention.latest",
                remedy="leave latest out; for rows that replace others, give kind upsert and a key",
            )
        if not self.row_key:
            return
        if self.event_time is None and not self.has_no_times:
            raise refuse(
                "has no event time by which one tuple of a key is later than another",
                "declare event_time, or leave latest out",
                "latest-without-event-time",
            )
        for at, column in enumerate(self.row_key):
            kind = self.type_of(column)
            if kind is None:
                raise refuse(f"has no column {column!r}", "name columns of the stream")
            if column in self.row_key[:at]:
                raise refuse(f"has {column!r} twice in its key", "name it once")
            if kind.kind in FLOATING or key_type([kind]) is None:
                raise refuse(
                    f"can't be keyed by {column!r}, of type {kind}",
                    "name columns of an exact type, such as bigint or string",
                )

    def type_of(self, column: str) -> DataType | None:
        """Return the type of ``column``, or None if the stream has no such column."""
        return dict(self.columns).get(column)


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream under a conjunction of local filters (whose columns have an empty alias)."""

    id: RelationId
    stream: StreamName
    filter: tuple[Expr, ...] = ()


def make_relation(stream: StreamName, conjuncts: Iterable[Expr]) -> Relation:
    """Return the relation of ``stream`` under ``conjuncts``; equal conjunct sets give equal ids.

    >>> make_relation(StreamName("orders"), ()).id
    'orders'
    """
    by_text = {str(c): c for c in conjuncts}
    texts = sorted(by_text)
    if not texts:
        return Relation(RelationId(stream), stream)
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]
    return Relation(RelationId(f"{stream}[{digest}]"), stream, tuple(by_text[t] for t in texts))


class AttrRef(Row, frozen=True):
    """An attribute of a label: a stream column, or the text of a derived key expression."""

    label: Label
    attribute: str

    def __str__(self) -> str:
        return f"{self.label}.{self.attribute}"


@dataclass(frozen=True, slots=True)
class KeyClass:
    """Attributes that a query's equi-join predicates make equal, closed under transitivity.

    ``type`` is the common key type (:func:`~.types.key_type`); ``members`` are
    sorted and belong to at least two labels.
    """

    type: str
    members: tuple[AttrRef, ...]

    def restrict(self, labels: frozenset[Label]) -> tuple[AttrRef, ...]:
        """Return the key class's attributes whose label is in ``labels``."""
        return tuple([m for m in self.members if m.label in labels])


@dataclass(frozen=True, slots=True)
class QueryMember:
    """One alias of a query, with its relation and canonical label."""

    alias: str
    label: Label
    relation: RelationId


@dataclass(frozen=True, slots=True)
class Equality:
    """One equi-join predicate as the user wrote it (sides sorted)."""

    left: AttrRef
    right: AttrRef


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """A normalised multi-way join query: the planner's input.

    Attributes:
        members: the aliases in the order of the FROM clause.
        predicates: the equi-joins as written, sorted.
        classes: the same equalities as key classes, transitively closed.
        bounds: transitively closed matrix of time bounds, indexed like ``members``: ``bounds[i][j]
            = D`` means that event times satisfy ``tau_j - tau_i <= D`` microseconds (None: any).
        residuals: conjuncts over several labels that are neither equi-joins nor time bounds.
        projection: output columns in order.
        derived: key expressions that are not plain columns: (stream, text) -> expression over the
            stream's columns (``Column.alias`` empty).
        view: the post-join part, which reads the projection's columns.
        outer: an outer join over this join. Its left rows are the results of ``left``; its pairs
            are the results of this join, and of ``others`` for look-ups after the first. It reads
            the projection's columns, and a view reads its rows instead of joined rows.
        united: whether its results are a branch of a union. Branches have equal columns and the
            same ``view``; the first branch has the further branches in ``others``.
        unsorted: whether the statement has an ORDER BY without effect, since results are written in
            the order in which they arise.
        looked_up: labels whose tuples complete no result: labels of tables, and of streams that
            other streams' tuples look up when they arrive.
        expansions: expansions of joined rows, in order, whose columns the projection may read.
    """

    id: QueryId
    members: tuple[QueryMember, ...]
    relations: tuple[Relation, ...]
    predicates: tuple[Equality, ...]
    classes: tuple[KeyClass, ...]
    bounds: Bounds
    residuals: tuple[Expr, ...]
    projection: tuple[Output, ...]
    derived: tuple[tuple[StreamName, str, Expr], ...] = ()
    view: View | None = None
    outer: OuterJoin | None = None
    left: JoinQuery | None = None
    others: tuple[JoinQuery, ...] = ()
    united: bool = False
    unsorted: bool = False
    looked_up: tuple[Label, ...] = ()
    expansions: tuple[Expansion, ...] = ()

    def __post_init__(self) -> None:
        labels = {m.label for m in self.members}
        if len(labels) != len(self.members):
            raise QueryError("duplicate-label", f"query {self.id!r} repeats a label")
        ids = {r.id for r in self.relations}
        if {m.relation for m in self.members} != ids:
            raise QueryError("unknown-relation", f"query {self.id!r} misses a relation")
        for column in self.reads:
            if column.alias not in labels:
                raise QueryError("unknown-label", f"query {self.id!r} reads {column}")

    @property
    def reads(self) -> Iterator[Column]:
        """The columns of joined streams that residuals, expansions and projection read."""
        yield from (column for expr in self.residuals for column in columns(expr))
        yield from read_by(self.projection, self.expansions)

    def unexpanded(self, expr: Expr) -> Expr:
        """Return ``expr`` with whole arrays and maps for their elements; its type may change."""
        values = {one.name: one.value for one in self.expansions}
        if not values:
            return expr
        return substitute(
            expr, lambda c: self.unexpanded(values[c.alias]) if c.alias in values else c
        )

    @property
    def shown(self) -> tuple[Output, ...]:
        """The columns of the query's results: of the view, the outer join, or the projection."""
        post_join = self.view or self.outer
        return self.projection if post_join is None else post_join.projection

    @property
    def planned(self) -> tuple[JoinQuery, ...]:
        """The inner joins to plan: this one, the left rows, and the pairs of further look-ups or
        the further branches of a union."""
        return (self, *(() if self.left is None else (self.left,)), *self.others)

    def deleting(
        self, streams: Mapping[str, Stream] | Mapping[StreamName, Stream]
    ) -> list[tuple[str, StreamName]]:
        """Return aliases, with their streams, whose tuples may delete earlier results."""
        found = []
        for one in self.planned:
            for member in one.members:
                stream = streams[one.relation_of(member.label).stream]
                if stream.deletes_results(looked_up=member.label in one.looked_up):
                    found.append((member.alias, stream.name))
        return found

    @property
    def is_asof(self) -> bool:
        """Whether it is an ASOF join, whose left and right rows come from two separate joins."""
        return self.outer is not None and self.outer.nearest is not None

    @property
    def labels(self) -> tuple[Label, ...]:
        """The canonical labels of the query's aliases, in the order of ``members``."""
        return tuple(m.label for m in self.members)

    def joins_like(self, other: JoinQuery) -> bool:
        """Whether both queries join the same relations under the same labels by the same keys."""
        return self.classes == other.classes and {(m.label, m.relation) for m in self.members} == {
            (m.label, m.relation) for m in other.members
        }

    def relation_of(self, label: Label) -> Relation:
        """Return the relation of ``label``."""
        wanted = next(m.relation for m in self.members if m.label == label)
        return next(r for r in self.relations if r.id == wanted)


def label_for(relation: RelationId, occurrence: int) -> Label:
    """Return the label of the ``occurrence``-th alias (from 0) of ``relation`` in a query."""
    return Label(relation if occurrence == 0 else f"{relation}#{occurrence}")


def needed_columns(query: JoinQuery, label: Label) -> frozenset[str]:
    """Return the stream columns of ``label`` that the projection and the residuals read."""
    read = (column.name for column in query.reads if column.alias == label)
    return frozenset(read) - {ARRIVAL}
