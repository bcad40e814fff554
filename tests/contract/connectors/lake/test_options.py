"""Tests of the options of lake tables (Delta, Iceberg) as sources."""

from __future__ import annotations

import pytest

from anabranch_contract.connectors.lake.options import (
    TableOptions,
    check_table_changes,
    table_options,
)
from anabranch_contract.connectors.sources import OnLoss, StreamStart
from anabranch_contract.errors import StreamError
from anabranch_contract.queries.changes import ChangeFormat


def test_options_are_read() -> None:
    assert table_options("delta", "/t", {}) == TableOptions()
    given = {"start": "latest", "on_loss": "skip", "on_delete": "skip"}
    assert table_options("delta", "/t", given) == TableOptions(
        StreamStart.LATEST, OnLoss.SKIP, OnLoss.SKIP
    )
    assert table_options("delta", "/t", {"start": "0"}).start == 0


@pytest.mark.parametrize(
    ("path", "options", "field"),
    [
        (None, {}, "source.path"),
        ("/t", {"start": "-1"}, "source.options.start"),
        ("/t", {"start": "1" * 19}, "source.options.start"),
        ("/t", {"start": "yesterday"}, "source.options.start"),
        ("/t", {"on_loss": "wait"}, "source.options.on_loss"),
        ("/t", {"startingVersion": "3"}, "source.options.startingVersion"),
    ],
)
def test_options_that_are_refused(path: str | None, options: dict[str, str], field: str) -> None:
    with pytest.raises(StreamError) as caught:
        table_options("delta", path, options)
    assert (caught.value.field, bool(caught.value.remedy)) == (field, True)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (None, None),
        (ChangeFormat(), None),
        (ChangeFormat(key=("a",)), None),
        (ChangeFormat(operation=None, key=("a",)), "operations-without-column"),
        (ChangeFormat(deletes=("x",)), "table-operations"),
        (ChangeFormat(key=("a",), null_deletes=True), "table-operations"),
    ],
)
def test_operations_are_the_tables_own(changes: ChangeFormat | None, code: str | None) -> None:
    if code is None:
        check_table_changes(changes, TableOptions())
        return
    with pytest.raises(StreamError) as caught:
        check_table_changes(changes, TableOptions())
    assert caught.value.code == code


def test_a_stream_of_changes_begins_with_all_rows() -> None:
    for start in (StreamStart.LATEST, 3):
        with pytest.raises(StreamError) as caught:
            check_table_changes(ChangeFormat(), TableOptions(start))
        assert caught.value.field == "source.options.start"
        check_table_changes(ChangeFormat(key=("a",)), TableOptions(start))
    check_table_changes(ChangeFormat(), TableOptions(0))
