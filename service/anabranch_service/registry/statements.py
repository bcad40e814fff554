"""Statements of queries, and a cache of their normal forms, so that each is parsed once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any

import structlog

from anabranch_contract import codec
from anabranch_contract.connectors.user_functions import UserFunction
from anabranch_contract.errors import PlannerError, QueryError
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_contract.queries.runs import part_name
from anabranch_planner.documents.structured import read_document
from anabranch_planner.passes import parse_sql, parse_structured, read_sql, without_subqueries
from anabranch_planner.sql.dialects import SPARK, spoken_of
from anabranch_planner.sql.functions import mark_calls
from anabranch_planner.sql.named import in_parts, names_read, with_inlined
from anabranch_planner.sql.unresolved import Unresolved
from anabranch_planner.subqueries.ranked import ranked_apart
from anabranch_planner.subqueries.single_rows import with_single_rows
from anabranch_service.durations import read_duration
from anabranch_service.errors import InvalidInput
from anabranch_service.registry.records import InlinedQuery, QueryRecord

_LOG = structlog.get_logger(__name__)

#: Capacity of the cache, in bytes of the JSON of the records whose normal forms it has.
KEPT_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Statement:
    """A query as the client wrote it, parsed.

    Attributes:
        sql: SQL in Spark's dialect; None: the query is the structured document ``query``.
        window: window of all aliases, or by alias, in microseconds.
        dialect: dialect of the original SQL, before its translation to Spark's.
        written: the original SQL, for the places of errors; empty: not known.
        parsed: syntax tree of ``sql``, before name resolution.
        inlined: name in FROM -> the registered query that is inserted there as a subquery.
        run: the run with the statement, if subqueries with post-join parts run as separate queries
            (parts); empty: such subqueries are refused.
        part: number of the part, from 1, that this object stands for; 0: the statement itself.
        functions: the users' functions that it and the inlined queries may call, by name.
        called: the functions that they call, a part of ``functions``.
        streams: the streams that it may read; their columns are needed to turn subqueries in
            expressions into joins. None: not known yet.
    """

    sql: str | None
    query: Mapping[str, Any]
    window: int | Mapping[str, int] | None
    dialect: str
    parsed: Unresolved | None
    inlined: Mapping[str, InlinedQuery] = field(default_factory=dict)
    run: str = ""
    part: int = 0
    functions: Mapping[str, UserFunction] = field(default_factory=dict)
    called: Mapping[str, UserFunction] = field(default_factory=dict)
    streams: Mapping[str, Stream] | None = None
    written: str = ""

    @property
    def field(self) -> str:
        """The request's field that contains the names in FROM."""
        return "query.from" if self.sql is None else "sql"

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the subqueries that run as separate queries."""
        count = len(self._pieces()) - 1
        return tuple(part_name(self.run, number) for number in range(1, count + 1))

    @property
    def names(self) -> tuple[str, ...]:
        """The names in FROM: parts, streams, and queries that are not inlined.

        Raises:
            QueryError: the structured query can't be read.
        """
        return names_read(self.tree())

    def inlining(self, queries: Mapping[str, InlinedQuery]) -> Statement:
        """Return the statement with ``queries`` as subqueries in place of their names."""
        return replace(self, inlined=queries) if queries else self

    def calling(self, functions: Mapping[str, UserFunction]) -> Statement:
        """Return the statement with ``functions`` as the users' functions that it may call."""
        names = () if self.parsed is None else sorted(mark_calls(self.parsed, functions))
        called = {name: functions[name] for name in names}
        return replace(self, functions=functions, called=called)

    def tree(self) -> Unresolved:
        """Return the syntax tree of the statement or its ``part``, with inlined queries."""
        return self._pieces()[self.part - 1]

    def _pieces(self) -> tuple[Unresolved, ...]:
        inner = {}
        for name, one in self.inlined.items():
            read = read_statement(one.sql, one.query).calling(self.functions)
            inner[name] = read.inlining(one.inlined).tree()
        with spoken_of(self.sql or "", self.dialect, self.written):
            whole = with_inlined(self.parsed or self._document(), inner)
            if self.streams is not None:
                whole = without_subqueries(whole, self.streams)
            if not self.run:
                return (whole,)
            apart = ranked_apart(with_single_rows(whole))
            return in_parts(apart, partial(part_name, self.run))

    def _document(self) -> Unresolved:
        with self._of_document():
            return read_document(self.query)

    @contextmanager
    def _of_document(self) -> Iterator[None]:
        """Context manager: prefix fields of errors with ``query``, the document's field."""
        try:
            yield
        except QueryError as cause:
            inside = "" if cause.field.startswith("window") else "query."
            raise cause.moved(field=(inside + cause.field).rstrip(".")) from None

    def normalise(
        self,
        name: str,
        streams: Mapping[str, Stream],
        relaxed: Mapping[str, Sequence[Expr]] | None = None,
    ) -> JoinQuery:
        """Normalise the statement over ``streams``, as query ``name``.

        Args:
            relaxed: alias -> filter of its shared store (``planning.sharing``); SQL only.

        Raises:
            QueryError: the query can't be planned.
        """
        if self.streams is None:
            return replace(self, streams=streams).normalise(name, streams, relaxed)
        if self.parsed is not None:
            filters = {alias: tuple(kept) for alias, kept in (relaxed or {}).items()}
            tree = self.tree()
            with spoken_of(self.sql or "", self.dialect, self.written):
                return parse_sql(name, tree, streams, self.window, filters)
        with self._of_document():
            document = self.tree() if self.inlined else self.query
            return parse_structured(name, document, streams, self.window)


