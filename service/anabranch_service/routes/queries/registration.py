"""Start of a query's run, when the query is registered, replaced or resumed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import uuid4

from fastapi import Response

from anabranch_contract.connectors.user_functions import texts_of
from anabranch_contract.errors import PlannerError
from anabranch_contract.protocol.activations import of_union
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_contract.queries.outer_joins import LEFT_SUFFIX, branch_id
from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_contract.rest.queries import Past, QueryIn, QueryOut
from anabranch_contract.rest.slo import Slo
from anabranch_planner.sql.clauses.created import read_created
from anabranch_planner.sql.mistakes.further import read_whole
from anabranch_service.context import Context
from anabranch_service.durations import read_positive
from anabranch_service.errors import Conflict, InvalidInput
from anabranch_service.presenters.missed import PartNow, parts_now
from anabranch_service.presenters.records import floors_of, query_out
from anabranch_service.presenters.replacement import replacement_out
from anabranch_service.registry.alterations.added_columns import columns_of
from anabranch_service.registry.alterations.reread import check_whole
from anabranch_service.registry.cutover import standby
from anabranch_service.registry.derived import (
    Queries,
    Reading,
    StatementPart,
    is_query,
    with_queries,
)
from anabranch_service.registry.describe import describe
from anabranch_service.registry.lifecycle import LIVE, Status, status_of, to_plan
from anabranch_service.registry.permitted import check_sink_request
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.redis.base import ChangedRecords
from anabranch_service.registry.redis.queries import Added, NewRun
from anabranch_service.registry.sizes import check_columns, check_room, read_checked
from anabranch_service.registry.slo import check_slo
from anabranch_service.registry.statements import NormalForms, as_seen
from anabranch_service.routes.queries.sinks import check_columns_of_sink, check_target, shares_sink
from anabranch_service.settings import ServiceSettings
from anabranch_service.versions import etag

T = TypeVar("T")
Change = Callable[[QueryRecord], QueryRecord]
#: Function that chooses one of a query's runs (given oldest first), or returns None.
Choice = Callable[[Sequence[QueryRecord]], QueryRecord | None]
#: Function from all runs and the chosen run to further runs to withdraw; it may raise.
Beside = Callable[[Sequence[QueryRecord], QueryRecord], Sequence[QueryRecord]]


@dataclass(frozen=True, slots=True)
class Beginning:
    """A run of a query that has been checked and can be registered.

    Attributes:
        query: normal form over the streams of ``reading``.
        parts: the subqueries that run as separate queries and begin with it.
        version: version of the registry in which it was checked.
    """

    record: QueryRecord
    query: JoinQuery
    reading: Reading
    parts: tuple[Beginning, ...] = ()
    version: str = ""

    @property
    def parts_now(self) -> list[PartNow]:
        """The parts of the run before they begin."""
        records = [*(part.record for part in self.parts), self.record]
        return parts_now(records, {}).get(self.record.id, [])

    @property
    def new(self) -> list[NewRun]:
        """The runs to register together, the run itself last."""
        own = NewRun(self.record, self.reading.made)
        return [*(new for part in self.parts for new in part.new), own]

    def depends_on(self, changes: ChangedRecords) -> bool:
        """Whether it was checked against one of the records that have changed."""
        queries = {query_of(run) for run in changes.queries}
        return any(
            query_of(one.record.id) in queries
            or not queries.isdisjoint(one.record.reads)
            or not changes.functions.isdisjoint(one.record.functions)
            or not changes.streams.isdisjoint(
                [query_of(one.record.id), *(a.stream for a in one.record.normalised.aliases)]
            )
            for one in (self, *self.parts)
        )

    def keep(self, forms: NormalForms) -> None:
        """Keep the normal forms of the run and of its parts."""
        for part in self.parts:
            part.keep(forms)
        forms.keep(self.record, self.query, self.reading.streams, self.reading.statement)


async def begin(ctx: Context, body: QueryIn, now: datetime) -> Beginning:
    """Check (:func:`prepare`) the registration of a new query, or of a new run of an ended query.

    Raises:
        Conflict: ``duplicate-query``: a query with this id has not ended.
    """
    name = id_of(body) or f"q-{uuid4().hex[:12]}"
    version = await ctx.store.version()
    before, run = await ctx.store.query_and_next(name)
    if before is not None and await status_now(ctx, before) in LIVE:
        raise taken(name)
    return await prepare(ctx, run, body, now, version, before)


def id_of(body: QueryIn) -> str | None:
    """Return the id of the query that ``body`` registers: the given one, or the name of the view
    that its statement creates; None if neither is given.

    Raises:
        QueryError: the statement creates a view in a form that is not supported.
    """
    if body.name is not None or body.sql is None:
        return body.name
    created = read_created(body.sql, body.dialect)
    return None if created is None else created.name


async def prepare(
    ctx: Context,
    run: str,
    body: QueryIn,
    now: datetime,
    version: str,
    before: QueryRecord | None = None,
    *,
    waits: bool = False,
) -> Beginning:
    """Check a request for a new run.

    Args:
        version: version of the registry when ``before`` was read.
        before: the query's previous run; None: it has none.
        waits: whether the new run takes the place of ``before`` when it has caught up.

    Raises:
        InvalidInput, PlannerError, Conflict: naming the field.
    """
    await _check_room(ctx, [run], now)
    own = query_of(run)
    queries = await known_queries(ctx)
    queries.check_unread(own, "registered again")
    if own in queries.streams:
        # The name may belong to the stream of a query whose last reader has ended.
        await ctx.store.delete_unread(queries)
    await check_name(ctx, own)
    resumed = before is not None and before.paused_at is not None
    columns = columns_of(before, await ctx.store.queries()) if before and resumed else {}
    streams = as_seen(columns, await ctx.store.usable_streams())
    async with ctx.work.limited():
        reading, query, meaning = await ctx.work.read(
            _read, run, body, streams, ctx.settings, queries
        )
    statement = reading.statement
    asked = not resumed and "past" in body.model_fields_set
    for part in reading.parts if asked else ():
        check_past(body.past, part.query, part.reading.streams)
    parts = [
        await _part(ctx, run, body, one, n, now, columns) for n, one in enumerate(reading.parts, 1)
    ]
    record = QueryRecord.of(
        body,
        past=past_of(body, query, reading.streams),
        id=run,
        sequence=await ctx.store.next_sequence(),
        created_at=now,
        sql=statement.sql,
        expires_at=expiry(body.ttl, body.expires_at, now),
        normalised=meaning,
        sharing_decided=False,
        reads=reading.reads,
        inlined=statement.inlined,
        functions=texts_of(statement.called),
        columns=columns,
    )
    records, progress = await ctx.store.streams(), await ctx.store.progress()
    for one in (query, *(part.query for part in reading.parts)):
        check_whole(one, records, progress)
    await check_target(ctx, record)
    shared = before is not None and shares_sink(record, before)
    if waits and before is not None:
        if parts:
            raise InvalidInput(
                "cutover-with-parts",
                "a subquery of the statement is a query of its own (groups, DISTINCT or LIMIT), so "
                "it is not known when the statement has caught up",
                field="cutover",
                remedy="leave cutover out, or register the subquery and read it by name",
            )
        record = record.model_copy(update={"replaces": before.id, "shares_sink": shared})
    return Beginning(record, query, reading, tuple(parts), version)


async def _part(
    ctx: Context,
    run: str,
    body: QueryIn,
    part: StatementPart,
    number: int,
    now: datetime,
    columns: dict[str, tuple[str, ...]],
) -> Beginning:
    """Return the query to register as the ``number``-th part of the statement of ``run``."""
    query, reading = part.query, part.reading
    record = QueryRecord(
        past=past_of(body, query, reading.streams, part=True),
        id=part.name,
        sequence=await ctx.store.next_sequence(),
        created_at=now,
        sql=reading.statement.sql,
        priority=body.priority,
        owner=body.owner,
        tags=body.tags,
        normalised=part.meaning,
        sharing_decided=False,
        reads=reading.reads,
        inlined=reading.statement.inlined,
        functions=texts_of(reading.statement.called),
        columns=columns,
        part_of=run,
        part=number,
    )
    return Beginning(record, query, reading)


async def known_queries(ctx: Context) -> Queries:
    """Return the registered queries at this moment."""
    return await ctx.store.known_queries(ctx.clock(), ctx.settings.mode)


async def check_name(ctx: Context, query: str) -> None:
    """Refuse a query with the name of a stream.

    Raises:
        Conflict: ``name-of-stream``.
    """
    for name, stream in (await ctx.store.streams()).items():
        if name.lower() == query.lower() and not is_query(stream):
            raise name_of_stream(name)


def name_of_stream(name: str) -> Conflict:
    """Return the error for a query with the name of a stream."""
    return Conflict(
        "name-of-stream",
        f"there is a stream {name!r}, and a query is a stream of its name to other queries",
        field="name",
        remedy="choose another name",
    )


async def _check_room(ctx: Context, runs: Sequence[str], now: datetime) -> None:
    """Refuse queries beyond the maximum number of queries that have not ended."""
    most, own = ctx.settings.sizes.max_queries, {query_of(run) for run in runs}
    if await ctx.store.count_queries() + len(own) <= most:
        return
    wanted, _ = to_plan(await ctx.store.queries(), await ctx.store.activations(), now)
    check_room("queries", sum(query_of(q.id) not in own for q in wanted), most, len(own))


class Stale(Exception):
    """Raised by a request whose checks no longer hold: other requests have changed the registry."""


async def until_current(attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the value of ``attempt``, called again as long as it raises :class:`Stale`."""
    while True:
        with suppress(Stale):
            return await attempt()


