"""Tests of the benchmark of placements (PMJoin) at a small scale, and of its report."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.papers.pmjoin.exact import exact
from benchmarks.papers.pmjoin.operators import cost
from benchmarks.papers.pmjoin.partitioners import by_range, placed
from benchmarks.papers.pmjoin.rates import windowed
from benchmarks.papers.pmjoin.stream_join_opt import stream_join_opt
from benchmarks.pmjoin import (
    defaults,
    hot_keys,
    looking_ahead,
    partial,
    readings,
    report,
    several_keys,
    simulation,
    sites,
    skew,
    turns,
)
from benchmarks.pmjoin.defaults import Side
from benchmarks.pmjoin.draws import KINDS, Kind, Reading, drawn, weights
from benchmarks.pmjoin.routing import route
from benchmarks.pmjoin.skew import Skew


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


def test_what_the_paper_leaves_open_is_drawn_as_the_reading_says() -> None:
    kind = Kind(similar=False)
    spots = {
        shifted: [
            int(weights(rng, 50, kind).argmax())
            if not shifted
            else int(drawn(rng, kind, [1.0], [1.0], 50, Reading(shifted=True))[0].argmax())
            for rng in map(np.random.default_rng, range(60))
        ]
        for shifted in (False, True)
    }
    # The frequent values are at an end, or in the middle.
    assert set(spots[False]) <= {0, 24, 25, 49}
    assert len(set(spots[True])) > 20
    narrow = Reading(deviations=(0.001, 0.002))
    widths = [
        (weights(np.random.default_rng(seed), 1000, kind, narrow) > 0).sum() for seed in range(60)
    ]
    assert min(widths) < 200
    assert max(widths) == 1000


def test_every_tuple_is_routed_and_as_many_are_sent_as_the_plans_say() -> None:
    rng = np.random.default_rng(5)
    rates, windows = drawn(rng, Kind(similar=False), [90.0, 70.0, 50.0, 800.0], [0.1] * 4, 40)
    found = windowed(rates, windows)
    for groups in (1, 8):
        made = placed(found, range(4), by_range(40, groups), stream_join_opt)
        routed = route(found, made, seed=1)
        expected = sum(group.cost for group in made)
        assert routed.sent == pytest.approx(expected, abs=6 * expected**0.5)
        assert routed.tuples >= sum([90, 70, 50, 800]) - 6 * 1010**0.5
        assert routed.milliseconds > 0


def test_what_each_value_costs_at_least_is_its_exact_placement() -> None:
    rng = np.random.default_rng(7)
    rates, windows = drawn(rng, Kind(similar=False), [90.0, 70.0, 50.0, 80.0], [0.3] * 4, 25)
    found = windowed(rates, windows)
    parts = (found.of(np.array([value])) for value in range(25))
    expected = sum(cost(exact(part, range(4)), part) for part in parts)
    assert readings.each_exactly(found) == pytest.approx(expected)


def test_queries_by_several_keys_join_all_streams() -> None:
    for seed in range(50):
        having = several_keys.query(np.random.default_rng(seed))
        assert 3 <= len(having) <= 7
        assert all(len(some) > 1 for some in having)
        reached, left = {0}, [set(some) for some in having]
        for _ in having:
            for some in left:
                if reached & some:
                    reached |= some
        assert reached == set(range(several_keys.STREAMS))


def test_every_figure_in_small(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {
        "STREAMS": 4, "RANGES": (10,), "COUNTS": (10, 14), "PARTITIONS": (1, 2, 1000),
        "STREAM_COUNTS": (4,), "EASY": 1,
    }.items():  # fmt: skip
        monkeypatch.setattr(simulation, name, value)
    monkeypatch.setattr(drawn, "__defaults__", (12, *(drawn.__defaults__ or ())[1:]))
    monkeypatch.setattr(readings, "STREAMS", 4)
    monkeypatch.setattr(readings, "DRAWS", 2)
    for name, few in {"STREAMS": 8, "QUERIES": 6, "RANGES": (10, 100)}.items():
        monkeypatch.setattr(several_keys, name, few)
    found = simulation.measure(argparse.Namespace(seeds=1), tmp_path)
    assert found["figures"].keys() == {"5", "6", "7", "8", "9", "10", "11", "readings"}
    line = {"part": "simulation", "settings": {}, **found}
    for row in found["figures"]["11"]:
        assert row["queries"] == 6
        best = min(row[name] for name in ("one_plan", *several_keys.SELECTIONS))
        assert row["saving"] <= best + 1e-3
    for row in found["figures"]["readings"]:
        assert row["each_exactly_×"] <= row["each_×"] + 1e-3
        assert row["least_×"] <= row["each_×"] <= row["most_×"] <= 1.001
    assert "with two groups by rate" in report.note_on_groups(line)
    assert "1,000 groups by plan" in report.note_on_routing(line)
    assert "alternative" in report.note_on_selections(line)
    for row in found["figures"]["8"]:
        assert row["plan"] <= min(row[way] for way in simulation.WAYS) + 1e-3
    for row in found["figures"]["6"]:
        assert row["exact"] <= row["stream_join_opt"] <= row["simple"] * 1.001
    (tmp_path / "benchmarks").mkdir()
    headings = [grid.title for grid in simulation.tables(line)]
    assert sorted(headings) == sorted(simulation.HEADINGS.values())
    drawings = report.charts(line)
    assert len(drawings) == 9
    assert all(svg.startswith("<svg") for svg in drawings.values())
    wanted = report.targets(line)
    assert [str(one.verdict) for one in wanted if one.what.startswith("chosen")] == ["yes"]
    assert report.main(["--docs", str(tmp_path)]) == 1
    assert "no figures of placement" in capsys.readouterr().err


def test_looking_ahead_in_small(tmp_path: Path) -> None:
    """Run the look-ahead measurement, which fails unless DuckDB counts the same results."""
    options = argparse.Namespace(rows=[40_000], batches=4, rounds=1, seed=1, scale=0.0)
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
    assert len(report.targets_ahead(found | {"settings": vars(options)})) == 4


def test_kinds_of_values_in_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run the measurement of value kinds, which fails unless DuckDB counts the same results."""
    monkeypatch.setattr(skew, "EMPTY", 2)
    monkeypatch.setattr(turns, "PLANS", 1)
    skews = (Skew("different", 1.2, 20_000), Skew("equal", 0.3, 200_000))
    monkeypatch.setattr(skew, "SKEWS", (*skews, Skew("chain", 1.2, 20_000)))
    options = argparse.Namespace(
        kinds=[1, 4, 8], heavy=["different", "equal"], sizes=[100_000], rounds=1
    )
    found = skew.measure(options, tmp_path)
    rows = {(row["heavy"], row["most"], row["mir"]): row for row in found["rows"]}
    assert len(rows) == 10
    assert rows["different", 1, True]["chosen"] == 0
    # In such small batches, additional calls cost more than probe orders by value save.
    assert rows["different", 4, True]["chosen"] == 0
    assert rows["different", 4, True]["work"] == pytest.approx(1)
    assert rows["equal", 4, True]["chosen"] == 0
    (grid,) = skew.tables(found)
    assert len(grid.rows) == 10
    assert len(report.targets_apart(found | {"settings": vars(options)})) == 6


