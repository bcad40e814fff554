"""Streams that are not read until an epoch stores them, or has their columns and types.

The reasons: all input of a retained stream has to be stored; a value may fit a widened column but
not the former one; and in rows with a key and in changes, no value of an added column may be
missed. So in live mode the source of such a stream waits until the running epoch has the stream's
present definition. The driver passes the definitions of its epoch's streams
(``InputControl.definitions``), and the source compares them with its own records. A replay does not
wait, because its first epoch is planned before the first batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import Stream, StreamKind
from anabranch_contract.queries.types import DataType


class Mark(NamedTuple):
    """The part of a stream's definition for which its source waits.

    Attributes:
        registration, retain: fields of ``Stream``.
        widened: the present types of the widened columns.
        added: the columns added to a table, or to changes.
    """

    registration: str
    retain: int | None
    widened: tuple[DataType | None, ...] = ()
    added: tuple[str, ...] = ()

    @staticmethod
    def of(stream: Stream) -> Mark:
        """Return the part of a stream's definition for which its source waits."""
        widened = tuple(stream.type_of(name) for name, _ in sorted(stream.widened))
        added = () if stream.kind is StreamKind.STREAM else tuple(name for name, _ in stream.added)
        return Mark(stream.registration, stream.retain, widened, added)


def planned_marks(streams: Iterable[Stream]) -> dict[str, Mark]:
    """Return stream -> mark of its definition in the running epoch."""
    return {str(s.name): Mark.of(s) for s in streams}


def awaited_marks(records: Iterable[StreamRecord]) -> dict[str, Mark]:
    """Return stream -> mark of its registered definition, for the streams that may wait."""
    changed = (r for r in records if r.retain != 0 or r.widened or r.added)
    return {r.name: Mark.of(r.to_stream()) for r in changed}


def awaited(wanted: Mapping[str, Mark], planned: Mapping[str, Mark]) -> frozenset[str]:
    """Return the streams whose sources must wait: ``wanted`` and ``planned`` have different marks.
    A stream that is not retained waits only if an epoch still has its former columns."""

    def waits(name: str, mark: Mark) -> bool:
        here = planned.get(name)
        if mark.retain != 0:
            return here != mark
        return here is not None and here._replace(retain=0) != mark

    return frozenset(name for name, mark in wanted.items() if waits(name, mark))
