"""State of each stream's source, from the runtime's reports and its heartbeat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anabranch_contract.protocol.intake import SourceState, SourceStatus
from anabranch_contract.protocol.registered import StreamRecord

#: Maximum number of streams named in a readiness summary, and of characters of each reason.
_NAMED, _REASON = 3, 400


@dataclass(frozen=True, slots=True)
class SourceStates:
    """States of the streams' sources.

    Attributes:
        reported: stream -> last report of the runtime.
        alive: whether the runtime is running; if not, the reports are outdated.
    """

    reported: Mapping[str, SourceStatus]
    alive: bool

    def status(self, record: StreamRecord) -> SourceStatus:
        """Return the current state of a stream's source."""
        found = self.reported.get(record.name)
        if found is None or found.registration != record.registration:
            return SourceStatus(record.registration)
        if not self.alive:
            return SourceStatus(found.registration, SourceState.STOPPED, found.error, found.since)
        return found

    def failed(self) -> dict[str, str]:
        """Return stream -> reason why its source can't be read at present, in order of names."""
        if not self.alive:
            return {}
        return {
            name: found.error or "its source can't be read"
            for name, found in sorted(self.reported.items())
            if found.state is SourceState.FAILED
        }

    def failed_among(self, streams: Iterable[str]) -> dict[str, str]:
        """Return :meth:`failed` for the given ``streams`` only."""
        failed = self.failed()
        return {name: failed[name] for name in sorted(set(streams)) if name in failed}


def summary(failed: Mapping[str, str]) -> str:
    """Return the text for a readiness check: ``ok``, or the streams that can't be read.

    >>> summary({}), summary({"a": "no such folder"})
    ('ok', '1 stream is not read: a (no such folder)')
    """
    if not failed:
        return "ok"
    named = [f"{name} ({_short(why)})" for name, why in list(failed.items())[:_NAMED]]
    more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    count = "1 stream is" if len(failed) == 1 else f"{len(failed)} streams are"
    return f"{count} not read: {', '.join(named)}{more}"


def _short(reason: str) -> str:
    """Shorten a long reason at the end of a word, and name the route with the whole reason."""
    if len(reason) <= _REASON:
        return reason
    words = reason[:_REASON].rsplit(" ", 1)[0]
    return f"{words} ... GET /v1/streams has all of it"
