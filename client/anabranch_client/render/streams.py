"""Streams as tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from anabranch_client.render.tables import facts_table, number, numbers, table_of
from anabranch_client.times import brief, moment
from anabranch_contract.protocol.registered import StreamProperties

if TYPE_CHECKING:
    from anabranch_contract.rest.streams import SourceStatusOut, StreamOut


def streams_table(streams: Sequence[StreamOut]) -> RenderableType:
    """All streams, a line each, then the errors of unread ones; fits into 80 columns."""
    table = table_of(
        "stream", "source", "event time", "input", "late", "invalid", "ahead", "unread",
        right=("input", "late", "invalid", "ahead", "unread"),
    )  # fmt: skip
    for s in streams:
        table.add_row(
            escape(s.name),
            _source_state(s.source_status),
            escape(s.event_time or "–"),
            *numbers(s.input_tuples, s.late_tuples, s.invalid_tuples, s.ahead_tuples),
            number(s.unread.pieces if s.unread is not None else None),
        )
    reasons = [
        Text.assemble((s.name, "bold red"), " is not read: ", " ".join(s.source_error.split()))
        for s in streams
        if s.source_error
    ]
    return Group(table, *reasons)


def _latest(stream: StreamOut) -> dict[str, str]:
    if stream.retention is None or stream.retention.latest is None:
        return {}
    since = "" if stream.latest_since is None else f", since batch {stream.latest_since}"
    return {"latest of each": ", ".join(stream.retention.latest) + since}


def _table(stream: StreamOut) -> dict[str, str]:
    """Facts about a stream of kind table: number of rows, and the version that queries look up."""
    if stream.table is None:
        return {}
    table = stream.table
    read = "" if table.read_at is None else f", complete {moment(table.read_at)}"
    looked_up = "none complete" if table.looked_up is None else f"{table.looked_up}{read}"
    coming = "" if table.looked_up == table.version else f"; version {table.version} is being read"
    return {"kind": "table", "rows kept": number(table.rows), "version": looked_up + coming}


def _changes(stream: StreamOut) -> dict[str, str]:
    """Kind and operation column of a stream of changes or upserts."""
    form = stream.changes
    if form is None:
        return {}
    enveloped = "" if form.envelope is None else f", from {form.envelope} envelopes"
    column = "" if form.operation is None else f", operation in column {form.operation}"
    return {"kind": f"{stream.kind}{column}{enveloped}"}


def _waiting_rows(stream: StreamOut) -> dict[str, str]:
    if stream.waiting_tuples is None:
        return {}
    oldest, behind = stream.waiting_seconds, stream.source_status.behind_bytes
    since = "" if not oldest else f", the oldest for {brief(oldest)}"
    unread = "" if behind is None else f"; {number(behind)} bytes of the database's log are unread"
    found, snapshot = {"waiting": number(stream.waiting_tuples) + since + unread}, stream.snapshot
    if snapshot is not None:
        found["snapshot"] = f"{number(snapshot.read)} of {number(snapshot.rows)} rows read"
    return found


def _source_state(status: SourceStatusOut) -> Text:
    return Text(status.state, style="bold red" if status.state == "failed" else "")


def _source(stream: StreamOut) -> str:
    """State of the source, with its beginning, the number of tuples read, and the error."""
    status = stream.source_status
    since = "" if status.since is None else f" since {moment(status.since)}"
    rows = f", {number(stream.input_tuples or 0)} tuples" if status.state == "reading" else ""
    why = status.error or stream.source_error
    new = ", ".join(status.new_columns)
    unread = f"; new columns of the table, not read: {new} (anabranch stream add-column)"
    return f"{status.state}{since}{rows}" + (f": {why}" if why else "") + unread * bool(new)


def _rejected(stream: StreamOut) -> str:
    """Numbers of rejected tuples, and whether rejected tuples are kept."""
    counts = {
        "late": stream.late_tuples,
        "invalid": stream.invalid_tuples,
        "ahead": stream.ahead_tuples,
    }
    found = ", ".join(f"{number(count)} {kind}" for kind, count in counts.items() if count)
    return f"{found or 'none'}; {'kept' if stream.keep_late else 'counted only'}"


def stream_detail(stream: StreamOut) -> RenderableType:
    """One stream with its columns."""
    columns = table_of("column", "type")
    for column in stream.columns:
        columns.add_row(escape(column.name), column.type)
    # The line "rejected tuples" already states whether they are kept.
    properties = {
        name.replace("_", " "): stream[name]
        for name, field in StreamProperties.model_fields.items()
        if name != "keep_late" and stream[name] != field.default
    }
    if stream.at_site is False:
        properties["site"] = f"{stream.site}, which has no executor"
    facts = {
        "stream": stream.name,
        **({"rows of query": stream.query} if stream.query else {}),
        **properties,
        "event time": stream.event_time,
        "lateness": stream.lateness,
        "idle after": stream.idle_timeout or "never",
        "ahead of the clock": stream.ahead_of_clock,
        "ahead of the stream": stream.ahead_of_stream,
        "rejected tuples": _rejected(stream),
        "ttl": (stream.retention.ttl if stream.retention is not None else None) or "none",
        **_latest(stream),
        "kept without queries": stream.retain,
        **_table(stream),
        **_changes(stream),
        **({"key": ", ".join(stream.key)} if stream.key else {}),
        "source": json.dumps({k: v for k, v in stream.source.document().items() if v}),
        **_waiting_rows(stream),
        **({"lost entries": number(stream.lost_entries)} if stream.lost_entries else {}),
        "status": _source(stream),
    }
    if stream.unread is None or not stream.unread.pieces:
        return Group(facts_table(facts), columns)
    facts["unread"] = f"{number(stream.unread.pieces)} parts of its input; the newest:"
    unread = table_of("source", "from", "to", "rows", "entries", "batch", "reason")
    for piece in stream.unread.last:
        last = "end" if piece.last is None else str(piece.last)
        rows, entries = ("?" if n is None else number(n) for n in (piece.rows, piece.entries))
        unread.add_row(
            escape(piece.source),
            f"{piece.unit} {piece.first}",
            last,
            rows,
            entries if piece.unit in ("entries", "offsets") else "",
            str(piece.batch),
            escape(piece.reason),
        )
    return Group(facts_table(facts), unread, columns)
