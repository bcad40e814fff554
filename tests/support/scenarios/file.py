"""Parser of ``SCENARIO.yaml`` and ``report.json`` of ``anabranch replay``, for the oracle.

It is a second parser on purpose, so that the oracle shares no code with the product.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from anabranch_contract.protocol.activations import (
    Activation,
    PastResults,
    PastStatus,
    Visibility,
)

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_ISO = re.compile(r"^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?$")


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """A recorded stream of a scenario; durations are in microseconds.

    Attributes:
        lateness: allowed delay; None: unbounded.
        cuts: number of the first row after each batch, if batches differ in length (local engine
            only).
        ttls: (batch, ttl) in order, each set before the batch; None: no ttl from then on.
        latest: (batch, key) in order, each set before the batch: the stream keeps the latest row
            per key.
        ahead_of_stream: bound on event times in the future; None: unbounded.
        retain: duration for which rows are retained; None: for ever, 0: not.
        operation: column of the operation of a stream of changes.
    """

    path: Path
    event_time: str | None
    lateness: int | None
    rows_per_batch: int
    cuts: tuple[int, ...] | None = None
    idle_timeout: int | None = None
    keep_late: bool = False
    ttls: tuple[tuple[int, int | None], ...] = ()
    latest: tuple[tuple[int, tuple[str, ...]], ...] = ()
    ahead_of_stream: int | None = None
    retain: int | None = 0
    table: bool = False
    key: tuple[str, ...] = ()
    operation: str | None = None
    changes: bool = False

    @property
    def has_no_times(self) -> bool:
        """Whether rows have no event time because all of a table's current rows join."""
        return self.table or (self.changes and bool(self.key))