async def register(
    ctx: Context, runs: Sequence[Beginning], *, idempotency_key: str = "", answer: str = ""
) -> Added:
    """Register runs, all or none, in the version of the registry that they were checked in. Checks
    that other changes may concern are repeated.

    Raises:
        Stale: a stream, query or function has changed that one of the runs was checked against.
        Conflict: as :func:`prepare`.
    """
    kept = answer if idempotency_key else ""
    new, version = [one for run in runs for one in run.new], runs[0].version
    if len(runs) > 1:
        await _check_room(ctx, [run.record.id for run in runs], ctx.clock())
    async with ctx.store.registering:
        while True:
            added = await ctx.store.add_queries(new, version, idempotency_key, kept)
            if added.outcome != "changed":
                break
            changes = await ctx.store.changes_since(version)
            if any(run.depends_on(changes) for run in runs):
                raise Stale
            version = changes.version
            await _check_again(ctx, [run.record for run in runs])
    if added.outcome == "added":
        for run in runs:
            run.keep(ctx.store.forms)
    return added


async def _check_again(ctx: Context, records: Sequence[QueryRecord]) -> None:
    """Repeat the checks of runs that depend on all streams and queries."""
    await _check_room(ctx, [one.id for one in records], ctx.clock())
    queries = await known_queries(ctx)
    for record in records:
        own = query_of(record.id)
        if queries.readers(own):
            raise Stale
        await check_name(ctx, own)
        await check_target(ctx, record)


