"""From stored records, and what the runtime reports, to the answers of the REST API."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

from anabranch_contract.connectors.secrets import masked_options, masked_text
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.intake import SourceStatus, Unread
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Heartbeat, Progress
from anabranch_contract.rest.documents import iso_time
from anabranch_contract.rest.epochs import EpochOut, EpochSummary, PublishedEpoch, RuntimeOut
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_contract.rest.queries import (
    ActivationOut,
    FailureOut,
    ProblemOut,
    QueryOut,
    SinkRecord,
    VisibleFrom,
)
from anabranch_contract.rest.streams import (
    FLAGS,
    ColumnOut,
    RetentionOut,
    SourceOut,
    SourceStatusOut,
    StreamOut,
    UnreadOut,
    UnreadPieceOut,
)
from anabranch_planner.sql.durations import format_duration
from anabranch_service.presenters.statistics import stream_statistics_out
from anabranch_service.registry.describe import bounds_between
from anabranch_service.registry.lifecycle import LIVE, results_of, status_of
from anabranch_service.registry.records import EpochRecord, QueryRecord, StreamRecord
from anabranch_service.registry.source_status import Sources


def _retention_out(record: StreamRecord) -> RetentionOut | None:
    if record.ttl is None and not record.latest:
        return None
    ttl = None if record.ttl is None else format_duration(record.ttl)
    return RetentionOut(ttl=ttl, latest=list(record.latest) or None)


def _status_out(status: SourceStatus) -> SourceStatusOut:
    since = datetime.fromtimestamp(status.since, UTC) if status.since else None
    return SourceStatusOut(state=status.state.value, error=status.error, since=since)


def _bound(micros: int | None) -> str:
    return "unbounded" if micros is None else format_duration(micros)


def stream_out(
    record: StreamRecord,
    progress: Progress | None,
    sources: Sources,
    last: Snapshot | None = None,
) -> StreamOut:
    """A stream, what the runtime has counted on it, and its figures in the ``last`` epoch."""
    measured = None if last is None else last.measured.get(record.name)
    counts = progress.streams.get(record.name, {}) if progress is not None else {}
    intake = progress.intake.get(record.name) if progress is not None else None
    status = sources.status(record)
    return StreamOut(
        name=record.name,
        columns=[ColumnOut(name=c.name, type=c.type) for c in record.columns],
        event_time=record.event_time,
        lateness=_bound(record.lateness),
        idle_timeout=None if record.idle_timeout is None else format_duration(record.idle_timeout),
        **record.model_dump(include=FLAGS),
        ahead_of_clock=_bound(record.ahead_of_clock),
        ahead_of_stream=_bound(record.ahead_of_stream),
        retention=_retention_out(record),
        latest_since=progress.latest_since.get(record.name) if progress is not None else None,
        source=_source_out(record),
        waiting_tuples=None if intake is None else intake.waiting,
        waiting_seconds=None if intake is None else intake.seconds,
        lost_entries=None if intake is None else intake.lost,
        source_error=status.error or (None if intake is None else intake.error),
        source_status=_status_out(status),
        unread=None if intake is None else _unread_out(intake.unread),
        input_tuples=counts.get("input"),
        late_tuples=counts.get("late"),
        invalid_tuples=counts.get("invalid"),
        ahead_tuples=counts.get("ahead"),
        statistics=None if measured is None else stream_statistics_out(measured),
    )


def _unread_out(unread: Unread) -> UnreadOut:
    return UnreadOut(pieces=unread.pieces, last=[UnreadPieceOut(**asdict(p)) for p in unread.last])


def _source_out(record: StreamRecord) -> SourceOut:
    """A source; plain secrets that an earlier release has taken are masked."""
    source = record.source
    return SourceOut(
        format=source.format,
        path=None if source.path is None else masked_text(source.path),
        options=masked_options(source.options),
        rows_per_batch=source.rows_per_batch,
    )


def sink_out(sink: SinkRecord) -> SinkRecord:
    """A sink; plain secrets that an earlier release has taken are masked."""
    path = None if sink.path is None else masked_text(sink.path)
    return sink.model_copy(update={"options": masked_options(sink.options), "path": path})


def query_out(
    record: QueryRecord,
    activation: Activation | None,
    progress: Progress | None,
    sources: Sources,
    now: datetime,
) -> QueryOut:
    """A query, its status and what the runtime fixed at its activation."""
    status = status_of(record, activation, progress, now)
    streams = {a.stream for a in record.normalised.aliases} if status in LIVE else set()
    return QueryOut(
        id=record.id,
        status=status.value,
        sql=record.sql,
        query=record.query,
        window=record.window,
        sink=sink_out(record.sink),
        sink_problem=None if progress is None else progress.sinks.get(record.id),
        input_problems=sources.failed_among(streams),
        priority=record.priority,
        created_at=record.created_at,
        expires_at=record.expires_at,
        normalised=record.normalised,
        first_epoch=record.first_epoch,
        last_epoch=record.last_epoch,
        activated_batch=None if activation is None else activation.activated_batch,
        expired_batch=None if activation is None else activation.expired_batch,
        visible_from=None if activation is None else _visible_from(activation),
        complete_from=None if activation is None else iso_time(activation.complete_from),
        complete=None if activation is None else activation.complete,
        earlier=[]
        if activation is None
        else [_ended(a, record.normalised) for a in activation.earlier],
        results=results_of(record.id, activation, progress),
        problem=None if record.rejected is None else ProblemOut(**record.rejected.model_dump()),
        failure=None
        if activation is None or activation.failure is None
        else FailureOut(**asdict(activation.failure)),
    )


def _visible_from(activation: Activation) -> dict[str, VisibleFrom]:
    return {
        alias: VisibleFrom(batch=seen.batch, event_time=iso_time(seen.event_time))
        for alias, seen in sorted(activation.visible_from.items())
    }


def _ended(activation: Activation, meaning: NormalisedInfo) -> ActivationOut:
    """An earlier activation of the query that means ``meaning``."""
    assert activation.expired_batch is not None
    aliases = [a.alias for a in meaning.aliases]
    return ActivationOut(
        activated_batch=activation.activated_batch,
        expired_batch=activation.expired_batch,
        bounds=None
        if activation.retention is None
        else list(bounds_between(aliases, activation.retention)),
        visible_from=_visible_from(activation),
        complete_from=iso_time(activation.complete_from),
        complete=activation.complete,
        results=activation.results,
    )


def first_batch(epoch: int, progress: Progress | None) -> int | None:
    """The first batch of ``epoch``, or None while the runtime has not started it."""
    return None if progress is None else progress.epoch_starts.get(str(epoch))


def epoch_out(record: EpochRecord, progress: Progress | None) -> EpochOut:
    """A published epoch in full."""
    shown = {name: getattr(record, name) for name in PublishedEpoch.model_fields}
    return EpochOut(**shown, first_batch=first_batch(record.epoch, progress))


def epoch_summary(record: EpochRecord, progress: Progress | None) -> EpochSummary:
    """A published epoch as a line of a list."""
    names = EpochSummary.model_fields.keys() - {"first_batch", "queries"}
    return EpochSummary(
        first_batch=first_batch(record.epoch, progress),
        queries=list(record.queries),
        **{name: getattr(record, name) for name in names},
    )


def runtime_out(
    progress: Progress | None, heartbeat: Heartbeat | None, sources: Sources
) -> RuntimeOut | None:
    """How far the runtime is, in short, and whether it is alive."""
    if progress is None:
        return None
    return RuntimeOut(
        state=progress.state,
        stale=heartbeat is None,
        committed=progress.committed,
        epoch=progress.epoch,
        batch_seconds=progress.batch_seconds,
        processing_seconds=progress.processing_seconds,
        state_bytes=progress.state_bytes,
        input_tuples=sum(c.get("input", 0) for c in progress.streams.values()),
        late_tuples=sum(c.get("late", 0) for c in progress.streams.values()),
        ahead_tuples=sum(c.get("ahead", 0) for c in progress.streams.values()),
        exhausted=progress.exhausted,
        error=progress.error,
        backfill=progress.backfill,
        waiting_tuples=sum(i.waiting for i in progress.intake.values()),
        row_limit=progress.row_limit,
        private_bytes=progress.private_bytes,
        memory_limit=progress.memory_limit,
        unread_pieces={
            n: i.unread.pieces for n, i in sorted(progress.intake.items()) if i.unread.pieces
        },
        source_errors=sources.failed(),
    )
