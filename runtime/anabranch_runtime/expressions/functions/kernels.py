"""Kernels of Spark's functions, by operation."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from anabranch_contract.queries.expressions import Call
from anabranch_runtime.expressions.functions import collections, dates, numbers, patterns, texts
from anabranch_runtime.expressions.functions.addresses import ADDRESSES
from anabranch_runtime.expressions.functions.hashes import HASHES
from anabranch_runtime.expressions.functions.json_values import JSON_VALUES
from anabranch_runtime.expressions.functions.time_texts import TIME_TEXTS
from anabranch_runtime.expressions.functions.variants import VARIANTS
from anabranch_runtime.expressions.functions.zones import ZONES

#: Operation -> kernel, which takes a call and its evaluated arguments.
KERNELS: dict[str, Callable[[Call, list[pa.Array]], pa.Array]] = {
    **collections.COLLECTIONS,
    **dates.DATES,
    **numbers.NUMBERS,
    **texts.TEXTS,
    **patterns.PATTERNS,
    **ADDRESSES,
    **HASHES,
    **JSON_VALUES,
    **TIME_TEXTS,
    **VARIANTS,
    **ZONES,
}
#: Operations that can fail on a value.
FALLIBLE = (
    collections.FALLIBLE
    | dates.FALLIBLE
    | numbers.FALLIBLE
    | patterns.FALLIBLE
    | texts.FALLIBLE
    | {"date_format", "to_timestamp", *VARIANTS, *ZONES}
)
