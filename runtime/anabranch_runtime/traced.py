"""Mappings that know the names in which they differ from earlier versions of themselves.

A batch changes few entries of mappings with an entry per query, edge or store. Versions of one
mapping share a list of changed names, so a comparison of two versions reads only the changed
entries. Operations other than :func:`changed` return a plain mapping without this list, which is
compared entry by entry. The list only saves time; no result depends on it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any, Never, TypeVar

_V = TypeVar("_V")
#: Number of entries below which mappings are compared entry by entry.
FEW = 32


class _Trace:
    """Names that have changed between the versions of one mapping.

    Attributes:
        names: per version, the names in which it differs from the version before.
        first: number of the first version in ``names``. ``total``: number of names in all.
    """

    __slots__ = ("first", "names", "total")

    def __init__(self) -> None:
        self.names: list[tuple[str, ...]] = []
        self.first, self.total = 1, 0

    def add(self, names: tuple[str, ...], most: int) -> None:
        """Add a version of the mapping that differs in ``names``; keep at most ``most`` names."""
        self.names.append(names)
        self.total += len(names)
        if self.total > most:
            while self.total > most / 2:
                self.total -= len(self.names.pop(0))
                self.first += 1


class Traced(dict[str, _V]):
    """A version of a mapping; never changed in place."""

    __slots__ = ("_at", "_trace")

    def __init__(self, entries: Mapping[str, _V], trace: _Trace, at: int) -> None:
        super().__init__(entries)
        self._trace, self._at = trace, at

    def next(self, entries: Mapping[str, _V]) -> Traced[_V]:
        """Return the next version of the mapping, with new or changed ``entries``."""
        trace, at = self._trace, self._at
        if at != trace.first + len(trace.names) - 1:
            # This version already has a successor, so the new one begins a trace of its own.
            trace, at = _Trace(), 0
        made = Traced(self, trace, at + 1)
        dict.update(made, entries)
        trace.add(tuple(entries), len(made))
        return made

    def since(self, before: object) -> Collection[str] | None:
        """Return the names of all entries that differ from the version ``before``, and possibly
        some others; None if ``before`` is no earlier version, or is too old."""
        if before is self:
            return ()
        trace = self._trace
        if not isinstance(before, Traced) or before._trace is not trace:
            return None
        if before._at > self._at or before._at + 1 < trace.first:
            return None
        begin, end = before._at + 1 - trace.first, self._at + 1 - trace.first
        return dict.fromkeys(name for names in islice(trace.names, begin, end) for name in names)

    def __reduce__(self) -> tuple[type[dict[str, _V]], tuple[dict[str, _V]]]:
        """Leave the trace out when the mapping is copied to another process (pickled)."""
        return dict, (dict(self),)

    def _fixed(self, *_: Any, **__: Any) -> Never:
        raise TypeError("a version of a traced mapping never changes in place")

    __setitem__ = __delitem__ = __ior__ = _fixed
    update = pop = popitem = clear = setdefault = _fixed


def changed(known: dict[str, _V], entries: Mapping[str, _V]) -> dict[str, _V]:
    """Return the mapping ``known`` with new or changed ``entries``; itself if there are none."""
    if not entries:
        return known
    if len(known) < FEW:
        return {**known, **entries}
    return (known if isinstance(known, Traced) else Traced(known, _Trace(), 0)).next(entries)


def changes(before: Mapping[str, _V], after: Mapping[str, _V]) -> Collection[str] | None:
    """Return the names of all entries in which ``after`` differs from ``before``, and possibly some
    others; None if unknown. If it is not None, ``after`` has all names of ``before``."""
    if before is after:
        return ()
    return after.since(before) if isinstance(after, Traced) else None
