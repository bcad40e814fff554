"""``POST /v1/streams:test``: test a stream's source before registration."""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import Query

from anabranch_contract.connectors.postgres.options import POSTGRES
from anabranch_contract.connectors.secrets import without_secrets
from anabranch_contract.durations import format_duration
from anabranch_contract.errors import PlannerError, StructuredError
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.types import parse_type
from anabranch_contract.rest.queries import ProblemRecord
from anabranch_contract.rest.source_tests import SourceTestOut
from anabranch_contract.rest.streams import StreamIn
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.errors import InvalidInput
from anabranch_service.registry.permitted import policy_of
from anabranch_service.routes.streams import read_stream
from anabranch_service.settings import ServiceSettings
from anabranch_service.streaming.postgres import sample_table
from anabranch_service.streaming.samples.disorder import disorder_of, lateness_for
from anabranch_service.streaming.samples.fit import fit
from anabranch_service.streaming.samples.sample import Sample, Unreadable
from anabranch_service.streaming.samples.take import take

router = guarded_router("/v1", tag="streams")

#: Rows read by a test: default and maximum.
ROWS, MOST_ROWS = 20, 200
#: Most invalid values listed in an answer.
MISFITS = 100


@router.post("/streams:test")
@needs(Need.EDIT)
async def try_source(
    body: StreamIn,
    ctx: Ctx,
    rows: Annotated[int, Query(ge=1, le=MOST_ROWS, description="Rows to test.")] = ROWS,
) -> SourceTestOut:
    """Read a few rows of a source and check them against the stream's columns. Stores nothing.

    Body and refusals are the same as in a registration. The service reads the source itself; the
    runtime may have other access to it.
    """
    async with ctx.work.limited():
        record = await ctx.work.read(read_stream, body, ctx.settings)
    return await ctx.work.look(_look, record, rows, ctx.settings)


def _look(record: StreamRecord, most: int, settings: ServiceSettings) -> SourceTestOut:
    if record.envelope is not None:
        why = "the service reads no change envelopes; register the stream and see invalid_tuples"
        return SourceTestOut(outcome="not tested", limits=[why])
    own = settings.redis_url, Keys(settings.namespace).stream(record.name)
    names = [c.name for c in record.columns]
    try:
        if record.source.format == POSTGRES:
            sample = sample_table(record, most, settings)
        else:
            sample = take(record.source, names, most, policy_of(settings), own)
    except (Unreadable, InvalidInput, PlannerError) as cause:
        return _failed(cause)
    kinds = [(c.name, parse_type(c.type)) for c in record.columns]
    fitted = fit(sample.rows, kinds, record.event_time, sample.form)
    times = fitted.times
    disorder = disorder_of(times)
    return SourceTestOut(
        outcome=_outcome(sample),
        limits=sample.limits,
        unit=sample.unit,
        found=sample.found,
        places=sample.places,
        rows=fitted.rows,
        invalid=len(fitted.invalid),
        misfits=fitted.misfits[:MISFITS],
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
