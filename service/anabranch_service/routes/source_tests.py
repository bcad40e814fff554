"""``POST /v1/streams:test``: test a stream's source before registration."""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import Query

from anabranch_contract.connectors.lake.options import LAKE
from anabranch_contract.connectors.postgres.options import POSTGRES
from anabranch_contract.connectors.secrets import without_secrets
from anabranch_contract.durations import format_duration
from anabranch_contract.errors import PlannerError, StructuredError
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.registered import SourceRecord, StreamRecord
from anabranch_contract.queries.joins import StreamKind
from anabranch_contract.queries.types import parse_type
from anabranch_contract.rest.queries import ProblemRecord
from anabranch_contract.rest.source_tests import EventTimeOut, SourceTestOut
from anabranch_contract.rest.streams import StreamIn
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.errors import InvalidInput
from anabranch_service.registry.permitted import check_place, policy_of
from anabranch_service.routes.streams import read_stream
from anabranch_service.settings import ServiceSettings
from anabranch_service.streaming.postgres import sample_table, with_proposal
from anabranch_service.streaming.samples.disorder import disorder_of, lateness_for
from anabranch_service.streaming.samples.fit import fit
from anabranch_service.streaming.samples.propose import (
    EventTime,
    document_of,
    event_times,
    keys_of,
    with_columns,
    with_event_time,
    with_key,
)
from anabranch_service.streaming.samples.sample import Sample, Unreadable, Wanted
from anabranch_service.streaming.samples.take import take

router = guarded_router("/v1", tag="streams")

#: Rows read by a test: default and maximum.
ROWS, MOST_ROWS = 20, 200
#: Maximum number of invalid values in an answer, and number of rows from which a registration is
#: completed.
MISFITS, SAMPLED = 100, 1000
_ENVELOPES = "the service reads no change envelopes; register the stream and see invalid_tuples"


@router.post("/streams:test")
@needs(Need.EDIT)
async def try_source(
    body: StreamIn,
    ctx: Ctx,
    rows: Annotated[int, Query(ge=1, le=MOST_ROWS, description="Rows to show.")] = ROWS,
    propose: Annotated[
        bool, Query(description="Propose missing fields of the registration; `columns` may be {}.")
    ] = False,
) -> SourceTestOut:
    """Read a few rows of a source and check them against the stream's columns. Stores nothing.

    Body and refusals are the same as in a registration. With ``propose``, missing columns, types,
    options of the format, event time, lateness and key are inferred, and ``registration`` is a body
    that registers the stream. The service reads the source itself; the runtime may have other
    access to it.
    """
    if propose:
        async with ctx.work.limited():
            await ctx.work.read(check_place, body.source, ctx.settings)
        return await ctx.work.look(_proposed, body, rows, ctx.settings)
    async with ctx.work.limited():
        record = await ctx.work.read(read_stream, body, ctx.settings)
    return await ctx.work.look(_look_at_source, record, rows, ctx.settings)


def _look_at_source(record: StreamRecord, most: int, settings: ServiceSettings) -> SourceTestOut:
    if record.envelope is not None:
        return SourceTestOut(outcome="not tested", limits=[_ENVELOPES])
    names = [c.name for c in record.columns]
    if record.source.format in LAKE:
        # The operation column is not a column of the database's table.
        names = [name for name, _ in record.tuple_columns]
    try:
        if record.source.format == POSTGRES:
            sample = sample_table(record, most, settings)
        else:
            sample = _taken(record.source, record.name, names, most, settings)
    except (Unreadable, InvalidInput, PlannerError) as cause:
        return _failed(cause)
    return _test_outcome(record, sample, most)


def _proposed(body: StreamIn, most: int, settings: ServiceSettings) -> SourceTestOut:
    """Complete a request from a sample, and check the sample against it.

    Raises:
        PlannerError, InvalidInput: the given part of the request can't be registered.
    """
    if body.changes is not None and body.changes.envelope is not None:
        return SourceTestOut(outcome="not tested", limits=[_ENVELOPES])
    keys, sample = list[list[str]](), None
    try:
        if body.source.format == POSTGRES:
            body, keys, notes = with_proposal(body, settings)
        else:
            sample = _taken(body.source, body.name, None, SAMPLED, settings)
            body, notes = with_columns(body, sample)
    except (Unreadable, InvalidInput, PlannerError) as cause:
        return _failed(cause)
    if not body.columns and sample is not None:
        notes = [*notes, "the columns are not known, since no rows were read: declare them"]
        return SourceTestOut(
            outcome=_outcome(sample),
            limits=sample.limits,
            unit=sample.unit,
            found=sample.found,
            notes=notes,
        )
    kinds = [(name, parse_type(kind)) for name, kind in body.declared]
    candidates = list[EventTime]()
    if sample is not None:
        candidates = event_times(kinds, sample)
        body, more = with_event_time(body, candidates)
        keys, notes = keys_of(kinds, fit(sample.rows, kinds, None, sample.form).rows), notes + more
        body = with_key(body, keys)
    record = read_stream(body, settings)
    try:
        if sample is None:
            sample = sample_table(record, SAMPLED, settings)
            candidates = event_times(kinds, sample)
    except (InvalidInput, PlannerError) as cause:
        return _failed(cause)
    found = _test_outcome(record, sample, most)
    changing = StreamKind(body.kind) is StreamKind.CHANGES
    if found.proposed_lateness is not None and body.lateness is None and not changing:
        body = body.model_copy(update={"lateness": found.proposed_lateness})
    times = [
        EventTimeOut(column=one.column, disorder=format_duration(one.disorder))
        for one in candidates
    ]
    return found.model_copy(
        update={
            "event_times": times,
            "keys": keys,
            "registration": document_of(body),
            "notes": notes,
        }
    )


def _taken(
    source: SourceRecord, name: str, columns: Wanted, most: int, settings: ServiceSettings
) -> Sample:
    own = settings.redis_url, Keys(settings.namespace).stream(name)
    return take(source, columns, most, policy_of(settings), own)


def _test_outcome(record: StreamRecord, sample: Sample, most: int) -> SourceTestOut:
    kinds = [(c.name, parse_type(c.type)) for c in record.columns]
    fitted = fit(sample.rows, kinds, record.event_time, sample.form)
    times = fitted.times
    disorder = disorder_of(times)
    misfits = [
        one.model_copy(update={"place": sample.origins[one.row] if sample.origins else None})
        for one in fitted.misfits[:MISFITS]
    ]
    return SourceTestOut(
        outcome=_outcome(sample),
        limits=sample.limits,
        unit=sample.unit,
        found=sample.found,
        places=sample.places,
        sampled=len(fitted.rows),
        rows=fitted.rows[:most],
        invalid=len(fitted.invalid),
        misfits=misfits,
        first_event_time=min(times, default=None),
        last_event_time=max(times, default=None),
        disorder=None if disorder is None else format_duration(disorder),
        proposed_lateness=None if disorder is None else format_duration(lateness_for(disorder)),
    )


def _outcome(sample: Sample) -> str:
    if not sample.looked_at:
        return "not tested"
    return "read" if sample.rows else "empty"


def _failed(cause: StructuredError) -> SourceTestOut:
    message = without_secrets(cause.message, os.environ)
    error = ProblemRecord.of(cause, message=message, field=cause.field or "source")
    return SourceTestOut(outcome="failed", error=error)
