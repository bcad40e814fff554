"""Answers of the REST API, made of stored records and the runtime's reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TypeVar

from anabranch_contract.connectors.secrets import masked_options, masked_text
from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.connectors.sources import QUERY
from anabranch_contract.durations import format_duration
from anabranch_contract.plans.rations import Floor, RationSchedule
from anabranch_contract.protocol.activations import Activation, LeftRows, of_outer_join
from anabranch_contract.protocol.intake import SourceStatus
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Progress, Rationing
from anabranch_contract.protocol.registered import SourceRecord, StreamRecord
from anabranch_contract.protocol.table_progress import TableProgress
from anabranch_contract.queries.joins import StreamKind
from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.documents import iso_time
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_contract.rest.queries import (
    ActivationOut,
    PastOut,
    QueryOut,
    RationedOut,
    RunOut,
    SinkRecord,
    VisibleFrom,
)
from anabranch_contract.rest.streams import (
    ChangesIn,
    RetentionOut,
    SourceStatusOut,
    StreamOut,
    TableOut,
)
from anabranch_service.presenters.missed import PartNow, missed_rows, with_parts
from anabranch_service.presenters.statistics import stream_statistics_out
from anabranch_service.registry.describe import bounds_between
from anabranch_service.registry.lifecycle import LIVE, Status, results_of, status_of
from anabranch_service.registry.publishing.approvals import Approvals
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.source_status import SourceStates

#: Query -> its floor (required completeness), and whether the present CPU budget is too small.
Floors = Mapping[str, tuple[Floor, bool]]


def _retention_out(record: StreamRecord) -> RetentionOut | None:
    if record.kind is StreamKind.TABLE or (record.ttl is None and not record.latest):
        return None
    ttl = None if record.ttl is None else format_duration(record.ttl)
    return RetentionOut(ttl=ttl, latest=list(record.latest) or None)


def _status_out(status: SourceStatus) -> SourceStatusOut:
    since = datetime.fromtimestamp(status.since, UTC) if status.since else None
    return SourceStatusOut(
        state=status.state.value,
        error=status.error,
        since=since,
        behind_bytes=status.behind,
        new_columns=list(status.new_columns),
    )


def _bound(micros: int | None) -> str:
    return "unbounded" if micros is None else format_duration(micros)


def _retain(micros: int | None) -> str:
    return "all" if micros is None else format_duration(micros) if micros else "none"


def stream_out(
    record: StreamRecord,
    progress: Progress | None,
    sources: SourceStates,
    last: Snapshot | None = None,
) -> StreamOut:
    """Return a stream, with the runtime's counts, and its measurements in the epoch ``last``."""
    measured = None if last is None else last.measured.get(record.name)
    counts = progress.streams.get(record.name, {}) if progress is not None else {}
    intake = progress.input.intake.get(record.name) if progress is not None else None
    status = sources.status(record)
    # Without a living runtime the last count of waiting tuples is out of date.
    waiting = intake if sources.alive else None
    sites = progress.input.sites if progress is not None and record.site else ()
    return StreamOut.of(
        record,
        at_site=record.site in sites if sites else None,
        lateness=_bound(record.lateness),
        idle_timeout=None if record.idle_timeout is None else format_duration(record.idle_timeout),
        ahead_of_clock=_bound(record.ahead_of_clock),
        ahead_of_stream=_bound(record.ahead_of_stream),
        retention=_retention_out(record),
        retain=_retain(record.retain),
        kind=record.kind.value,
        changes=None
        if record.changes is None or record.source.format == QUERY
        else ChangesIn.of(record.changes),
        key=list(record.key) or None,
        table=_table_out(record, progress),
        latest_since=progress.input.latest_since.get(record.name) if progress is not None else None,
        source=masked(record.source),
        query=record.name if record.source.format == QUERY else None,
        waiting_tuples=None if waiting is None else waiting.waiting,
        waiting_seconds=None if waiting is None else waiting.seconds,
        snapshot=None if waiting is None else waiting.snapshot,
        lost_entries=None if intake is None else intake.lost,
        source_error=status.error or (None if intake is None else intake.error),
        source_status=_status_out(status),
        unread=None if intake is None else intake.unread,
        input_tuples=counts.get("input"),
        late_tuples=counts.get("late"),
        invalid_tuples=counts.get("invalid"),
        ahead_tuples=counts.get("ahead"),
        watermark=None
        if progress is None
        else iso_time(progress.telemetry.watermarks.get(record.name)),
        statistics=None if measured is None else stream_statistics_out(measured),
    )


