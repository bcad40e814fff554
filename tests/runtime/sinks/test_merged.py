"""Tests of merging result files while batches run: readers see every row once, through any kill."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.connectors.sources import BATCHES
from anabranch_runtime.errors import SinkError
from anabranch_runtime.inspection import merge
from anabranch_runtime.sinks import merged
from anabranch_runtime.sinks.merged import HOME, merge_results, settle
from tests.support.cases.states import RS
from tests.support.worlds.driven import Killed, die, driver, expected, job, publish, results


def written(folder: Path, query: str, batch: int, task: int, rows: list[int]) -> None:
    (folder / query).mkdir(parents=True, exist_ok=True)
    path = folder / query / f"{batch:010d}-{task:05d}.parquet"
    pq.write_table(pa.table({"a": pa.array(rows, pa.int64())}), path)


def filled(folder: Path, seed: int = 1, batches: int = 9) -> dict[str, list[int]]:
    """Fill result files; return query -> its rows in the order of its files."""
    chance, row = random.Random(seed), 0
    found: dict[str, list[int]] = {"p": [], "q~2": [], "one": []}
    for query, rows in found.items():
        for batch in range(batches if query != "one" else 1):
            for task in range(chance.randint(0, 2) if query != "one" else 1):
                some = list(range(row, row + chance.randint(1, 50)))
                written(folder, query, batch, task, some)
                rows.extend(some)
                row += len(some)
    return found


def read(folder: Path, query: str) -> list[int]:
    """Return the rows that a reader of all files finds."""
    return [
        row
        for file in sorted((folder / query).glob("*.parquet"))
        for row in pq.read_table(file).column("a").to_pylist()
    ]


def by_batch(folder: Path, query: str) -> dict[int, list[int]]:
    """Return batch -> its rows, by names and metadata of the files."""
    found: dict[int, list[int]] = {}
    for file in sorted((folder / query).glob("*.parquet")):
        rows = pq.read_table(file).column("a").to_pylist()
        known = (pq.read_metadata(file).metadata or {}).get(BATCHES)
        for batch, count in json.loads(known) if known else [(int(file.name[:10]), len(rows))]:
            found.setdefault(batch, []).extend(rows[:count])
            del rows[:count]
        assert not rows
    return found


def names(folder: Path, query: str) -> list[str]:
    return sorted(file.name for file in (folder / query).glob("*.parquet"))


def test_merged_files_know_the_batches_of_their_rows(tmp_path: Path) -> None:
    filled(tmp_path, batches=12)
    before = {query: by_batch(tmp_path, query) for query in ("p", "q~2")}
    for settled in (4, 8, 11):
        merge_results(tmp_path, settled, large=2000)
        assert {query: by_batch(tmp_path, query) for query in before} == before


def test_rows_stay_in_their_order_and_the_newest_batches_as_they_are(tmp_path: Path) -> None:
    known = filled(tmp_path)
    late = [name for name in names(tmp_path, "p") if int(name[:10]) >= 6]
    before = sum(len(names(tmp_path, query)) for query in known)
    found = merge_results(tmp_path, 6)
    assert {query: read(tmp_path, query) for query in known} == known
    assert names(tmp_path, "p")[1:] == late
    assert names(tmp_path, "p")[0] < "0000000006"
    after = sum(len(names(tmp_path, query)) for query in known)
    assert (found.queries, found.before, found.after) == (2, before, after)
    # Merged once more, since further batches can't be rolled back.
    assert merge_results(tmp_path, 9).after == 3
    assert merge_results(tmp_path, 9).queries == 0
    assert {query: read(tmp_path, query) for query in known} == known
    assert sorted(p.name for p in (tmp_path / HOME).iterdir()) == ["lock"]


def test_files_are_of_bounded_size(tmp_path: Path) -> None:
    known = filled(tmp_path, batches=30)
    one = max(file.stat().st_size for file in (tmp_path / "p").iterdir())
    merge_results(tmp_path, 30, large=4 * one)
    assert 5 <= len(names(tmp_path, "p")) <= 20
    assert read(tmp_path, "p") == known["p"]


def test_views_and_other_files_are_left_alone(tmp_path: Path) -> None:
    for batch in range(3):
        written(tmp_path, "view", batch, 0, [batch])
        written(tmp_path, "odd", batch, 0, [batch])
    (tmp_path / "view" / "0000000002-00000.parquet").rename(
        tmp_path / "view" / "version-0000000001.parquet"
    )
    pq.write_table(pa.table({"b": [1]}), tmp_path / "odd" / "0000000001-00000.parquet")
    (tmp_path / ".late" / "s").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*.parquet"))
    merge_results(tmp_path, 9)
    assert sorted(tmp_path.rglob("*.parquet")) == before
    written(tmp_path, "more", 0, 0, [1])
    with merged._alone(tmp_path) as alone:
        assert alone
        with pytest.raises(SinkError, match="being merged"):
            merge_results(tmp_path, 9)


class DiedError(BaseException):
    """The simulated death of the process."""


def dying(monkeypatch: pytest.MonkeyPatch, step: int, look: Callable[[], None]) -> Iterator[int]:
    """Context in which the process is killed before the given step is done; ``look`` is called at
    every step.
    """
    steps = iter(range(10_000))

    def wrapped(function: Callable[..., object]) -> Callable[..., object]:
        def before(*given: object) -> object:
            look()
            if next(steps) == step:
                raise DiedError
            return function(*given)

        return before

    for owner, name in ((Path, "rename"), (Path, "unlink"), (os, "fsync"), (Path, "rmdir")):
        monkeypatch.setattr(owner, name, wrapped(getattr(owner, name)))
    yield step


@pytest.mark.parametrize("starts", ["runtime", "merge"])
def test_killed_at_any_step_no_row_is_lost_or_seen_twice(tmp_path: Path, starts: str) -> None:
    steps = 0
    for step in range(200):
        folder = tmp_path / str(step)
        known = filled(folder, batches=5)

        def look(folder: Path = folder, known: dict[str, list[int]] = known) -> None:
            for query, rows in known.items():
                seen = Counter(read(folder, query))
                assert max(seen.values()) == 1
                assert seen.keys() <= set(rows)

        with pytest.MonkeyPatch.context() as patch:
            next(dying(patch, step, look))
            try:
                merge_results(folder, 4)
            except DiedError:
                steps += 1
            else:
                break
        if starts == "runtime":
            settle(folder)
        else:
            merge_results(folder, 9)
        assert {query: read(folder, query) for query in known} == known
        assert sorted(p.name for p in (folder / HOME).iterdir()) == ["lock"]
    assert 20 <= steps < 200


def test_batches_go_on_meanwhile_and_are_repeated(url: str, tmp_path: Path) -> None:
    """Also if the newest manifests are damaged, so that batches are repeated."""
    for epoch in range(8):
        publish(url, epoch, {"q": RS, "p": RS})
    one, last = driver(url, tmp_path), 0
    for batch in range(12):
        one.run(job(batch))
        last = batch
        if batch % 3 == 2:
            files = len(list((tmp_path / "results" / "q").iterdir()))
            merge(tmp_path / "state", tmp_path / "results")
            assert len(list((tmp_path / "results" / "q").iterdir())) <= min(files, 4)
            assert results(tmp_path) == expected(batch + 1)
        if batch == 7:
            with pytest.raises(Killed):
                one.run(die(job(8)))
            one = driver(url, tmp_path)
    for path in sorted((tmp_path / "state" / "manifest").iterdir())[-2:]:
        path.write_bytes(b"{}")
    again = driver(url, tmp_path)
    assert again.state.next_batch == last - 1
    for batch in range(last - 1, 14):
        again.run(job(batch))
    assert results(tmp_path) == expected(14) == results(tmp_path, "p")
