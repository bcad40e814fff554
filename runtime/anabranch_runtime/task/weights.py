"""Weights of the rows of a stream of changes, from their operation column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.changes import ChangeFormat


def weights_of(
    operations: pa.Array, changes: ChangeFormat
) -> tuple[pa.Array, pa.BooleanArray | None]:
    """Return the weights (1 or -1) of the rows with a known operation, in order.

    Returns:
        The weights as int8, and the mask of rows whose operation is unknown or NULL; None: all are
        known.
    """
    coded = operations.cast(pa.string()).dictionary_encode()
    known = [changes.weight(text) for text in coded.dictionary.to_pylist()]
    found = pa.array(known, pa.int8()).take(coded.indices)
    if not found.null_count:
        return found, None
    return found.drop_null(), pc.is_null(found)
