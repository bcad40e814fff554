"""Options of lake tables (Delta, Iceberg) that the runtime reads itself: snapshot, then commits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch_contract.connectors.sources import (
    OnLoss,
    StreamStart,
    bad_option,
    check_known,
    choice,
)
from anabranch_contract.errors import StreamError
from anabranch_contract.queries.changes import ChangeFormat

#: Formats of lake tables: a Delta table in a folder, an Iceberg table of a catalog.
DELTA, ICEBERG = LAKE = ("delta", "iceberg")
#: The option with the name of an Iceberg table, ``catalog.database.table``, and the form of names.
TABLE = "table"
TABLE_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){2,}")
#: Maximum number of digits of a Delta version, and of an Iceberg snapshot's id.
_DIGITS = {DELTA: 18, ICEBERG: 19}
NAMES = {
    DELTA: ("start", "on_loss", "on_delete"),
    ICEBERG: (TABLE, "start", "on_loss", "on_delete"),
}


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Options of a Delta or Iceberg table as a source.

    Attributes:
        start: ``earliest``: the present rows, then later commits; ``latest``: later commits only; a
            number: the first version (of Iceberg: id of the first snapshot) to read.
        on_loss: policy for files that were removed before they were read.
        on_delete: policy for a commit that only removes rows, in a stream that can't delete rows.
    """

    start: StreamStart | int = StreamStart.EARLIEST
    on_loss: OnLoss = OnLoss.STOP
    on_delete: OnLoss = OnLoss.STOP
    table: str = ""


def table_options(format: str, path: str | None, options: Mapping[str, str]) -> TableOptions:
    """Parse the options of a source in one of the formats ``LAKE`` (Delta, Iceberg).

    Args:
        path: path of a Delta table; the name of an Iceberg table is in ``options`` under ``TABLE``.

    Raises:
        StreamError: path or name is missing, or an option or its value is unknown.

    >>> table_options("delta", "/lake/orders", {"start": "17"}).start
    17
    """
    if format == DELTA and not path:
        raise StreamError(
            "incomplete-source",
            "a delta source needs the path of a table",
            field="source.path",
            remedy="give the path on the machine of the runtime",
        )
    if format == ICEBERG and path:
        raise StreamError(
            "unused-path",
            "an iceberg source has the name of a table of a catalog, not a path",
            field="source.path",
            remedy=f"leave the path out, and give the option {TABLE}",
        )
    check_known(options, NAMES[format], format)
    table = options.get(TABLE, "")
    if format == ICEBERG and TABLE_NAME.fullmatch(table) is None:
        raise bad_option(
            TABLE,
            f"{table[:100]!r} is not the name of a table of a catalog",
            "give catalog.database.table, in letters, digits, _ and -",
        )
    text = options.get("start", StreamStart.EARLIEST.value)
    start: StreamStart | int
    if text.isascii() and text.isdecimal() and len(text) <= _DIGITS[format]:
        start = int(text)
    elif text in tuple(StreamStart):
        start = StreamStart(text)
    else:
        raise bad_option(
            "start",
            f"{text[:60]!r} is not a start",
            "give earliest, latest, or the number of the first version to read",
        )
    return TableOptions(
        start,
        choice(OnLoss, options, "on_loss", OnLoss.STOP),
        choice(OnLoss, options, "on_delete", OnLoss.STOP),
        table,
    )


def check_table_changes(changes: ChangeFormat | None, options: TableOptions) -> None:
    """Check that a stream of changes can be read from a Delta or Iceberg table.

    Raises:
        StreamError: ``changes`` names operations or no operation column, or a commit may delete
            rows before ``start``, which the stream never had.
    """
    if changes is None:
        return
    if not changes.key and options.start not in (StreamStart.EARLIEST, 0):
        raise bad_option(
            "start",
            "commits after it may delete rows that the stream does not have",
            "leave it out, or register the stream with kind upsert and a key",
        )
    if changes.operation is None:
        raise StreamError(
            "operations-without-column",
            "rows of a table of a lake have operations, and no column that they are in",
            field="changes.operation",
            remedy="name a column that the table does not have",
        )
    if changes.inserts or changes.deletes or changes.null_deletes:
        raise StreamError(
            "table-operations",
            "the operations of a table of a lake are its own",
            field="changes",
            remedy="leave out inserts, deletes and null_deletes",
        )
