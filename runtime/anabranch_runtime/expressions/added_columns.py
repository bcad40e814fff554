"""Values of columns that were added to a stream, in rows read before the addition."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa

from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.expressions.casts import cast


@lru_cache(maxsize=256)
def added_values(stream: Stream) -> Mapping[str, pa.Scalar]:
    """Return added column of ``stream`` -> its value in rows that were stored before."""
    kinds, first, text = dict(stream.columns), dict(stream.widened), DataType(TypeKind.STRING)

    def value(name: str, given: str | None) -> pa.Scalar:
        kind = kinds[name]
        if given is None:
            return pa.scalar(None, arrow_type(kind))
        found = cast(pa.array([given], pa.string()), text, first.get(name, kind))
        return found.cast(arrow_type(kind))[0]

    return {name: value(name, given) for name, given in stream.added if name in kinds}
