"""Tables of changes: upserts, then deletes, with the columns of ``contract.queries.views``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from anabranch_contract.queries.views import CHANGE, VERSION, Change, View, change_columns
from anabranch_runtime.columns.arrow_types import arrow_type


class Changes:
    """Makes tables of changes of a view."""

    __slots__ = ("_identity", "schema")

    def __init__(self, view: View) -> None:
        self.schema = pa.schema([(name, arrow_type(kind)) for name, kind in change_columns(view)])
        self._identity = frozenset(view.identity)

    def table(
        self, columns: Mapping[str, pa.Array], upserts: int, deletes: int, version: int
    ) -> pa.Table:
        """Return the changes of ``version``.

        Args:
            columns: values of the upserts; in identity columns followed by values of the deletes.
        """
        arrays = []
        for field in self.schema:
            if field.name == CHANGE:
                array = _kinds(upserts, deletes)
            elif field.name == VERSION:
                array = pa.repeat(pa.scalar(version, field.type), upserts + deletes)
            else:
                array = columns[field.name]
                if array.type != field.type:
                    array = array.cast(field.type)
                if field.name not in self._identity and deletes:
                    array = pa.concat_arrays([array, pa.nulls(deletes, field.type)])
            arrays.append(array)
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def nothing(self) -> pa.Table:
        """Return an empty table of changes."""
        return self.schema.empty_table()


def _kinds(upserts: int, deletes: int) -> pa.Array:
    parts = [
        pa.repeat(pa.scalar(str(change), pa.string()), count)
        for change, count in ((Change.UPSERT, upserts), (Change.DELETE, deletes))
        if count
    ]
    return _joined(parts)


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(list(parts))