def taken(query: str) -> Conflict:
    """Return the error of a registration under the name of a query that has not ended."""
    return Conflict(
        "duplicate-query",
        f"a query {query!r} is registered already",
        field="name",
        remedy="choose another name, or leave the name out to have one made; PUT changes the query",
    )


async def status_now(ctx: Context, record: QueryRecord) -> Status:
    """Return the current state of a run."""
    activation, progress = await ctx.store.activation(record.id), await ctx.store.progress()
    return status_of(record, activation, progress, ctx.clock())


def check_unchanged(records: Sequence[QueryRecord], seen: Sequence[QueryRecord]) -> None:
    """Check that ``seen`` has all runs of its query, in their newest versions.

    Raises:
        Stale: they are not.
    """
    names = {query_of(run.id) for run in seen}
    now = [run for run in records if query_of(run.id) in names]
    if [(run.id, etag(run)) for run in now] != [(run.id, etag(run)) for run in seen]:
        raise Stale


def updated(
    records: Sequence[QueryRecord],
    runs: Sequence[QueryRecord | None],
    changes: Mapping[str, object],
) -> list[QueryRecord]:
    """Return the newest versions of ``runs`` with ``changes``, if these change anything."""
    names = {run.id for run in runs if run is not None}
    found = [(one, one.model_copy(update=changes)) for one in records if one.id in names]
    return [changed for one, changed in found if changed != one]


async def waiting_run(ctx: Context, present: QueryRecord) -> QueryRecord | None:
    """Return the live run that waits for the place of a query's ``present`` run, if any."""
    found = standby(present, await ctx.store.runs_of(query_of(present.id)))
    if found is None or not found.waits:
        return None
    return found if await status_now(ctx, found) in LIVE else None


