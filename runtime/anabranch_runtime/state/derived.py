"""Values derived from entries of the state's mappings, cached while an entry is the same object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from anabranch_runtime.traced import changed, changes

_V = TypeVar("_V")
_W = TypeVar("_W")
_ABSENT = object()


class Derived(Generic[_V, _W]):
    """Cache of ``work(name, entry)`` for the entries of a mapping. Entries never change in place,
    so only new objects need work. ``work`` must not depend on anything else."""

    def __init__(self, work: Callable[[str, _V], _W]) -> None:
        self._work = work
        #: The last mapping, and name -> derived value.
        self._known: tuple[Mapping[str, _V], dict[str, _W]] = {}, {}

    def of(self, entries: Mapping[str, _V]) -> dict[str, _W]:
        """Return name -> derived value for all ``entries``: a mapping that must not be changed, and
        the same object as the last result if no value differs."""
        last, found = self._known
        names = changes(last, entries)
        made = {
            name: self._work(name, entry)
            for name in (entries if names is None else names)
            if last.get(name, _ABSENT) is not (entry := entries[name])
        }
        fresh = {name: value for name, value in made.items() if found.get(name, self) is not value}
        if names is not None:
            found = changed(found, fresh)
        elif fresh or len(found) != len(entries):
            found = {name: fresh[name] if name in fresh else found[name] for name in entries}
        self._known = entries, found
        return found


class Matching(Generic[_V]):
    """Names of a mapping's entries that meet the condition ``test``. Only entries that are not the
    same objects as in the last mapping are tested."""

    def __init__(self, test: Callable[[_V], bool]) -> None:
        self._test = test
        self._known: tuple[Mapping[str, _V], frozenset[str]] = {}, frozenset()

    def of(self, entries: Mapping[str, _V]) -> frozenset[str]:
        """Return the names of the ``entries`` that meet the condition."""
        last, found = self._known
        names = changes(last, entries)
        if names is None:
            found = frozenset(name for name, entry in entries.items() if self._test(entry))
        elif names:
            matching = {name for name in names if self._test(entries[name])}
            if matching != found.intersection(names):
                found = found.difference(names) | matching
        self._known = entries, found
        return found