def read_statement(
    sql: str | None,
    query: Mapping[str, Any] | None = None,
    window: str | Mapping[str, str] | None = None,
    dialect: str = SPARK,
    written: str = "",
) -> Statement:
    """Parse a query.

    Args:
        written: the SQL in ``dialect`` before its translation; empty: not known.

    Raises:
        InvalidInput: not exactly one of ``sql`` and ``query``, or an invalid window.
        QueryError: the SQL can't be parsed.
    """
    if (sql is None) == (query is None):
        raise InvalidInput(
            "ambiguous-query" if sql is not None else "missing-query",
            "exactly one of sql and query must be given",
            field="sql",
            remedy="give the SQL text as sql, or a structured query as query",
        )
    limits: int | Mapping[str, int] | None = None
    if isinstance(window, str):
        limits = read_duration(window, "window")
    elif window is not None:
        limits = {alias: read_duration(text, f"window.{alias}") for alias, text in window.items()}
    if sql is None:
        return Statement(None, query or {}, limits, dialect, None)
    with spoken_of(sql, dialect, written):
        return Statement(sql, {}, limits, dialect, read_sql(sql), written=written)


@dataclass(frozen=True, slots=True)
class _KeptStatement:
    """A cached normal form: its inputs (record, statement, streams) and its size in bytes."""

    record: QueryRecord
    given: str
    streams: tuple[Stream, ...]
    query: JoinQuery
    bytes: int
    statement: Statement | None

    def holds(self, record: QueryRecord, streams: Mapping[str, Stream]) -> bool:
        # The record of an unchanged query is the same object as before.
        if record is not self.record and _given(record) != self.given:
            return False
        return all(streams.get(s.name) == s for s in self.streams)


class NormalForms:
    """Cache of the normal forms of registered queries, by id: each record is parsed once.

    An entry is valid as long as the record's statement and every stream that it reads are
    unchanged. The least recently used entries are evicted beyond ``most`` bytes of records.
    Thread-safe.
    """

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._most = most
        self._kept: OrderedDict[str, _KeptStatement] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def of(self, record: QueryRecord, streams: Mapping[str, Stream]) -> JoinQuery:
        """Return the normal form of a registered query.

        Raises:
            QueryError: the query can't be planned (any more).
        """
        streams = as_seen(record.columns, streams)
        with self._lock:
            entry = self._kept.get(record.id)
            if entry is not None:
                self._kept.move_to_end(record.id)
        if entry is not None and entry.holds(record, streams):
            return entry.query
        relaxed = codec.from_json(record.relaxed, dict[str, list[Expr]])
        query = _statement_of(record).normalise(record.id, streams, relaxed)
        self.keep(record, query, streams)
        return query

    def statement(self, record: QueryRecord) -> Statement:
        """Return the parsed statement of a query, before shared stores have been decided."""
        with self._lock:
            entry = self._kept.get(record.id)
        if entry is not None and entry.statement is not None and entry.given == _given(record):
            return entry.statement
        return _statement_of(record)

    def keep(
        self,
        record: QueryRecord,
        query: JoinQuery,
        streams: Mapping[str, Stream],
        statement: Statement | None = None,
    ) -> None:
        """Cache the normal form of ``record`` over ``streams``. Until shared stores are decided for
        it, its parsed ``statement`` is cached, too (:meth:`statement`)."""
        names = {relation.stream for part in query.planned for relation in part.relations}
        used = tuple(streams[name] for name in sorted(names))
        entry = _KeptStatement(
            record, _given(record), used, query, len(record.model_dump_json()), statement
        )
        with self._lock:
            self._forget(record.id)
            self._kept[record.id] = entry
            self._bytes += entry.bytes
            while self._bytes > self._most:
                self._forget(next(iter(self._kept)))

    def _forget(self, name: str) -> None:
        kept = self._kept.pop(name, None)
        self._bytes -= 0 if kept is None else kept.bytes


def _statement_of(record: QueryRecord) -> Statement:
    statement = read_statement(record.sql, record.query, record.window).calling(record.called)
    run = record.part_of or record.id
    return replace(statement, inlined=record.inlined, run=run, part=record.part)


def _given(record: QueryRecord) -> str:
    return record.model_dump_json(
        include={"sql", "query", "window", "relaxed", "inlined", "functions", "part", "columns"}
    )


def as_seen(
    allowed: Mapping[str, tuple[str, ...]], streams: Mapping[str, Stream]
) -> Mapping[str, Stream]:
    """Return ``streams`` restricted to ``allowed`` columns; streams without an entry keep all."""
    found = streams
    for name, columns in allowed.items():
        stream = streams.get(name)
        if stream is not None:
            kept = tuple(column for column in stream.columns if column[0] in columns)
            added = tuple(one for one in stream.added if one[0] in columns)
            found = {**found, name: replace(stream, columns=kept, added=added)}
    return found


def usable_streams(records: Iterable[StreamRecord]) -> dict[str, Stream]:
    """Return streams in the planner's form, by name; invalid records are logged and omitted."""
    streams = {}
    for record in records:
        try:
            streams[record.name] = record.to_stream()
        except PlannerError as cause:
            _LOG.error("unusable stream left out", stream=record.name, reason=str(cause))
    return streams
