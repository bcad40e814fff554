"""Streams that a file of statements declares: columns whose values are drawn from lists in the
file.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from anabranch_contract.queries.types import parse_type
from anabranch_runtime.columns.arrow_types import arrow_type
from tests.sql.files import Block
from tests.support.combined.streams import BEGIN, NEVER, Kind, RandomStream, Row


class DeclaredStream(RandomStream):
    """A stream of ``block``, whose files are in ``folder``.

    Only the current rows of a table count, since all statements follow it. Event times (column
    ``ts``) are near the time of the run.
    """

    def __init__(self, block: Block, folder: Path) -> None:
        name, kind, *key = block.name.split(" ")
        super().__init__(
            name, Kind(kind), folder / name, key=int(key[0]) if key else 0, sizes=(1, 3, 5)
        )
        self.folder.mkdir(parents=True)
        self._types: dict[str, pa.DataType] = {}
        self._values: dict[str, Sequence[Any]] = {}
        for line in block.sql.split("\n"):
            column, spelled, *values = line.split(" ", 2)
            self._types[column] = kind_of = arrow_type(parse_type(spelled))
            listed = json.loads(values[0]) if values else ()
            self._values[column] = [_value(one, kind_of) for one in listed]

    @property
    def columns(self) -> Mapping[str, pa.DataType]:
        return self._types

    def net(self, batch: int) -> list[tuple[Row, int, int]] | None:
        rows = super().net(batch)
        if self.kind is not Kind.TABLE or not rows:
            return rows
        return [row for row in rows if row[2] == NEVER]

    def _draw(self, rng: Random, minutes: int) -> Row:
        around = dt.timedelta(minutes=minutes, seconds=rng.randrange(-900, 900))
        return tuple(
            rng.choice(values) if values else BEGIN + around for values in self._values.values()
        )


def _value(value: Any, kind: pa.DataType) -> Any:
    """Return a JSON value as a hashable Python value: arrays and maps are tuples."""
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return dt.datetime.fromisoformat(value).replace(tzinfo=dt.UTC)
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    return _frozen(value)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return Struct({name: _frozen(one) for name, one in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


class Struct(dict[str, Any]):
    """Value of a struct, hashable."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def declared(blocks: Sequence[Block]) -> Callable[[Path, Random], dict[str, RandomStream]]:
    """Return the streams that a file declares."""

    def drawn(folder: Path, _: Random) -> dict[str, RandomStream]:
        made = [DeclaredStream(block, folder) for block in blocks if block.kind == "stream"]
        return {stream.name: stream for stream in made}

    return drawn