async def change_and_end_earlier(
    ctx: Context, query: str, change: Change, now: datetime, choose: Choice, beside: Beside
) -> QueryRecord | None:
    """Apply ``change`` to the run that ``choose`` returns, and withdraw earlier runs, runs that
    wait to take over, and the runs that ``beside`` returns, all in one transaction. If the chosen
    run waits itself, earlier runs continue. Returns the changed record; None if there is no such
    query."""
    changed: QueryRecord | None = None

    def decide(records: Sequence[QueryRecord]) -> list[QueryRecord]:
        nonlocal changed
        runs = [run for run in records if query_of(run.id) == query]
        chosen = choose(runs)
        if chosen is None:
            return []
        ended = [one for one in runs if one.waits and one.id != chosen.id]
        if not chosen.waits:
            ended += [one for one in runs[: runs.index(chosen)] if not one.waits]
        ended += beside(records, chosen)
        over = {chosen.id, *(run.id for run in ended)}
        ended += [run for run in records if run.part_of in over]
        changed = change(chosen)
        given = [changed] if changed != chosen else []
        return given + [
            run.model_copy(update={"removed_at": now}) for run in ended if run.removed_at is None
        ]

    await ctx.store.change_queries(decide)
    return changed


async def shown(ctx: Context, record: QueryRecord, response: Response) -> QueryOut:
    """Return the answer that shows a run's current state; sets the ETag header of ``response``."""
    response.headers["ETag"] = etag(record)
    names = [record.id]
    if record.normalised.outer is not None:
        names.append(record.id + LEFT_SUFFIX)
    branches = len(record.normalised.branches)
    names += (branch_id(record.id, number) for number in range(2, branches + 1))
    found = {name: await ctx.store.activation(name) for name in names}
    activations = {name: one for name, one in found.items() if one is not None}
    progress, sources = await ctx.store.progress(), await ctx.store.sources()
    floors = floors_of(progress, await ctx.store.rations())
    activation = of_union(activations, record.id, branches)
    left = activations.get(record.id + LEFT_SUFFIX)
    approvals = await ctx.store.approvals()
    now, queries = ctx.clock(), await known_queries(ctx)
    readers, ended = queries.readers(query_of(record.id)), queries.ended_below(record)
    parts = parts_now(queries.records, queries.activations, record.id).get(record.id, ())
    answer = query_out(
        record, activation, progress, sources, now, floors, left, approvals, readers, ended, parts
    )
    return answer.model_copy(update={"replacement": replacement_out(record, queries)})


async def check_needs(ctx: Context, record: QueryRecord, slo: Slo) -> None:
    """Refuse service level objectives that no plan can meet."""
    streams = await ctx.store.usable_streams()
    try:
        query = await ctx.work.read(ctx.store.forms.of, record, streams)
    except PlannerError as cause:
        raise Conflict(
            "query-unreadable",
            f"query {query_of(record.id)!r} can't be planned any more: {cause.message}",
            field="name",
            remedy="change its streams back, or register the query again",
        ) from None
    check_slo(slo, query, streams)


def body_of(record: QueryRecord) -> QueryIn:
    """Return the body of a request that registers an equal run."""
    return QueryIn.of(record, id=None)


def expiry(ttl: str | None, expires_at: datetime | None, now: datetime) -> datetime | None:
    """Return a query's expiry: ``ttl`` from now, or ``expires_at``; None if it never expires."""
    if ttl is not None and expires_at is not None:
        raise InvalidInput(
            "ambiguous-expiry",
            "ttl and expires_at exclude each other",
            field="ttl",
            remedy="give ttl or expires_at",
        )
    if ttl is not None:
        micros = read_positive(
            ttl, "ttl", "bad-expiry", "a ttl of nothing", "give a positive duration"
        )
        try:
            return now + timedelta(microseconds=micros)
        except OverflowError:
            raise InvalidInput(
                "bad-expiry",
                f"{ttl!r} from now is beyond the year 9999",
                field="ttl",
                remedy="leave the ttl out: the query lives until it is deleted",
            ) from None
    if expires_at is not None and expires_at <= now:
        raise InvalidInput(
            "bad-expiry",
            f"{expires_at.isoformat()} is past",
            field="expires_at",
            remedy="give a time in the future",
        )
    return expires_at