@dataclass(frozen=True, slots=True)
class QueryEntry:
    """A query of a scenario; ``window``: microseconds for every alias, or one per alias."""

    sql: str
    window: int | Mapping[str, int] | None
    register_at: int
    expire_at: int | None

    def window_of(self, alias: str) -> int | None:
        """Return the window on ``alias`` in microseconds; None if it has none."""
        if not isinstance(self.window, Mapping):
            return self.window
        return {called(path): width for path, width in self.window.items()}.get(alias)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario file."""

    streams: Mapping[str, StreamEntry]
    queries: Mapping[str, QueryEntry]
    every: int

    def next_epoch(self, batch: int) -> int:
        """Return the first batch at which a call made before ``batch`` takes effect."""
        return 0 if batch == 0 else (batch // self.every + 1) * self.every

    def ttls(self, start: int) -> dict[str, int]:
        """Map streams to their ttls, by the calls that take effect up to batch ``start``."""
        found = {}
        for name, stream in self.streams.items():
            said = [ttl for batch, ttl in stream.ttls if self.next_epoch(batch) <= start]
            if said and said[-1] is not None:
                found[name] = said[-1]
        return found

    def latest(self, start: int) -> dict[str, tuple[str, ...]]:
        """Map streams that keep the latest row per key at ``start`` to their sorted keys."""
        found = {}
        for name, stream in self.streams.items():
            said = [key for batch, key in stream.latest if self.next_epoch(batch) <= start]
            if said and said[-1]:
                found[name] = tuple(sorted(said[-1]))
        return found

    def span(self, query: str, batches: int) -> tuple[int | None, int | None]:
        """Return when a query must be active: its first batch, and the batch after its last.

        (None, None): never; None as the end: until the end of the scenario.
        """
        entry = self.queries[query]
        begins = self.next_epoch(entry.register_at)
        ends = batches if entry.expire_at is None else self.next_epoch(entry.expire_at)
        if begins >= min(ends, batches):
            return None, None
        return begins, None if ends >= batches else ends


def called(path: str) -> str:
    """Return an alias without its path: ``recent.a`` is the ``a`` of the query ``recent`` in FROM.

    In scenarios the streams of a query have different names.
    """
    return path.rpartition(".")[2]


def micros(duration: str) -> int:
    """Convert ``"<int> <unit>"`` or an ISO 8601 duration to microseconds.

    >>> micros("5 minutes") == micros("PT5M") == 300_000_000
    True
    """
    match = _ISO.match(duration)
    if match:
        days, hours, minutes, seconds = (int(x or 0) for x in match.groups())
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return span // timedelta(microseconds=1)
    amount, unit = duration.split()
    return int(amount) * _UNITS[unit.rstrip("s")]


def instant(text: str) -> int:
    """Convert an ISO 8601 time with ``Z`` to microseconds since 1970.

    >>> instant("1970-01-01T00:00:01.5Z")
    1500000
    """
    assert text.endswith("Z"), f"{text} is not in UTC"
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def read_document(path: Path) -> dict[str, Any]:
    """Return the document of a scenario file."""
    document = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    assert isinstance(document, dict)
    return document


def read_scenario(path: Path) -> Scenario:
    """The scenario in the YAML file ``path``; data paths are relative to it."""
    doc = read_document(path)
    return Scenario(
        {name: _stream(path.parent, s) for name, s in doc["streams"].items()},
        {name: _query(q) for name, q in doc["queries"].items()},
        doc["epochs"]["every"],
    )


def _stream(folder: Path, doc: Mapping[str, Any]) -> StreamEntry:
    lateness = doc.get("lateness", "unbounded")
    retention = _retention(doc.get("retention"))
    return StreamEntry(
        folder / doc["path"],
        doc.get("event_time"),
        None if lateness == "unbounded" else micros(lateness),
        doc["rows_per_batch"],
        tuple(doc["cuts"]) if "cuts" in doc else None,
        micros(doc["idle_timeout"]) if "idle_timeout" in doc else None,
        doc.get("keep_late", False),
        tuple((b, micros(r["ttl"]) if "ttl" in r else None) for b, r in retention),
        tuple((b, tuple(r.get("latest", ()))) for b, r in retention),
        _ahead(doc),
        _retain(doc),
        doc.get("kind") == "table",
        tuple(doc.get("key") or ()),
        doc["changes"]["operation"] if "changes" in doc else None,
        doc.get("kind") in ("changes", "upsert"),
    )


def _retain(doc: Mapping[str, Any]) -> int | None:
    """Return the duration for which a stream is retained; a table is retained for ever."""
    text = doc.get("retain", "all" if doc.get("kind") == "table" else "none")
    return {"all": None, "none": 0}[text] if text in ("all", "none") else micros(text)


def _ahead(doc: Mapping[str, Any]) -> int | None:
    """Return the limit of future event times in microseconds, with the service's defaults; None: no
    limit.
    """
    bounded = "event_time" in doc and doc.get("lateness", "unbounded") != "unbounded"
    text = doc.get("ahead_of_stream", "366 days" if bounded else "unbounded")
    return None if text == "unbounded" else micros(text)


def _retention(doc: Mapping[Any, Any] | None) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the calls on retention, in order."""
    if doc is None:
        return []
    calls = {0: doc} if {"ttl", "latest"} & set(doc) else doc
    return [(batch, said or {}) for batch, said in sorted(calls.items())]


def _query(doc: Mapping[str, Any]) -> QueryEntry:
    window = doc.get("window")
    if isinstance(window, dict):
        window = {alias: micros(width) for alias, width in window.items()}
    elif window is not None:
        window = micros(window)
    return QueryEntry(doc["sql"], window, doc.get("register_at", 0), doc.get("expire_at"))


def read_report(folder: Path) -> dict[str, Any]:
    """Read the report that a replay wrote into ``folder``."""
    report = json.loads((folder / "report.json").read_text())
    assert isinstance(report, dict)
    return report


def activation_in(report: Mapping[str, Any], query: str) -> Activation | None:
    """Return the activation of a query in the report; None if it never became active."""
    doc = report["queries"][query]
    return None if doc.get("activated_batch") is None else _activation(doc)


def _activation(doc: Mapping[str, Any]) -> Activation:
    return Activation(
        activated_batch=doc["activated_batch"],
        expired_batch=doc.get("expired_batch"),
        visible_from={
            alias: Visibility(
                v["batch"], None if v["event_time"] is None else instant(v["event_time"])
            )
            for alias, v in doc["visible_from"].items()
        },
        results=doc.get("results", 0),
        earlier=tuple(map(_activation, doc.get("earlier", ()))),
        past=None if doc.get("past") is None else PastResults(PastStatus(doc["past"]["status"])),
    )
