"""Streams that are not read before an epoch stores them.

All input of a retained stream has to be stored. So in live mode its source waits until an epoch
runs that knows the stream as it is registered: the driver publishes marks of its epoch's
definitions (``Keys.retained``), and a source compares them with its own records. A replay does not
wait: there the first epoch is planned before the first batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import Stream


def planned_marks(streams: Iterable[Stream]) -> dict[str, str]:
    """Stream -> the mark of its definition, for each that is retained."""
    return {str(s.name): json.dumps([s.registration, s.retain]) for s in streams if s.is_retained}


def awaited_marks(records: Iterable[StreamRecord]) -> dict[str, str]:
    """The same of streams as they are registered."""
    return {r.name: json.dumps([r.registration, r.retain]) for r in records if r.retain != 0}


def awaited(wanted: Mapping[str, str], planned: Mapping[str, str]) -> frozenset[str]:
    """The streams that no epoch has yet as they are ``wanted``."""
    return frozenset(name for name, mark in wanted.items() if planned.get(name) != mark)
