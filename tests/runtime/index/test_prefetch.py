"""Tests that probes prefetch the pages that they will read if state does not fit into memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from anabranch_runtime.index import prefetch
from anabranch_runtime.index.gather import gather, gather_words, place_of, places
from anabranch_runtime.index.hash_index import build_index
from anabranch_runtime.index.keys import key_vector
from anabranch_runtime.index.matching import Constraint, described, in_order, match

ROWS = 200_000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """(address, bytes) of each prefetch, which is passed on to the kernel."""
    found: list[tuple[int, int]] = []
    real = prefetch._advise
    assert real is not None

    def advise(first: object, size: object, advice: int) -> int:
        found.append((first.value, size.value))  # type: ignore[attr-defined]
        code: int = real(first, size, advice)
        assert code == 0
        return code

    monkeypatch.setattr(prefetch, "_advise", advise)
    prefetch.enable(True)
    yield found
    prefetch.enable(False)


def covers(asked: list[tuple[int, int]], first: int, size: int) -> bool:
    return any(a <= first and first + size <= a + n for a, n in asked)


def test_what_is_found_does_not_depend_on_asking(asked: list[tuple[int, int]]) -> None:
    rng = np.random.default_rng(1)
    stored = [pa.array(rng.integers(0, 50_000, ROWS)) for _ in range(3)]
    indexes = [build_index(key_vector([s], ["bigint"])) for s in stored]
    probes = in_order(key_vector([pa.array(rng.integers(0, 80_000, 5000))], ["bigint"]).hashes)
    columns = np.array([c.buffers()[1].address for c in stored], np.int64)
    limits = Constraint(columns, np.zeros(5000, np.int64), np.full(5000, 40_000))
    found = match(probes, described(indexes), [limits])
    asked_for = list(asked)
    prefetch.enable(False)
    plain = match(probes, described(indexes), [limits])
    assert np.array_equal(found.positions, plain.positions)
    assert np.array_equal(found.rows, plain.rows)
    assert len(plain.rows)
    for index, column in zip(indexes, columns.tolist(), strict=True):
        for array in (index.hashes, index.rows, index.starts, index.filter):
            assert covers(asked_for, array.__array_interface__["data"][0], array.nbytes)
        assert covers(asked_for, column, 8 * ROWS)


def test_an_index_is_not_asked_for_where_its_filter_holds_probes_up(
    asked: list[tuple[int, int]],
) -> None:
    index = build_index(key_vector([pa.array(range(ROWS))], ["bigint"]))
    probes = in_order(key_vector([pa.array(range(ROWS, ROWS + 200))], ["bigint"]).hashes)
    assert not len(match(probes, described([index])).rows)
    assert covers(asked, index.filter.__array_interface__["data"][0], index.filter.nbytes)
    assert not covers(asked, index.hashes.__array_interface__["data"][0], index.hashes.nbytes)


@pytest.mark.parametrize("wanted", [5, 5000])
def test_a_column_is_asked_for_where_enough_rows_are_wanted(
    wanted: int, asked: list[tuple[int, int]]
) -> None:
    rng = np.random.default_rng(2)
    texts = [pa.array([f"text {n}" for n in range(ROWS)]), pa.array(["one"] * ROWS)]
    rows = rng.integers(0, ROWS, wanted).astype(np.int32)
    which = np.zeros(wanted, np.int16)
    found = gather(places([place_of(t) for t in texts]), which, rows)
    assert found.equals(texts[0].take(pa.array(rows)))
    numbers = pa.array(range(ROWS))
    assert gather_words(places([place_of(numbers)]), None, rows).tolist() == rows.tolist()
    ranges = [(b.address, b.size) for b in (*texts[0].buffers(), *numbers.buffers()) if b]
    assert all(covers(asked, *r) == (wanted == 5000) for r in ranges)
    assert not any(covers(asked, b.address, b.size) for b in texts[1].buffers() if b)
    assert all(first % mmap.PAGESIZE == 0 for first, _ in asked)


def test_nobody_asks_where_memory_suffices() -> None:
    assert not prefetch.is_enabled()
