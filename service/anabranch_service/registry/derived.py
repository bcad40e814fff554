"""Queries that other queries read by name.

For its readers a query with a post-join part is a stream of the same name: the changes of its rows,
as the runtime has written them (``docs/semantics.md``, "Queries over queries"). The stream is
registered together with its first reader and deleted after its last one. Any other query becomes a
subquery in its readers' FROM.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import uuid4

from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.connectors.sources import KEY, QUERY, RUN
from anabranch_contract.connectors.user_functions import UserFunction
from anabranch_contract.errors import QueryError
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Mode, Progress
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.changes import IDENTITY, ChangeFormat
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamKind
from anabranch_contract.queries.runs import query_of
from anabranch_contract.queries.views import CHANGE
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_service.errors import Conflict
from anabranch_service.registry.describe import describe
from anabranch_service.registry.lifecycle import LIVE, Status, newest_runs, status_of
from anabranch_service.registry.records import (
    InlinedQuery,
    QueryRecord,
    name_key,
    part_key,
    reader_key,
)
from anabranch_service.registry.statements import Statement


@dataclass(frozen=True, slots=True)
class Queries:
    """The registered queries at one moment.

    Attributes:
        records: all runs, in order of registration.
        index: the runs by each of their ``keys``, in order of registration.
        streams: stream with the changes of a query -> the query's run.
        mode: mode of the pipeline; in a replay, queries with post-join parts can't be read.
        functions: users' functions by name.
    """

    records: Sequence[QueryRecord]
    index: Mapping[str, Mapping[str, QueryRecord]]
    activations: Mapping[str, Activation]
    progress: Progress | None
    now: datetime
    streams: Mapping[str, str]
    mode: Mode
    functions: Mapping[str, UserFunction] = field(default_factory=dict)

    def status(self, record: QueryRecord) -> Status:
        """Return the status of a run."""
        return status_of(record, self.activations.get(record.id), self.progress, self.now)

    def runs(self, name: str) -> Collection[QueryRecord]:
        """Return all runs of the queries called ``name``, in any case."""
        return self.index.get(name_key(name), {}).values()

    def find(self, name: str) -> QueryRecord | None:
        """Return the newest run of the live query called ``name``, or else of the one whose name
        differs only in case; None if there is none.

        Raises:
            QueryError: the name may mean several queries.
        """
        found = newest_runs(self.runs(name))
        found = [one for one in found if self.status(one) in LIVE]
        exact = [one for one in found if query_of(one.id) == name]
        if len(found) > 1 and not exact:
            several = " or ".join(repr(query_of(one.id)) for one in found)
            raise QueryError(
                "unknown-stream", f"{name!r} may mean {several}", remedy="spell it exactly"
            )
        return next(iter(exact or found), None)

    def readers(self, query: str) -> list[str]:
        """Return the live queries that read ``query``, in order of registration."""
        return list(
            dict.fromkeys(
                query_of(one.id)
                for one in self.index.get(reader_key(query), {}).values()
                if self.status(one) in LIVE and not one.is_over(self.now)
            )
        )

    def all_readers(self, query: str) -> list[str]:
        """Return the live queries that read ``query`` directly or through others."""
        found: dict[str, None] = {}
        waiting = [query]
        while waiting:
            for reader in self.readers(waiting.pop()):
                if reader not in found:
                    found[reader] = None
                    waiting.append(reader)
        return list(found)

    def ended_below(self, record: QueryRecord) -> dict[str, str]:
        """Map each ended query that ``record`` reads to the reason why it produces no more rows."""
        found: dict[str, str] = {}
        for name in record.reads if self.status(record) in LIVE else ():
            for read in newest_runs(self.runs(name)):
                status = self.status(read)
                if query_of(read.id) == name and read.normalised.post_join and status not in LIVE:
                    found[name] = f"query {name!r} is {status}: it produces no more rows"
        return found

    def users_of(self, stream: str) -> Callable[[Sequence[QueryRecord]], list[str]]:
        """Return a function from all runs to the live ones over ``stream``."""

        def users(records: Sequence[QueryRecord]) -> list[str]:
            return [
                one.id
                for one in records
                if any(a.stream == stream for a in one.normalised.aliases)
                and self.status(one) in LIVE
            ]

        return users

    def callers_of(self, function: str) -> Callable[[Sequence[QueryRecord]], list[str]]:
        """Return a callable that selects, among given runs, live ones that call ``function``."""

        def callers(records: Sequence[QueryRecord]) -> list[str]:
            live = (
                one
                for one in records
                if function in one.functions
                and self.status(one) in LIVE
                and not one.is_over(self.now)
            )
            return list(dict.fromkeys(query_of(one.part_of or one.id) for one in live))

        return callers

    def check_unread(self, query: str, action: str) -> None:
        """Refuse to change a registered query that others read.

        Raises:
            Conflict: ``query-is-read``, naming the readers.
        """
        readers = self.readers(query)
        if readers:
            raise Conflict(
                "query-is-read",
                f"query {query!r} can't be {action}: it is read by {', '.join(map(repr, readers))}",
                field="name",
                remedy="delete these queries first; cascade=true (--cascade) deletes them with it",
            )


def is_query(stream: StreamRecord) -> bool:
    """Whether the stream consists of the changes of a query."""
    return stream.source.format == QUERY


@dataclass(frozen=True, slots=True)
class Reading:
    """A statement with the queries that it reads.

    Attributes:
        streams: the registered streams, and queries that are read as streams.
        made: queries that are read as streams and are not registered as such yet.
        reads: the ids of the queries that are read by name.
        runs: the runs of the queries in ``reads``.
        parts: the subqueries that are queries of their own, each before its readers.
    """

    statement: Statement
    streams: Mapping[str, Stream]
    made: tuple[StreamRecord, ...] = ()
    reads: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    parts: tuple[StatementPart, ...] = ()

    @property
    def all_streams(self) -> Mapping[str, Stream]:
        """The streams of the statement and of its parts."""
        return {**{n: s for p in self.parts for n, s in p.reading.streams.items()}, **self.streams}


@dataclass(frozen=True, slots=True)
class StatementPart:
    """A subquery that runs as a separate query: its name, normal form, description and stream."""

    name: str
    reading: Reading
    query: JoinQuery
    meaning: NormalisedInfo
    stream: StreamRecord


def with_queries(
    statement: Statement, streams: Mapping[str, Stream], queries: Queries, run: str
) -> Reading:
    """Resolve names in FROM that are registered queries, and make parts of the subqueries that have
    to run as separate queries.

    Args:
        run: the run with the statement.

    Raises:
        QueryError: a query can't be read, or a subquery can't be a query of its own.
    """
    if queries.mode is Mode.STEP and statement.window is None:
        _check_whole(statement, streams, queries, run)
    # Parts of other statements can't be read, and must not be suggested for an unknown name.
    streams = {n: stream for n, stream in streams.items() if part_key(n) not in queries.index}
    inlined = {
        name: record
        for name in statement.names
        if not _is_stream(name, streams)
        and (record := queries.find(name)) is not None
        and not record.normalised.post_join
    }
    for record in inlined.values():
        _check(record, queries, query_of(run), statement.field)
    theirs = {name: one for record in inlined.values() for name, one in record.called.items()}
    statement = statement.calling({**queries.functions, **theirs})
    statement = replace(statement, called={**statement.called, **theirs})
    statement = statement.inlining({n: InlinedQuery.of(one) for n, one in inlined.items()})
    # The names in all parts, which are separated below.
    views = _with_views(statement.names, streams, queries)
    statement = replace(statement, run="" if queries.mode is Mode.STEP else run, streams=views)
    parts: list[StatementPart] = []
    for number, name in enumerate(statement.parts, 1):
        if statement.window is not None:
            raise QueryError(
                "part-with-window",
                "a statement with aggregates, DISTINCT or LIMIT in a subquery can't have a window",
                field="window",
                remedy="write its time bounds as conditions",
            )
        reading = _resolved(replace(statement, part=number), streams, queries, run, parts)
        query = reading.statement.normalise(name, reading.streams)
        meaning = describe(query, reading.streams)
        parts.append(StatementPart(name, reading, query, meaning, stream_of(name, meaning)))
    rest = _resolved(statement, streams, queries, run, parts)
    reads = dict.fromkeys([*(query_of(one.id) for one in inlined.values()), *rest.reads])
    runs = (*rest.runs, *(one.id for one in inlined.values()))
    return replace(rest, reads=tuple(reads), runs=runs, parts=tuple(parts))


def _check_whole(
    statement: Statement, streams: Mapping[str, Stream], queries: Queries, run: str
) -> None:
    """Refuse, in a replay, a statement that can run only in parts.

    Raises:
        QueryError: ``unsupported-sql``; or the statement is invalid even in parts.
    """
    live = with_queries(statement, streams, replace(queries, mode=Mode.LIVE), run)
    if not live.parts:
        return
    whole = replace(live.statement, run="", part=0)
    try:
        whole.normalise(run, streams)
    except QueryError as error:
        live.statement.normalise(run, live.streams)
        raise QueryError(
            "unsupported-sql",
            "a statement in parts (groups, windows or limits within it) in a replay is not "
            "supported: their results come beside its batches",
            field=error.field,
            remedy="run the pipeline live, by anabranch up",
            position=error.position,
        ) from error


def _with_views(
    names: Iterable[str], streams: Mapping[str, Stream], queries: Queries
) -> dict[str, Stream]:
    """Return ``streams`` and, as streams, the queries with post-join parts among ``names``."""
    found = {name: queries.find(name) for name in names if not _is_stream(name, streams)}
    made = (stream_of(one.id, one.normalised) for one in found.values() if one is not None)
    return {**streams, **{record.name: record.to_stream() for record in made}}


def _is_stream(name: str, streams: Mapping[str, Stream]) -> bool:
    return name in streams or any(name.lower() == one.lower() for one in streams)


def _resolved(
    statement: Statement,
    streams: Mapping[str, Stream],
    queries: Queries,
    run: str,
    parts: Sequence[StatementPart],
) -> Reading:
    """Resolve the names in FROM of one part of a statement, or of the statement without its parts.

    Args:
        parts: the parts that have been resolved before.
    """
    known, own = {name.lower(): name for name in streams}, {part.name: part for part in parts}
    made = dict[str, StreamRecord]()
    reads, runs = dict[str, None](), list[str]()
    for name in statement.names:
        if name in own:
            made[name] = own[name].stream
            reads[name] = None
            continue
        stream = name if name in streams else known.get(name.lower(), "")
        record = queries.find(stream or name)
        if record is not None:
            _check(record, queries, query_of(run), statement.field)
        if stream:
            read = queries.streams.get(stream)
            reads |= {} if read is None else {query_of(read): None}
        elif record is not None:
            made[query_of(record.id)] = stream_of(record.id, record.normalised)
            reads[query_of(record.id)] = None
            runs.append(record.id)
    new = {name: record.to_stream() for name, record in made.items()}
    return Reading(
        statement,
        {**streams, **new} if new else streams,
        tuple(made.values()),
        tuple(reads),
        tuple(runs),
    )


def stream_of(run: str, meaning: NormalisedInfo) -> StreamRecord:
    """Return the stream of the changes of a query with a post-join part."""
    view = meaning.view
    columns = [ColumnRecord(name=o.name, type=o.type) for o in meaning.output]
    changing = any(column.name == CHANGE for column in columns)
    options, changes = {RUN: run}, ChangeFormat(CHANGE if changing else None)
    if view is not None:
        columns += [
            ColumnRecord(name=IDENTITY, type="binary"),
            ColumnRecord(name=CHANGE, type="string"),
        ]
        options[KEY] = json.dumps(view.identity)
        changes = ChangeFormat(CHANGE, key=(IDENTITY,))
    return StreamRecord(
        name=query_of(run),
        description=f"Changes of query {query_of(run)}",
        columns=tuple(columns),
        retain=None,
        kind=StreamKind.CHANGES if view is None else StreamKind.UPSERT,
        changes=changes,
        source=SourceRecord(format=QUERY, options=options),
        registration=uuid4().hex[:8],
    )


def _check(record: QueryRecord, queries: Queries, own: str, field: str) -> None:
    """Refuse a statement that reads the query ``record`` if that can't be read.

    Raises:
        QueryError: ``query-not-readable``.
    """
    query, status = query_of(record.id), queries.status(record)
    wrong = None
    if record.part_of:
        wrong = f"is a part of query {query_of(record.part_of)!r}", "write the subquery again"
    elif query == own:
        wrong = "would read itself", "replace it without its own name in FROM"
    elif status is Status.PAUSED:
        wrong = "is paused", f"resume it first: POST /v1/queries/{query}:resume"
    elif status is Status.EXPIRING:
        wrong = "is ending", "register it again"
    elif not record.normalised.post_join:
        if record.window is not None:
            wrong = "has a window", "write its time bounds as conditions in its SQL"
    elif queries.mode is Mode.STEP:
        wrong = (
            "has results that come beside the batches of a replay",
            "write it as a subquery, or run the pipeline live",
        )
    elif record.sink.to_sink().kind is not SinkKind.PARQUET:
        wrong = (
            f"has the sink {record.sink.format}, and readers read the results folder",
            "register it again without a sink",
        )
    if wrong is not None:
        raise QueryError(
            "query-not-readable",
            f"query {query!r} can't be read: it {wrong[0]}",
            field=field,
            remedy=wrong[1],
        )
