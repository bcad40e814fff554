"""Conditions on the sink of a new run: its columns, its target, and sinks of other queries."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

from anabranch_contract.connectors.addresses import parse_path
from anabranch_contract.connectors.policy import AccessError
from anabranch_contract.connectors.sinks import CONTENT, LakeContent, SinkKind, check_sink, target
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.runs import query_of
from anabranch_contract.queries.views import change_columns
from anabranch_contract.rest.queries import SinkRecord
from anabranch_service.context import Context
from anabranch_service.errors import Conflict, InvalidInput
from anabranch_service.registry.lifecycle import LIVE, status_of
from anabranch_service.registry.records import QueryRecord


def check_columns_of_sink(sink: SinkRecord, query: JoinQuery) -> None:
    """Refuse a sink that can't hold the query's output (results, or changes of a view)."""
    post_join = query.view is not None or query.outer is not None
    if post_join and sink.to_sink().kind is SinkKind.COUNT:
        raise InvalidInput(
            "bad-sink",
            "the sink count writes no rows, which views and outer joins need",
            field="sink.format",
            remedy="leave it out",
        )
    if post_join and sink.to_sink().commit_interval:
        raise InvalidInput(
            "bad-sink",
            "versions of views and outer joins come beside the batches and are not gathered",
            field="sink.commit_interval",
            remedy="leave it out",
        )
    columns, identity = [(o.name, o.expr.type) for o in query.shown], None
    if query.view is not None:
        columns, identity = list(change_columns(query.view)), query.view.identity
    check_sink(sink.to_sink(), [(name, str(kind)) for name, kind in columns], identity)


async def check_target(ctx: Context, record: QueryRecord) -> None:
    """Refuse a sink that belongs to another query: a Redis Stream to which another query has ever
    written, or a location of another kind to which a live query writes."""
    wanted = target_of(record.sink)
    if wanted is None:
        return
    activations, progress = await ctx.store.activations(), await ctx.store.progress()
    for other in await ctx.store.queries():
        if target_of(other.sink) != wanted or query_of(other.id) == query_of(record.id):
            continue
        state = status_of(other, activations.get(other.id), progress, ctx.clock())
        if state in LIVE or record.sink.to_sink().kind is SinkKind.REDIS:
            raise Conflict(
                "sink-in-use",
                f"query {query_of(other.id)!r} writes to {wanted!r}",
                field="sink",
                remedy="choose another place",
            )


def target_of(sink: SinkRecord) -> str | None:
    """Return the path or name of a sink's target; links and ``..`` in a path are resolved."""
    spec = sink.to_sink()
    if spec.path is not None:
        with suppress(AccessError):
            place = parse_path(spec.path)
            if place.scheme == "file":
                spec = replace(spec, path=os.path.realpath(place.path))
    return target(spec)


def _place(sink: SinkRecord) -> SinkRecord:
    return sink.model_copy(update={"commit_interval": None})


def shares_sink(record: QueryRecord, before: QueryRecord) -> bool:
    """Whether a run writes to the sink of its query's previous run; refuse it if the columns of its
    output do not fit there.

    Sinks with a separate place per run always fit: files in the results directory, and an unnamed
    Redis Stream.
    """
    kind = record.sink.to_sink().kind
    apart = kind in (SinkKind.PARQUET, SinkKind.COUNT) or (
        kind is SinkKind.REDIS and target(record.sink.to_sink()) is None
    )
    if (
        apart
        or target_of(record.sink) != target_of(before.sink)
        or (target_of(record.sink) is None and _place(record.sink) != _place(before.sink))
    ):
        return False
    ours, theirs = record.normalised, before.normalised
    if record.sink.to_sink().option(CONTENT) == LakeContent.CURRENT:
        raise Conflict(
            "sink-in-use",
            "a current table has the rows of an earlier run, which another run does not delete",
            field="sink",
            remedy="give another sink",
        )
    if any(info.view is not None or info.outer is not None for info in (ours, theirs)):
        raise Conflict(
            "sink-in-use",
            "every run of a view or an outer join has its own version numbers, so it can't write "
            "to the sink of an earlier run",
            field="sink",
            remedy="give another sink, or leave it out: each run then writes its own files",
        )
    columns, earlier = ([(c.name, c.type) for c in one.output] for one in (ours, theirs))
    # Tables of a lake accept new columns, and get NULL for missing ones.
    fits = dict(columns).items() <= (dict(columns) | dict(earlier)).items()
    if columns != earlier and not (kind is SinkKind.LAKE and fits):
        raise Conflict(
            "sink-columns-differ",
            "the results have other columns than those of the earlier run in the same sink: "
            f"{', '.join(f'{name} {kind}' for name, kind in columns)}",
            field="sink",
            remedy="select the same columns, or give another sink",
        )
    return True
