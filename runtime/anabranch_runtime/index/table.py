"""A record batch as a table that partial results may refer to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch_runtime.index.gather import Place, place_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class BatchTable:
    """A record batch as a table of base rows."""

    batch: pa.RecordBatch
    _places: dict[str, Place] = field(default_factory=dict, compare=False)

    def column(self, name: str) -> pa.Array:
        """A column."""
        return self.batch.column(name)

    def place(self, name: str) -> Place:
        """Where a column is."""
        if name not in self._places:
            self._places[name] = place_of(self.batch.column(name))
        return self._places[name]
