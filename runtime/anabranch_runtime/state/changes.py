"""Changes between two states, as JSON structures: a batch changes little of a large state.

Values never change in place, so unchanged parts of two consecutive states are the same objects, and
a comparison skips them. A change refers to the JSON forms of both values, so a reader needs no
types: ``applied(to_json(before), difference(before, after, ())) == to_json(after)``. A process that
has the former value as an object needs no JSON: ``renewed(before, difference(before, after, ()))``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from anabranch_contract import codec
from anabranch_runtime.traced import Traced
from anabranch_runtime.traced import changes as traces

_T = TypeVar("_T")
#: Change of part of a list: (elements kept, elements dropped after these, elements added).
Splice = tuple[int, int, Sequence[_T]]


class StateChange(codec.Row, frozen=True):
    """Change of an object or of a list.

    Attributes:
        values: name -> new value. ``changes``: name -> change of its value.
        removed: names that the object no longer has.
        splices: splices of the list, from its beginning on; elements after the last are kept.
    """

    values: dict[str, Any]
    changes: dict[str, StateChange]
    removed: tuple[str, ...]
    splices: tuple[tuple[int, int, tuple[Any, ...]], ...] = ()


_ABSENT = object()


def difference(before: Any, after: Any, inside: Collection[type]) -> StateChange:
    """Return the change from a state ``before`` to ``after``: dataclasses of one type, or mappings.

    Args:
        inside: dataclasses that are compared field by field; a changed value of any other dataclass
            is written completely, as it is small. Mappings are always compared.
    """
    old, new = _entries(before), _entries(after)
    values, changes, common = dict[str, Any](), dict[str, StateChange](), 0
    traced = traces(old, new)
    for name in new if traced is None else traced:
        value = new[name]
        known = old.get(name, _ABSENT)
        common += known is not _ABSENT
        if known is value:
            continue
        kind = _kind(value)
        alike = _kind(known) is kind
        if alike and known and (kind is dict or kind in inside):
            found = difference(known, value, inside)
            if found != _NOTHING:
                changes[name] = found
        elif not alike or known != value:
            splices = _splices(known, value) if alike and kind is tuple else ()
            if splices:
                changes[name] = StateChange({}, {}, (), splices)
            else:
                values[name] = value
    gone = traced is None and common < len(old)
    removed = tuple(name for name in old if name not in new) if gone else ()
    return StateChange(values, changes, removed)


def applied(value: Any, change: StateChange) -> Any:
    """Return the JSON form of a state after ``change``; ``value`` itself is not changed.

    Raises:
        LookupError, TypeError, ValueError: the change belongs to another value.
    """
    if change.splices:
        return spliced(value, change.splices)
    found = {**value, **change.values}
    for name in change.removed:
        del found[name]
    for name, inside in change.changes.items():
        found[name] = applied(value[name], inside)
    return found


def renewed(value: _T, change: StateChange) -> _T:
    """Return the state after ``change``; unchanged parts stay the same objects."""
    if isinstance(value, tuple):
        return type(value)(spliced(value, change.splices))
    known = _entries(value)
    fresh = {name: renewed(known[name], inside) for name, inside in change.changes.items()}
    if not isinstance(value, dict):
        return replace(value, **change.values, **fresh)  # type: ignore[type-var]
    found = {**value, **change.values, **fresh}
    for name in change.removed:
        del found[name]
    return found  # type: ignore[return-value]


def spliced(known: Sequence[_T], splices: Iterable[Splice[_T]]) -> list[_T]:
    """Return the list ``known`` after the changes ``splices``.

    Raises:
        ValueError: the list is too short.
    """
    found, at = list[_T](), 0
    for keep, drop, fresh in splices:
        found += known[at : at + keep]
        at += keep + drop
        found += fresh
    if at > len(known):
        raise ValueError(f"{at} elements expected, {len(known)} found")
    return [*found, *known[at:]]


_NOTHING = StateChange({}, {}, ())


def _kind(value: Any) -> type:
    return dict if isinstance(value, Traced) else type(value)


def _entries(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {name: getattr(value, name) for name in value.__match_args__}


def _splices(
    before: tuple[Any, ...], after: tuple[Any, ...]
) -> tuple[tuple[int, int, tuple[Any, ...]], ...]:
    """Return the splices (:data:`Splice`) that turn the list ``before`` of a manifest into
    ``after``; empty if the lists share no element."""
    places = {id(element): place for place, element in enumerate(before)}
    found, fresh, kept, at = list[tuple[int, int, tuple[Any, ...]]](), list[Any](), 0, 0
    for element in after:
        place = places.get(id(element), -1)
        if place < at:
            fresh.append(element)
            continue
        if place > at or fresh:
            found.append((kept, place - at, tuple(fresh)))
            kept, fresh = 0, []
        kept, at = kept + 1, place + 1
    if not at:
        return ()
    if fresh or at < len(before):
        found.append((kept, len(before) - at, tuple(fresh)))
    return tuple(found)
