"""Hidden columns of joined rows in rationed batches: the probability with which each was kept.

A result is kept if certain of its members have ranks below their goals' rations (``semantics.md``,
"Rations"). Members with equal ranks are kept or withheld together. So each rank that matters has a
*slot*: the rank, and the share of all ranks that are kept. Unused slots have the share 1. Spark
reads the columns of the query and ignores these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from anabranch_contract.queries.joins import StreamName

#: The columns of each slot.
RANK, SHARE = "anabranch_rank_{}", "anabranch_share_{}"


def slots(streams: Iterable[StreamName]) -> int:
    """Return the number of slots for results over ``streams``: the most members of one stream."""
    return max(Counter(streams).values())


def with_slots(schema: pa.Schema, count: int) -> pa.Schema:
    """Return ``schema`` with the columns of ``count`` slots."""
    for slot in range(count):
        schema = schema.append(pa.field(RANK.format(slot), pa.int64()))
        schema = schema.append(pa.field(SHARE.format(slot), pa.float64()))
    return schema
