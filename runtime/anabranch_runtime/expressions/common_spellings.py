"""Fast casts from text in common spellings, by Arrow's kernels.

A column is cast as a whole if every value matches a pattern. The patterns accept only text that
Arrow and Spark read alike. Other columns are read value by value (``casts``).
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.types import INTEGRAL, TIMESTAMPS, DataType, TypeKind
from anabranch_runtime.columns.arrow_types import arrow_type

_YEAR = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_DAY = _YEAR + r"-[0-9]{2}-[0-9]{2}"
_INTEGER = r"^-?[0-9]{1,18}$"
_FLOAT = r"^-?[0-9]{1,19}(?:\.[0-9]{1,19})?(?:[eE][+-]?[0-9]{1,3})?$"
_DATE = rf"^{_DAY}$"
_MOMENT = rf"^{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}})?Z?$"


def read_common(column: pa.Array, target: DataType) -> pa.Array | None:
    """Cast strings to ``target``; None if any value has an unusual spelling or can't be cast."""
    kind, arrow = target.kind, arrow_type(target)
    if kind in INTEGRAL:
        return _read(column, _INTEGER, lambda text: text.cast(pa.int64()).cast(arrow))
    if kind is TypeKind.DOUBLE:
        return _read(column, _FLOAT, lambda text: text.cast(arrow))
    if kind is TypeKind.DECIMAL:
        whole, scale = target.precision - target.scale, target.scale
        fraction = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
        pattern = rf"^-?[0-9]{{1,{whole}}}{fraction}$"
        return _read(column, pattern, lambda text: text.cast(arrow)) if whole else None
    if kind is TypeKind.DATE:
        return _read(column, _DATE, lambda text: text.cast(arrow))
    if kind in TIMESTAMPS:
        return _read(column, _MOMENT, lambda text: _moments(text).cast(pa.int64()).view(arrow))
    return None


def _read(
    column: pa.Array, pattern: str, convert: Callable[[pa.Array], pa.Array]
) -> pa.Array | None:
    if pc.all(pc.match_substring_regex(column, pattern)).as_py() is not True:
        return None
    try:
        return convert(column)
    except pa.ArrowInvalid:
        return None


def _moments(text: pa.Array) -> pa.Array:
    return pc.utf8_rtrim(text, characters="Z").cast(pa.timestamp("us"))
