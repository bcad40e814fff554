"""Options of tables of a lake that the runtime reads itself: a snapshot, then later commits."""

from __future__ import annotations

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

#: Format: a Delta table.
DELTA = "delta"
NAMES = ("start", "on_loss", "on_delete")


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Options of a table of a lake.

    Attributes:
        start: the present rows first, only later commits, or the first version to read.
        on_loss: policy for files that were removed before they were read.
        on_delete: policy for a commit that only removes rows, in a stream whose rows only insert.
    """

    start: StreamStart | int = StreamStart.EARLIEST
    on_loss: OnLoss = OnLoss.STOP
    on_delete: OnLoss = OnLoss.STOP


def table_options(path: str | None, options: Mapping[str, str]) -> TableOptions:
    """Parse the options of a ``delta`` source.

    Raises:
        StreamError: the path is missing, or an option or its value is unknown.

    >>> table_options("/lake/orders", {"start": "17"}).start
    17
    """
    if not path:
        raise StreamError(
            "incomplete-source",
            "a delta source needs the path of a table",
            field="source.path",
            remedy="give it, as the runtime sees it",
        )
    check_known(options, NAMES, DELTA)
    text = options.get("start", StreamStart.EARLIEST.value)
    start: StreamStart | int
    if text.isascii() and text.isdecimal() and len(text) <= 18:
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
    )


def check_table_changes(changes: ChangeFormat | None, options: TableOptions) -> None:
    """Check that a stream's rows can have the form of a table's changes.

    Raises:
        StreamError: the form has operations of its own, or no column for them, or rows would be
            deleted that were never read.
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
            "rows of a delta source have operations, and no column that they are in",
            field="changes.operation",
            remedy="name a column that the table does not have",
        )
    if changes.inserts or changes.deletes or changes.null_deletes:
        raise StreamError(
            "table-operations",
            "the operations of a delta source are its own",
            field="changes",
            remedy="leave out inserts, deletes and null_deletes",
        )
