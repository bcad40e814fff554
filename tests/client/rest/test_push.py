"""Tests of ``stream push``: rows from files and standard input, in several requests, refused by
line.
"""

from __future__ import annotations

import io
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_client.errors import UsageError
from anabranch_client.rest.push import ROWS, rows_of

NOTHING = io.StringIO()


def test_parquet_rows_are_sent_as_json_has_them(tmp_path: Path) -> None:
    table = pa.table(
        {
            "n": pa.array(range(ROWS + 1), pa.int64()),
            "at": pa.array([datetime(2024, 5, 1, tzinfo=UTC)] * (ROWS + 1)),
            "d": pa.array([Decimal("1.50")] * (ROWS + 1)),
            "raw": pa.array([b"\x01\x02"] * (ROWS + 1)),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    chunks = list(rows_of(str(tmp_path / "x.parquet"), NOTHING))
    assert [len(c) for c in chunks] == [ROWS, 1]
    assert chunks[1][0] == {
        "n": ROWS,
        "at": "2024-05-01T00:00:00+00:00",
        "d": "1.50",
        "raw": "AQI=",
    }


def test_lines_come_from_a_file_or_standard_input(tmp_path: Path) -> None:
    text = '{"n": 1}\n\n{"n": 2}\n'
    (tmp_path / "x.jsonl").write_text(text)
    expected = [[{"n": 1}, {"n": 2}]]
    assert list(rows_of(str(tmp_path / "x.jsonl"), NOTHING)) == expected
    assert list(rows_of("-", io.StringIO(text))) == expected
    assert list(rows_of("-", io.StringIO(""))) == []


@pytest.mark.parametrize("line", ["nothing", "[1]", "7"])
def test_a_line_that_is_no_object_is_named(line: str) -> None:
    with pytest.raises(UsageError, match="line 2 of standard input"):
        list(rows_of("-", io.StringIO(f'{{"n": 1}}\n{line}\n')))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("no Parquet")
    for name in ("x.parquet", "missing.jsonl"):
        with pytest.raises(UsageError, match="can't be read"):
            list(rows_of(str(tmp_path / name), NOTHING))
