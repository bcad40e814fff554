"""Proposal of a registration from the rows of a source: missing fields are filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations
from typing import Any

from anabranch_contract.durations import format_duration
from anabranch_contract.queries.joins import StreamKind
from anabranch_contract.queries.types import FLOATING, NESTED, TIMESTAMPS, DataType, parse_type
from anabranch_contract.rest.streams import StreamIn
from anabranch_service.streaming.samples.disorder import disorder_of
from anabranch_service.streaming.samples.fit import fit
from anabranch_service.streaming.samples.infer import infer
from anabranch_service.streaming.samples.sample import Sample

#: Words in names of columns that suggest an event time, and a key.
_TIME_WORDS = frozenset({"ts", "time", "timestamp", "at", "datetime", "event", "created", "date"})
_KEY_WORDS = frozenset({"id", "key", "uuid", "number", "no", "code", "pk"})
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
#: Ratio of disorder to time span above which times count as unordered.
_DISORDERLY = 0.5
#: Maximum number of columns among which keys of two columns are sought.
_PAIRED = 8
#: Minimum number of rows from which a key can be inferred.
_FEWEST = 2


@dataclass(frozen=True, slots=True)
class EventTime:
    """A timestamp column without nulls in a sample.

    Attributes:
        disorder: greatest delay behind an earlier row, in microseconds.
        ordered: whether the rows are sorted by time, apart from small delays.
    """

    column: str
    disorder: int
    ordered: bool


def with_columns(body: StreamIn, sample: Sample) -> tuple[StreamIn, list[str]]:
    """Complete a request with the columns and options of a sample; declared ones do not change.

    Returns:
        The request, whose columns are empty if they are not known, and notes.
    """
    found = infer(sample)
    columns = {name: str(kind) for name, kind in found.columns}
    given = dict(body.declared)
    beyond = [name for name in given if name not in columns] if sample.rows else []
    notes = [f"column {name!r} is declared, but the sample does not have it" for name in beyond]
    options = {**body.source.options, **sample.options}
    source = body.source.model_copy(update={"options": options})
    changed = {"columns": columns | given, "source": source}
    return body.model_copy(update=changed), [*sample.notes, *found.notes, *notes]


def event_times(columns: Sequence[tuple[str, DataType]], sample: Sample) -> list[EventTime]:
    """Return the columns that could be the event time, the likeliest first: ordered columns before
    others, and among equals columns whose name suggests a time."""
    found = list[EventTime]()
    whole = sum(not isinstance(row, str) for row in sample.rows)
    for name, kind in columns:
        if kind.kind not in TIMESTAMPS:
            continue
        times = fit(sample.rows, [(name, kind)], name, sample.form).times
        disorder = disorder_of(times)
        if disorder is not None and len(times) == whole:
            span = (max(times) - min(times)) // timedelta(microseconds=1)
            found.append(EventTime(name, disorder, disorder <= _DISORDERLY * span))
    return sorted(found, key=lambda one: (
        not one.ordered, not _words(one.column) & _TIME_WORDS, one.disorder,
    ))  # fmt: skip


def _words(name: str) -> set[str]:
    """Return the words of a proposed column's name in snake or camel case, lowered."""
    return {word.lower() for word in _WORD.findall(name)}


def with_event_time(body: StreamIn, found: Sequence[EventTime]) -> tuple[StreamIn, list[str]]:
    """Complete a request with an event time if it may have one; return it with notes."""
    timeless = StreamKind(body.kind) in (StreamKind.TABLE, StreamKind.UPSERT)
    if timeless or "event_time" in body.model_fields_set:
        return body, []
    if not found:
        return body, ["no event time: no timestamp column has a value in all checked rows"]
    first = found[0]
    if first.ordered:
        return body.model_copy(update={"event_time": first.column}), []
    note = (
        f"no event time: {first.column!r} goes back by {format_duration(first.disorder)}, more than"
        " half of its span; name it as the event time if late rows may be rejected"
    )
    return body, [note]


def with_key(body: StreamIn, keys: Sequence[list[str]]) -> StreamIn:
    """Complete a request for a table or upserts with the first of ``keys``."""
    keyed = StreamKind(body.kind) in (StreamKind.TABLE, StreamKind.UPSERT)
    return body.model_copy(update={"key": keys[0]}) if keyed and keys and not body.key else body


def keys_of(
    columns: Sequence[tuple[str, DataType]], rows: Sequence[Mapping[str, Any]]
) -> list[list[str]]:
    """Return the columns, or else pairs of columns, whose values are never null and all different.
    Columns whose names suggest a key come first.

    >>> kinds = [("a", parse_type("int")), ("id", parse_type("string"))]
    >>> keys_of(kinds, [{"a": 1, "id": "x"}, {"a": 2, "id": "y"}])
    [['id'], ['a']]
    """
    if len(rows) < _FEWEST:
        return []
    usable = [
        name
        for name, kind in columns
        if kind.kind not in NESTED | FLOATING | TIMESTAMPS
        and all(row[name] is not None for row in rows)
    ]
    usable.sort(key=lambda name: not _words(name) & _KEY_WORDS)

    def differ(*names: str) -> bool:
        return len({tuple(row[name] for name in names) for row in rows}) == len(rows)

    single = [[name] for name in usable if differ(name)]
    return single or [list(pair) for pair in combinations(usable[:_PAIRED], 2) if differ(*pair)]


def document_of(body: StreamIn) -> dict[str, Any]:
    """Return a request as JSON, without fields that have their defaults."""
    found = body.model_dump(mode="json", exclude_defaults=True)
    columns = [{"name": name, "type": str(parse_type(kind))} for name, kind in body.declared]
    source = {"format": body.source.format, **found.get("source", {})}
    return {**found, "columns": columns, "source": source}
