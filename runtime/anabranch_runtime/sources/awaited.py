"""Retained streams that are not read until an epoch stores them.

All input of a retained stream has to be stored. So in live mode its source waits until the running
epoch has the stream's present definition. The driver passes the registration and retention of its
epoch's streams as texts (``InputControl.retained``), and the source compares these texts with its
own records. A replay does not wait, because its first epoch is planned before the first batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import Stream


def planned_marks(streams: Iterable[Stream]) -> dict[str, str]:
    """Return retained stream -> its definition in an epoch, as text."""
    return {str(s.name): json.dumps([s.registration, s.retain]) for s in streams if s.is_retained}


def awaited_marks(records: Iterable[StreamRecord]) -> dict[str, str]:
    """Return retained stream -> its registered definition, as text."""
    return {r.name: json.dumps([r.registration, r.retain]) for r in records if r.retain != 0}


def awaited(wanted: Mapping[str, str], planned: Mapping[str, str]) -> frozenset[str]:
    """Return the streams that must wait: their definitions differ in ``wanted`` and ``planned``."""
    return frozenset(name for name, mark in wanted.items() if planned.get(name) != mark)