def _table_out(record: StreamRecord, progress: Progress | None) -> TableOut | None:
    if record.kind is not StreamKind.TABLE:
        return None
    known = None if progress is None else progress.input.tables.get(record.name)
    found = known or TableProgress()
    read_at = None if found.read_at is None else iso_time(int(found.read_at * 1e6))
    return TableOut(
        version=record.version, looked_up=found.version or None, read_at=read_at, rows=found.rows
    )


_Place = TypeVar("_Place", SourceRecord, SinkRecord)


def masked(place: _Place) -> _Place:
    """Return a source or a sink, with its secrets masked."""
    if not place.options and place.path is None:
        return place
    changed = {
        "options": masked_options(place.options),
        "path": None if place.path is None else masked_text(place.path),
    }
    then = getattr(place, "then", None)
    if then is not None:
        changed["then"] = masked(then)
    return place.model_copy(update=changed)


def brief(query: QueryOut) -> QueryOut:
    """Return a query without its statement, and of its normal form the aliases and the view."""
    full = query.normalised
    aliases = [alias.model_copy(update={"filter": []}) for alias in full.aliases]
    lists = ("classes", "bounds", "unbounded", "residuals", "output", "branches", "notes")
    left_out: dict[str, object] = {name: [] for name in lists}
    normalised = full.model_copy(update={**left_out, "aliases": aliases, "outer": None})
    return query.model_copy(update={"sql": None, "query": None, "normalised": normalised})


def query_out(
    record: QueryRecord,
    activation: Activation | None,
    progress: Progress | None,
    sources: SourceStates,
    now: datetime,
    floors: Floors | None = None,
    left: Activation | None = None,
    approvals: Approvals | None = None,
    readers: Iterable[str] = (),
    ended: Mapping[str, str] = MappingProxyType({}),
    parts: Sequence[PartNow] = (),
) -> QueryOut:
    """Return a query, with its status and the properties fixed by its activation.

    Args:
        floors: result of :func:`floors_of`.
        left: activation of the join that produces the left rows of an outer join.
        approvals: the held plan, which may be the reason why the query is pending.
        readers: the queries that read it.
        ended: query that it reads -> why that query produces no more rows.
        parts: the parts of its statement.
    """
    status = status_of(record, activation, progress, now)
    joined = 0 if activation is None else activation.results + (0 if left is None else left.results)
    streams = {a.stream for a in record.normalised.aliases} if status in LIVE else set()
    return QueryOut.of(
        record,
        id=query_of(record.id),
        name=query_of(record.id),
        run=record.id,
        status=status.value,
        waits_because=approvals.reason(record.id)
        if approvals is not None and status is Status.PENDING
        else None,
        sink=masked(record.sink),
        sink_problem=None if progress is None else progress.sinks.get(record.id),
        results_at=results_at(record, progress),
        input_problems={**sources.failed_among(streams), **ended},
        **_activation(with_parts(activation, parts)),
        missed=missed_rows(record.normalised, activation, progress, parts)
        if status in LIVE
        else [],
        past_results=None if activation is None else _past(activation),
        earlier=[]
        if activation is None
        else [_ended(a, record.normalised) for a in activation.earlier],
        results=results_of(record, activation, progress),
        joined_rows=None if activation is None or not record.normalised.post_join else joined,
        reads=list(record.reads),
        read_by=list(readers),
        part_of=query_of(record.part_of) or None,
        rationed=_rationed(record, activation, left, progress, (floors or {}).get(record.id)),
        problem=record.rejected,
        failure=None if activation is None else activation.failure,
    )


