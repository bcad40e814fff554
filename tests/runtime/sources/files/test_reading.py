"""Tests of reading parts of Parquet files: exactly their rows, and none decoded again for the next
part.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.files import reading
from anabranch_runtime.sources.files.reading import parquet_rows

ROWS, GROUP = 100_000, 30_000


@pytest.fixture(autouse=True)
def nothing_open() -> Iterator[None]:
    reading._OPEN.clear()
    yield
    reading._OPEN.clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.parquet"
    numbers = pa.array(range(ROWS))
    pq.write_table(pa.table({"k": numbers, "n": numbers}), path, row_group_size=GROUP)
    return path


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Paths of the files that have been opened."""
    found, original = list[Any](), pq.ParquetFile

    def opened(path: Any, **options: Any) -> pq.ParquetFile:
        found.append(path)
        return original(path, **options)

    monkeypatch.setattr(pq, "ParquetFile", opened)
    return found


def _rows(path: Any, first: int, last: int | None, names: tuple[str, ...] = ("k",)) -> list[int]:
    parts = list(parquet_rows(path, list(names), first, last))
    return [value for part in parts for value in part.column(0).to_pylist()]


def test_the_next_part_is_read_from_where_the_last_one_ended(file: Path, opens: list[Any]) -> None:
    for first in range(0, GROUP, 1000):
        # Other tasks read the rest.
        assert _rows(file, first, first + 400) == list(range(first, first + 400))
    assert len(opens) == 1
    assert len(reading._OPEN) == 1


@pytest.mark.parametrize(
    "part",
    [(500, 600), (GROUP + 10, GROUP + 20), (1000, 1100, ("n",))],
    ids=["earlier rows", "another row group", "other columns"],
)
def test_other_parts_are_read_from_a_file_opened_again(
    file: Path, opens: list[Any], part: tuple[Any, ...]
) -> None:
    assert _rows(file, 0, 1000) == list(range(1000))
    assert _rows(file, *part) == list(range(part[0], part[1]))
    assert len(opens) == 2
    assert len(reading._OPEN) == 1


def test_a_file_is_closed_at_the_end_of_a_row_group_or_after_an_error(
    file: Path, opens: list[Any]
) -> None:
    assert len(_rows(file, 10, GROUP)) == GROUP - 10
    assert reading._OPEN == {}
    assert len(_rows(file, ROWS - 10, None)) == 10
    assert reading._OPEN == {}
    with pytest.raises(SourceError, match="5 rows less"):
        _rows(file, ROWS - 10, ROWS + 5)
    assert reading._OPEN == {}
    # Its reader stopped early.
    for _ in parquet_rows(file, ["k"], 0, ROWS):
        break
    assert reading._OPEN == {}


@pytest.mark.parametrize("kept", [True, False])
def test_a_row_group_that_occupies_much_memory_is_not_kept(
    file: Path, opens: list[Any], monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    monkeypatch.setattr(reading, "MOST_KEPT", (1 << 20) if kept else 1000)
    assert _rows(file, 0, 100) == list(range(100))
    assert bool(reading._OPEN) == kept


def test_a_file_that_has_been_replaced_is_opened_again(file: Path, tmp_path: Path) -> None:
    assert _rows(file, 0, 100) == list(range(100))
    other = tmp_path / "b.parquet"
    pq.write_table(pa.table({"k": pa.array(range(ROWS, 0, -1))}), other)
    other.replace(file)
    assert _rows(file, 100, 102) == [ROWS - 100, ROWS - 101]


@pytest.mark.parametrize("given", [lambda path: path, lambda path: path.open("rb")])
def test_any_parts_are_read_exactly(file: Path, given: Callable[[Path], Any]) -> None:
    chance, last = random.Random(5), 0
    for _ in range(200):
        first = last if chance.random() < 0.6 and last < ROWS else chance.randrange(ROWS)
        last = min(first + chance.choice((1, 100, 7000, 40_000)), ROWS)
        assert _rows(given(file), first, last) == list(range(first, last))
