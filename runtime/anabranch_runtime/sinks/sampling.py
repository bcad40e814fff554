"""How joined rows of rationed batches say with which probability they were kept: hidden columns.

A result is kept if some of its members have ranks below their goals' rations (``semantics.md``,
"Rations"). Members with one rank are kept or withheld together, so there is a *slot* for each rank
that counts: the rank, and the share of all ranks with which it is kept. Slots that are not needed
have the share 1. Spark reads the columns of the query and passes over these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from anabranch_contract.queries.joins import StreamName

#: The columns of each slot.
RANK, SHARE = "anabranch_rank_{}", "anabranch_share_{}"


def slots(streams: Iterable[StreamName]) -> int:
    """How many slots results need whose members are of ``streams``: the most that are of one."""
    return max(Counter(streams).values())


def with_slots(schema: pa.Schema, count: int) -> pa.Schema:
    """``schema`` and the columns of ``count`` slots."""
    for slot in range(count):
        schema = schema.append(pa.field(RANK.format(slot), pa.int64()))
        schema = schema.append(pa.field(SHARE.format(slot), pa.float64()))
    return schema