def test_a_chain_of_two_keys_in_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(skew, "EMPTY", 1)
    monkeypatch.setattr(turns, "PLANS", 1)
    monkeypatch.setattr(skew, "FIRST", 4_000)
    monkeypatch.setattr(skew, "SKEWS", (Skew("chain", 1.2, 500, 4_000),))
    options = argparse.Namespace(kinds=[1, 4], heavy=["chain"], sizes=[4_000], rounds=1)
    found = skew.measure(options, tmp_path)
    assert [(row["most"], row["mir"]) for row in found["rows"]] == [
        (1, True), (4, True), (1, False), (4, False),
    ]  # fmt: skip
    assert all(row["results"] > 0 for row in found["rows"])
    assert "each" not in found["rows"][0]


@pytest.mark.parametrize(("heavy", "exponent"), [("different", 1.2), ("equal", 0.3)])
def test_own_orders_cost_no_more_than_any_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, heavy: str, exponent: float
) -> None:
    monkeypatch.setattr(skew, "FIRST", 4_000)
    workload = Skew(heavy, exponent, 2_000, 4_000).workload()
    bounds = skew.own_orders(workload)
    with turns.pipeline(workload, tmp_path / "run", every=2, mir=False) as engine:
        found = turns.measured(engine, workload, skew.WARM)
    assert bounds["each"] <= bounds["listed"] <= found["work"]


