"""Values derived from the entries of a mapping, kept as long as an entry is the same object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

_V = TypeVar("_V")
_W = TypeVar("_W")


class Derived(Generic[_V, _W]):
    """Cache of ``work(name, entry)`` for the entries of the last mapping. Entries never change in
    place, so it is computed only for new objects. ``work`` must not depend on anything else.
    """

    def __init__(self, work: Callable[[str, _V], _W]) -> None:
        self._work = work
        self._known: dict[str, tuple[_V, _W]] = {}

    def of(self, entries: Mapping[str, _V]) -> dict[str, _W]:
        """Return name -> derived value for all ``entries``."""
        last, found = self._known, dict[str, tuple[_V, _W]]()
        for name, entry in entries.items():
            known = last.get(name)
            if known is None or known[0] is not entry:
                known = (entry, self._work(name, entry))
            found[name] = known
        self._known = found
        return {name: value for name, (_, value) in found.items()}