def run_out(
    record: QueryRecord, activation: Activation | None, progress: Progress | None, now: datetime
) -> RunOut:
    """Make the answer on a run of a query."""
    found = _activation(activation)
    return RunOut.of(
        record,
        run=record.id,
        status=status_of(record, activation, progress, now).value,
        results=results_of(record, activation, progress),
        results_at=results_at(record, progress),
        **{name: found[name] for name in _OF_RUN},
    )


#: Fields of an activation shown in the list of runs.
_OF_RUN = ("activated_batch", "expired_batch", "complete_from", "complete")


def results_at(record: QueryRecord, progress: Progress | None) -> str | None:
    """Return the location of a run's results, without secrets; None if results are only counted."""
    sink = masked(record.sink).to_sink()
    if sink.kind is SinkKind.COUNT:
        return None
    if sink.kind is SinkKind.REDIS:
        return f"Redis Stream {sink.option('stream') or f'results:{record.id}'}"
    if sink.path is not None:
        return sink.path
    if sink.kind in (SinkKind.PARQUET, SinkKind.FILES):
        home = "" if progress is None else progress.results_home
        return f"{home or '<results directory>'}/{record.id}"
    named = (sink.option(name) for name in ("topic", "dbtable", "table"))
    return " ".join((sink.format, *(name for name in named if name is not None)))


def floors_of(progress: Progress | None, schedule: RationSchedule | None) -> Floors:
    """Return query -> its floor (required completeness), and whether the budget is too small."""
    rationing = Rationing() if progress is None else progress.rationing
    floors = () if schedule is None else schedule.floors
    return {floor.query: (floor, floor.broken(rationing.budget)) for floor in floors}


def _rationed(
    record: QueryRecord,
    activation: Activation | None,
    left: Activation | None,
    progress: Progress | None,
    known: tuple[Floor, bool] | None,
) -> RationedOut | None:
    """Return a query's required completeness and effects of load shedding; None without either."""
    alias = {a.label: a.alias for a in record.normalised.aliases}
    rations = [] if progress is None else progress.rationing.rations
    shares = {alias[r.start]: r.share for r in rations if r.query == record.id and r.start in alias}
    floor, broken = (None, False) if known is None else known
    if activation is None:
        if floor is None:
            return None
        activation = Activation(0, {})
    outer = record.normalised.outer
    left_rows = None if progress is None else progress.rationing.left_rows.get(record.id)
    if outer is not None and left is not None:
        left_rows = left_rows or LeftRows(JoinKind(outer.kind))
        activation = of_outer_join(activation, left, left_rows)
    undecided = 0 if left_rows is None else left_rows.undecided
    left_out = activation.withheld + activation.owed + activation.blind + undecided
    if not (left_out or activation.caught_up or shares or floor):
        return None
    return RationedOut.of(
        activation,
        shares=shares,
        floor=None if floor is None else floor.completeness,
        floor_needs=None if floor is None else floor.needs,
        floor_broken=broken,
        left_withheld=0.0 if left_rows is None else left_rows.missing,
        undecided=undecided,
    )


def _past(activation: Activation) -> PastOut | None:
    past = activation.past
    if past is None:
        return None
    return PastOut(status=past.status.value, results=past.results, rows=past.rows)


def _activation(activation: Activation | None) -> dict[str, Any]:
    """Return the fields of an answer that come from the activation; all None without one."""
    if activation is None:
        absent = ("activated_batch", "expired_batch", "visible_from", "complete_from", "complete")
        return dict.fromkeys(absent)
    return {
        "activated_batch": activation.activated_batch,
        "expired_batch": activation.expired_batch,
        "visible_from": {
            alias: VisibleFrom(batch=seen.batch, event_time=iso_time(seen.event_time))
            for alias, seen in sorted(activation.visible_from.items())
        },
        "complete_from": iso_time(activation.complete_from),
        "complete": activation.complete,
    }


def _ended(activation: Activation, meaning: NormalisedInfo) -> ActivationOut:
    """Make the answer on an earlier activation of a query with normal form ``meaning``."""
    aliases = [a.alias for a in meaning.aliases]
    return ActivationOut(
        **_activation(activation),
        bounds=list(bounds_between(aliases, activation.retention)),
        results=activation.results,
    )
