"""Hidden columns of a view's input rows under load shedding: each row's inclusion probability.

A result is kept if its last-arriving members have ranks (hashes in [0, 1)) below the rations, which
are sampling rates (``semantics.md``, "Rations"). Members with equal ranks are kept or withheld
together. So a row has a *slot* per distinct rank: the rank and its sampling rate. Unused slots have
the rate 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from anabranch_contract.queries.joins import StreamName

#: Columns of a slot in a view's input rows: rank and sampling rate.
RANK, SHARE = "anabranch_rank_{}", "anabranch_share_{}"


def slots(streams: Iterable[StreamName]) -> int:
    """Return the number of slots of a row: the most aliases over one stream in ``streams``."""
    return max(Counter(streams).values())


def with_slots(schema: pa.Schema, count: int) -> pa.Schema:
    """Return ``schema`` of a view's input rows with the columns of ``count`` slots added."""
    for slot in range(count):
        schema = schema.append(pa.field(RANK.format(slot), pa.int64()))
        schema = schema.append(pa.field(SHARE.format(slot), pa.float64()))
    return schema