def test_defaults_in_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run the measurement of defaults, which fails unless DuckDB counts the same results."""
    monkeypatch.setattr(turns, "PLANS", 1)
    monkeypatch.setattr(skew, "FIRST", 4_000)
    monkeypatch.setattr(defaults, "ONE_KEY", Skew("different", 1.2, 500, 4_000))
    monkeypatch.setattr(defaults, "SIDES", (Side(), Side(4), Side(1, 4, 2)))
    folder = tmp_path / "cache" / "sf0.001"
    _tpcds(folder)
    options = argparse.Namespace(scale=0.001, ds_scale=0.001, cache=tmp_path / "cache", rounds=1)
    found = defaults.measure(options, tmp_path)
    sides = len(defaults.SIDES)
    assert [row["workload"] for row in found["rows"][::sides]] == [
        "different, 1.2, 4,000", "TPC-H", "TPC-DS",
    ]  # fmt: skip
    assert all(row["results"] > 0 for row in found["rows"])
    assert all(row["same"] for row in found["rows"] if row["partitions"] == 1)
    (grid,) = defaults.tables(found)
    assert len(grid.rows) == 3 * sides
    assert len(report.targets_defaults(found | {"settings": vars(options)})) == 4


def _tpcds(folder: Path) -> None:
    """Write TPC-DS tables of few rows: real ones need a wheel to generate."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    for name, columns in defaults.COLUMNS.items():
        rows = 40 if name in ("customer", "item") else 300
        keys = {
            column: np.arange(rows) if name in ("customer", "item") and column.endswith("_sk")
            else random.integers(0, 4 if column.endswith("ticket_number") else 40, rows)
            for column in columns
        }  # fmt: skip
        pq.write_table(pa.table(keys), folder / f"{name}.parquet")


def test_partial_results_in_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run the measurement of partial results, which fails unless all variants have equally many
    results.
    """
    monkeypatch.setattr(partial, "MEASURED", 4)
    found = partial.measure(argparse.Namespace(rows=[150_000], rounds=1), tmp_path)
    rows = {row["side"]: row for row in found["rows"]}
    assert rows["none"]["stored"] == 0
    assert 0 < rows["partial"]["stored"] < 0.5 * rows["whole"]["stored"]
    assert rows["partial"]["work"] < rows["none"]["work"]
    (grid,) = partial.tables(found)
    assert len(grid.rows) == 3
    assert len(report.targets_kept(found)) == 2


def test_hot_keys_in_small(tmp_path: Path) -> None:
    """Run the hot-key measurement, which fails unless DuckDB counts the same results."""
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


def test_sites_in_small(tmp_path: Path) -> None:
    """Run the measurement of sites, which fails unless DuckDB counts the same results."""
    options = argparse.Namespace(
        rows=400, batches=8, exponents=[0.3, 1.2], partitions=[32], seeds=[1]
    )
    found = sites.measure(options, tmp_path)
    assert [(one["workload"], one["values"], one["exponent"]) for one in found["runs"]] == [
        ("one key", "different", 0.3),
        ("one key", "different", 1.2),
        ("chain", "different", 1.2),
        ("one key", "equal", 0.3),
        ("one key", "different", 1.2),
    ]
    even, skewed = found["runs"][:2]
    assert skewed["placed"]["sent"] < 0.9 * skewed["hashed"]["sent"]
    assert skewed["placed"]["local"] > 0.4
    assert even["placed"]["sent"] > 0.9 * even["hashed"]["sent"]
    (grid,) = sites.tables(found)
    assert len(grid.rows) == 5
    assert len(report.targets_placed(found)) == 2


def test_the_reason_for_missed_targets_has_its_figures_from_the_lines() -> None:
    def row(heavy: str, most: int, *, mir: bool, cpu: float, work: float) -> dict[str, object]:
        about = {"heavy": heavy, "exponent": 1.2, "size": 1_000_000, "values": 80_000}
        return {**about, "most": most, "mir": mir, "cpu": {"median": cpu}, "work": work}

    entry = {
        "rows": [
            *(row("different", n, mir=True, cpu=0.9, work=1.0) for n in (1, 4)),
            *(row("different", n, mir=False, cpu=0.6, work=1.2) for n in (1, 4)),
            *(row("chain", n, mir=True, cpu=1.0, work=1.0) for n in (1, 4)),
            *(row("chain", n, mir=False, cpu=0.5, work=0.75) for n in (1, 4)),
            row("scattered", 1, mir=True, cpu=9.0, work=1.0),
        ]
    }
    note = report.note_on_prices(entry)
    assert note.count("1.50 to 2.00 times") == 2
    assert "(0.75 times the work in the chain of a million tuples)" in note
