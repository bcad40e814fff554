"""The simulation of placements, in small, and its report."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.pmjoin import hot_keys, looking_ahead, report, simulation, skew
from benchmarks.pmjoin.simulation import KINDS, Kind, drawn, weights

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_weights_are_parts_of_a_whole(kind: Kind) -> None:
    for seed in range(20):
        found = weights(np.random.default_rng(seed), 50, kind)
        assert found.shape == (50,)
        assert found.sum() == pytest.approx(1)
        assert (found >= 0).all()


def test_similar_streams_have_their_hot_spots_together() -> None:
    rates, windows = drawn(
        np.random.default_rng(1), Kind(similar=True, contiguous=False), [10.0, 20.0], [3.0, 5.0]
    )
    assert rates.argmax(axis=1).tolist() == [rates[0].argmax()] * 2
    assert rates.sum(axis=1) == pytest.approx([10, 20])
    assert windows.sum(axis=1) == pytest.approx([30, 100])


def test_every_figure_in_small(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {
        "STREAMS": 4, "VALUES": 12, "RANGES": (10,), "COUNTS": (10, 14), "PARTITIONS": (1, 2, 1000),
    }.items():  # fmt: skip
        monkeypatch.setattr(simulation, name, value)
    monkeypatch.setattr(simulation, "STREAM_COUNTS", (4,))
    monkeypatch.setattr(simulation.drawn, "__defaults__", (12,))
    found = simulation.measure(argparse.Namespace(seeds=1), tmp_path)
    assert found["figures"].keys() == {"5", "6", "7", "8", "10"}
    for row in found["figures"]["8"]:
        assert row["plan"] <= min(row[way] for way in simulation.WAYS) + 1e-3
    for row in found["figures"]["6"]:
        assert row["exact"] <= row["stream_join_opt"] <= row["simple"] * 1.001
    (tmp_path / "benchmarks").mkdir()
    line = {"part": "simulation", "settings": {}, **found}
    headings = [grid.title for grid in simulation.tables(line)]
    assert headings == list(simulation.HEADINGS.values())
    rows = report.targets(line)
    assert [row[-1] for row in rows if row[0].startswith("chosen")] == ["yes"]
    assert report.main(["--docs", str(tmp_path)]) == 1
    assert "no figures of placement" in capsys.readouterr().err


def test_looking_ahead_in_small(tmp_path: Path) -> None:
    """Results are those that DuckDB counts, or there would be no figures."""
    options = argparse.Namespace(rows=[1500], batches=4, rounds=1, seed=1, scale=0.0)
    found = looking_ahead.measure(options, tmp_path)
    star, one_key = found["workloads"]
    assert list(star["sides"]) == ["off", "on", "off, with MIRs", "on, with MIRs"]
    assert all(results > 0 for one in (star, one_key) for results in one["results"].values())
    off, on = ({n: f["median"] for n, f in star["sides"][side].items()} for side in ("off", "on"))
    assert (off["asked"], off["dropped"]) == (0, 0)
    assert on["asked"] > on["dropped"] > 0
    assert on["probes"] + on["matches"] < off["probes"] + off["matches"]
    grids = looking_ahead.tables(found)
    assert [len(grid.rows) for grid in grids] == [8, 4]
    assert len(report.targets_ahead(found)) == 4


def test_kinds_of_values_in_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs by one order and by several give as many results, or there would be no figures."""
    monkeypatch.setattr(skew, "FIRST", 1500)
    monkeypatch.setattr(skew, "EMPTY", 2)
    monkeypatch.setattr(skew, "PLANS", 1)
    monkeypatch.setattr(skew, "WORKLOADS", (("different", 1.2, 1500), ("equal", 0.3, 9000)))
    options = argparse.Namespace(
        kinds=[1, 4, 8], heavy=["different", "equal"], exponents=[0.3, 1.2], rows=[1500], rounds=1
    )
    found = skew.measure(options, tmp_path)
    rows = {(row["heavy"], row["most"]): row for row in found["rows"]}
    assert len(rows) == 6
    assert rows["different", 1]["chosen"] == 0
    assert rows["different", 4]["chosen"] > 1
    assert rows["different", 4]["work"] < 1
    assert rows["equal", 4]["chosen"] == 0
    (grid,) = skew.tables(found)
    assert len(grid.rows) == 6
    assert len(report.targets_apart(found)) == 5


def test_hot_keys_in_small(tmp_path: Path) -> None:
    """Results are those that DuckDB counts, or there would be no figures."""
    options = argparse.Namespace(rows=400, batches=8, exponents=[0.0, 1.2], seeds=[1])
    found = hot_keys.measure(options, tmp_path)
    runs = {(one["workload"], one["exponent"]): one for one in found["runs"]}
    assert list(runs) == [("pair", 0.0), ("pair", 1.2), ("one key", 1.2), ("chain", 1.2)]
    assert runs["pair", 0.0]["on"]["hot"] == 0
    skewed = runs["pair", 1.2]
    assert skewed["on"]["hot"] > 0
    assert skewed["off"]["hot"] == 0
    assert skewed["on"]["busiest"] < skewed["off"]["busiest"]
    (grid,) = hot_keys.tables(found)
    assert len(grid.rows) == 4
    assert len(report.targets_hot(found)) == 4
