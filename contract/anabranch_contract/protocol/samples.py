"""Sampled tuples of a stream, as the runtime reports them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from anabranch_contract.codec import Message
from anabranch_contract.queries.types import FLOATING, TypeKind, parse_type

if TYPE_CHECKING:
    from collections.abc import Callable

Value: TypeAlias = bool | int | float | str | Decimal | None


@dataclass(frozen=True, slots=True)
class StreamSample(Message):
    """Tuples drawn uniformly, without replacement, from all that a stream has brought.

    Attributes:
        seen: how many it has brought.
        size: how many were drawn.
        columns: column -> (type, values). Values are those of ``expressions.Literal``, but decimals
            and floats are texts; long texts are cut off.
    """

    seen: int
    size: int
    columns: dict[str, tuple[str, list[Any]]]

    def values(self, column: str) -> list[Value]:
        """A column's values, decimals and floats as such."""
        text, values = self.columns[column]
        kind = parse_type(text).kind
        read: Callable[[Any], Value] | None = None
        if kind is TypeKind.DECIMAL:
            read = Decimal
        elif kind in FLOATING:
            read = float
        return values if read is None else [None if v is None else read(v) for v in values]
