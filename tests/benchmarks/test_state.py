"""Tests of the state store's benchmarks at a tiny scale: output and checks."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from benchmarks.state import (
    amplification,
    budgets,
    caps,
    crossover,
    filters,
    operations,
    report,
    sensitivity,
    tpcds,
)
from tests.support.surroundings.cgroups import UNAVAILABLE, memory_group


def test_filters(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rows", "2000", "--probes", "300", "--rounds", "3"]
    assert filters.main(["--json", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    (asked,), (compared,) = found["matching"], found["kinds"]
    assert set(asked["nanoseconds"]) == {"hit", "miss", "hit_without", "miss_without"}
    assert set(compared["kinds"]) == {"blocked", "bloom", "fuse"}
    for kind in compared["kinds"].values():
        assert kind["wrong"] < 0.05
        assert 8 < kind["bits_per_key"] < 20
    assert filters.main(arguments) == 0
    assert "blocked" in capsys.readouterr().out


def test_operations(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rows", "3000", "--batches", "1000", "--rounds", "1", "--skip-capped"]
    assert operations.main(["--json", *arguments]) == 0
    entry = json.loads(capsys.readouterr().out)
    (one,) = entry["sizes"]
    assert set(one["fits"]["per_second"]) == {"lsm", "memory", "rocksdb"}
    assert set(one["fits"]["lsm_over"]["rocksdb"]) == {"hit", "miss", "insert", "expire"}
    assert "lsm/this hit" in operations.tables(entry)[0].markdown()


def test_amplification(capsys: pytest.CaptureFixture[str]) -> None:
    """The targets for many batches also hold for fewer."""
    assert amplification.main(["--json", "--batches", "150", "--rows", "300"]) == 0
    entry = json.loads(capsys.readouterr().out)
    for one in entry["kept"]:
        assert 1 <= one["write"] <= 6
        assert 1 <= one["space"]["median"] <= 1.6
    assert "for ever" in amplification.tables(entry)[0].markdown()


def _tables(cache: Path) -> None:
    """Write tables like TPC-DS's with few columns and rows: generating real ones takes a
    minute.
    """
    folder = cache / "sf0.001"
    folder.mkdir(parents=True)
    with duckdb.connect() as db:
        for number, (table, column) in enumerate(tpcds.TABLES.items()):
            db.execute(
                f"COPY (SELECT CASE WHEN i % 11 = 0 THEN NULL ELSE (i * {7 + number}) % 200 END "
                f"AS {column}, i AS id{number}, 'text ' || i AS t{number} FROM range({700 + number}"
                f" * 2) r(i)) TO '{folder / table}.parquet' (FORMAT parquet)"
            )


@pytest.mark.slow
def test_experiments_over_tpcds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with memory_group(1 << 30) as group:
        if group is None:
            pytest.skip(UNAVAILABLE)
    _tables(tmp_path / "cache")
    docs = tmp_path / "docs"
    (docs / "benchmarks").mkdir(parents=True)
    common = ["--json", "--scale", "0.001", "--batch", "600", "--cache", str(tmp_path / "cache")]
    for part, more in (
        (caps, ["--shares", "4"]),
        (budgets, ["--shares", "99", "--finalists", "2"]),
        (sensitivity, ["--batches", "600", "2000", "--caches", "99"]),
    ):
        assert part.main([*common, *more]) == 0
        line = capsys.readouterr().out
        assert part.tables(json.loads(line))[0].markdown()
        with (docs / "benchmarks" / "state.jsonl").open("a") as file:
            file.write(line)
    assert report.main(["--docs", str(docs)]) == 0
    text = (docs / "benchmarks-state.md").read_text()
    assert "Multi-way join and binary joins" in text
    assert (docs / "benchmarks" / "state-caps.svg").exists()
    assert report.main(["--docs", str(tmp_path)]) == 1


def _crossing(capped: list[tuple[float, float, float]], ratio: list[float]) -> dict[str, object]:
    low, median, high = ratio
    found = {"median": median, "low": low, "high": high}
    return {
        "settings": {"rounds": 5},
        "data": 100 << 20,
        "state": 110 << 20,
        "intermediate": 240 << 20,
        "capped": [
            {
                "share": share,
                "multi-way": {"ended": "done", "seconds": multi},
                "best tree": {"ended": "done", "seconds": tree},
            }
            for share, multi, tree in capped
        ],
        "ample": [{"batch": 20_000, "cpu_ratio": found}],
    }


def test_a_crossover_is_found_beyond_noise_or_not_at_all() -> None:
    # With one run each, 34 s and 41 s may differ by noise, 10 s and 41 s do not.
    none = _crossing([(2, 18, 34), (8, 41, 34)], [1.3, 1.4, 1.5])
    assert list(crossover.verdicts(none).values()) == ["no", "undecided", "no"]
    told = crossover.note(none)
    assert "no crossover was found in budgets up to 8 times the multi-way join's state" in told
    assert "undecided: with 8 times the state." in told
    assert "4.7 times the input; here it keeps 240.0 MiB, 2.4 times the input" in told
    there = _crossing([(2, 18, 34), (8, 41, 10)], [0.7, 0.8, 0.9])
    assert list(crossover.verdicts(there).values()) == ["no", "yes", "yes"]
    told = crossover.note(there)
    assert "the tree is faster with 8 times the state; without a cap, by batches of 20,000" in told