def read_body(
    body: QueryIn,
    streams: Mapping[str, Stream],
    settings: ServiceSettings,
    queries: Queries,
    run: str,
) -> Reading:
    """Parse the statement of a request for ``run``, and resolve the queries that it reads."""
    statement = read_checked(
        settings,
        body.sql,
        body.query,
        body.window,
        body.dialect,
        streams,
        parameters=body.parameters,
        name=query_of(run),
    )
    return with_queries(statement, streams, queries, run)


def _read(
    name: str,
    body: QueryIn,
    streams: Mapping[str, Stream],
    settings: ServiceSettings,
    queries: Queries,
) -> tuple[Reading, JoinQuery, NormalisedInfo]:
    """Parse and check a request for a query, including its sink; returns the statement, its normal
    form, and the description of the normal form."""

    def read(sql: str | None) -> tuple[Reading, JoinQuery, NormalisedInfo]:
        given = body if sql == body.sql else body.model_copy(update={"sql": sql})
        return _read_once(name, given, streams, settings, queries)

    return read_whole(body.sql, read)


def _read_once(
    name: str,
    body: QueryIn,
    streams: Mapping[str, Stream],
    settings: ServiceSettings,
    queries: Queries,
) -> tuple[Reading, JoinQuery, NormalisedInfo]:
    """Do the same as :func:`_read`, and raise only the first error."""
    reading = read_body(body, streams, settings, queries, name)
    statement, streams = reading.statement, reading.streams
    query = statement.normalise(name, streams)
    shown = "sql" if statement.sql is not None else "query.select"
    check_columns(len(query.shown), settings, "the results have", shown)
    check_sink_request(body.sink.to_sink(), settings)
    check_columns_of_sink(body.sink, query)
    check_slo(body.slo, query, streams)
    check_past(body.past, query, streams)
    return reading, query, describe(query, streams)


def past_of(
    body: QueryIn, query: JoinQuery, streams: Mapping[str, Stream], *, part: bool = False
) -> Past:
    """Whether the query emits past results: as requested, or :func:`default_past`."""
    if "past" in body.model_fields_set:
        return body.past if not part or _has_past(query, streams) else "none"
    return default_past(query, streams, part=part)


def _has_past(query: JoinQuery, streams: Mapping[str, Stream]) -> bool:
    # In a union, branches without stored tuples begin with rows that arrive later.
    return any(_no_past(join, streams) is None for join in _branches(query))


def default_past(query: JoinQuery, streams: Mapping[str, Stream], *, part: bool = False) -> Past:
    """Return the default for past results. They are emitted for a query whose results are changes,
    whose sum would lack rows otherwise, and for a part of a statement, which would be wrong."""
    changing = bool(query.deleting(streams)) or (query.outer is not None and query.outer.kept)
    return "stored" if (changing or part) and _has_past(query, streams) else "none"


def _branches(query: JoinQuery) -> tuple[JoinQuery, ...]:
    return query.planned if query.united else (query,)


def _no_past(query: JoinQuery, streams: Mapping[str, Stream]) -> str | None:
    """Return why stored tuples do not suffice to compute past results; None if they do."""
    if query.outer is not None and not query.outer.kept:
        return "the query decides which rows have no partner when these rows arrive"
    # An outer join consists of several joins; branches of a union are checked one by one.
    joins = (query,) if query.united else query.planned
    read = [streams[r.stream] for join in joins for r in join.relations]
    parts = query.planned if query.is_asof else (query,)
    for own in (streams[p.relations[0].stream] for p in parts if len(p.members) == 1):
        if not own.is_retained:
            return f"rows of stream {str(own.name)!r} are not stored: nothing joins it"
    if any(streams[query.relation_of(label).stream].is_table for label in query.looked_up):
        return "the query reads a table, and rows of tables are looked up as of each batch"
    latest = sorted(stream.name for stream in read if stream.latest and not stream.is_table)
    if latest:
        return f"stream {latest[0]!r} keeps the latest rows of a key, so earlier ones are gone"
    return None


def check_past(past: Past, query: JoinQuery, streams: Mapping[str, Stream]) -> None:
    """Refuse results over past tuples if stored tuples do not suffice to compute them."""
    reasons = [] if past == "none" else [_no_past(join, streams) for join in _branches(query)]
    for reason in filter(None, reasons):
        raise InvalidInput(
            "past-not-stored",
            f"results of the past can't be emitted: {reason}",
            field="past",
            remedy="leave past out: results begin with rows that arrive from now on (rows "
            "of streams "
            "added with --retain all are stored)",
        )
