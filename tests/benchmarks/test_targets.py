"""Tests of verdicts on benchmark targets: derived from intervals, on every page."""

from __future__ import annotations

import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.dppick import ablations
from benchmarks.dppick.targets import targets as of_orders
from benchmarks.report.figures import Spread, student
from benchmarks.report.targets import FEW, Figure, Target, Verdict, grid, keeps, paragraphs
from benchmarks.runtime.report.targets import targets as of_runtime

DOCS = Path(__file__).resolve().parents[2] / "docs"
#: Multiples of 0.01, so that rounding to two digits is exact.
FIGURES = st.integers(1, 100_000).map(lambda hundredths: hundredths / 100)


@pytest.mark.parametrize(
    ("runs", "limit", "least", "verdict"),
    [
        ([0.9, 0.92, 0.91, 0.95, 0.93], 1.0, False, Verdict.YES),
        ([1.1, 1.2, 1.05, 1.3, 1.01], 1.0, False, Verdict.NO),
        # The median meets the limit, one run does not.
        ([0.9, 0.92, 0.91, 0.95, 1.01], 1.0, False, Verdict.UNDECIDED),
        ([0.9, 0.92, 0.91, 0.95, 0.93], 0.9, True, Verdict.YES),
        # Of 20 runs a few may miss the limit: the median's interval excludes five at either end.
        ([0.9] * 16 + [1.5] * 4, 1.0, False, Verdict.YES),
        ([0.9] * 14 + [1.5] * 6, 1.0, False, Verdict.UNDECIDED),
        # Three runs may be on one side by chance.
        ([0.9, 0.92, 0.91], 1.0, False, Verdict.UNDECIDED),
        ([0.3, 0.31, 0.32], 1.0, False, Verdict.YES),
        ([0.5], 1.0, False, Verdict.YES),
        ([0.9], 1.0, False, Verdict.UNDECIDED),
        ([3.0], 1.0, False, Verdict.NO),
    ],
)
def test_a_verdict_is_that_of_the_interval(
    runs: list[float], limit: float, least: bool, verdict: Verdict
) -> None:
    assert Figure.median(runs).verdict(limit, least=least) is verdict


@given(st.lists(FIGURES, min_size=1, max_size=40), FIGURES, st.booleans())
def test_a_decided_verdict_agrees_with_the_median_and_with_saved_figures(
    runs: list[float], limit: float, least: bool
) -> None:
    figure = Figure.median(runs)
    low, high = figure.interval
    assert low <= statistics.median(runs) <= high
    verdict = figure.verdict(limit, least=least)
    if verdict is not Verdict.UNDECIDED:
        assert keeps(statistics.median(runs), limit, least) is (verdict is Verdict.YES)
    saved = Figure.of(json.loads(json.dumps(Spread.of(runs).rounded(12))), runs=1)
    assert saved.interval == pytest.approx(figure.interval)
    # A line saved before intervals has the runs' range, which decides less often, never
    # differently.
    older = Figure.of({"median": figure.value, "low": min(runs), "high": max(runs)}, len(runs))
    if len(runs) >= FEW:
        assert older.interval == (min(runs), max(runs))
    if older.verdict(limit, least=least) is not Verdict.UNDECIDED:
        assert older.verdict(limit, least=least) is verdict


@given(st.integers(6, 400))
def test_the_interval_of_a_median_misses_it_in_one_case_of_twenty(runs: int) -> None:
    low, high = Spread.of(range(runs)).interval
    outside = sum(math.comb(runs, below) for below in range(round(low) + 1))
    assert high == runs - 1 - low
    missed = 2 * outside / 2**runs
    narrower = missed + 2 * math.comb(runs, round(low) + 1) / 2**runs
    assert missed <= 0.051 < narrower + 0.002


def test_a_mean_has_the_interval_of_its_cases() -> None:
    assert Figure.mean([1.0, 1.0, 1.0, 1.0]).verdict(1.0, least=False) is Verdict.YES
    figure = Figure.mean([0.6, 0.82, 0.93])
    assert figure.interval == pytest.approx(student([0.6, 0.82, 0.93]))
    assert figure.verdict(0.9, least=False) is Verdict.UNDECIDED
    # A saving decreases as its ratio grows, so the interval's ends are swapped.
    saved = figure.map(lambda ratio: 100 * (1 - ratio))
    assert saved.interval == pytest.approx([100 * (1 - end) for end in reversed(figure.interval)])


def test_a_ratio_has_the_ends_of_both() -> None:
    over, under = Figure.median([8.0, 9.0, 10.0, 11.0, 12.0]), Figure.median([1.0] * 5)
    assert over.over(under).interval == (8.0, 12.0)
    assert over.over(Figure.median([-1.0, 1.0, 1.0, 1.0, 1.0])).interval[1] == math.inf
    assert over.over(Figure.once(0.0)).verdict(1.5, least=False) is Verdict.NO


def test_one_failed_condition_is_a_no_and_one_undecided_leaves_it_open() -> None:
    yes, no, open_ = Verdict.YES, Verdict.NO, Verdict.UNDECIDED
    assert Verdict.all([yes, yes]) is yes
    assert Verdict.all([yes, open_]) is open_
    assert Verdict.all([open_, no, yes]) is no
    failed = Target("x", Figure.counted(1), 1, True, also=no, note="3 failed")
    assert failed.row()[-1] == "no"
    assert "3 failed" in failed.row()[2]
    assert paragraphs(grid([])) == []


def test_throughput_lost_within_noise_is_undecided() -> None:
    """Three runs with losses of -77 to 30 % show neither a loss of 2 % nor its absence."""
    spread = {"median": -0.269, "low": -0.7729, "high": 0.3044}
    none = {"median": 0, "low": 0, "high": 0}
    one = {"added_state_bytes": none, "throughput_lost": spread, "cpu_added": spread}
    entry = {"settings": {"runs": 3}, "added": {"written": one}}
    rows = {row[0]: row for row in of_runtime({"queries": entry}).rows}
    row = rows["a query whose joins run: throughput, of that without it"]
    assert row[2:4] == ("1.27 × (0.70–1.77)", "3")
    assert row[-1] == "undecided"
    assert rows["a query whose joins run: added state"][-1] == "yes"


def _orders(pairs: list[tuple[int, int]]) -> dict[str, Any]:
    def one(work: int) -> dict[str, Any]:
        return {"probes": work, "matches": 0, "seconds": {"median": 1, "low": 1, "high": 1}}

    orders = {str(n): {"dppick": one(a), "no-smooth": one(b)} for n, (a, b) in enumerate(pairs)}
    return {"settings": {"rounds": 1}, "orders": orders}


def test_ties_are_no_wins() -> None:
    entry = _orders([(1, 2)] * 13 + [(2, 2)] * 10 + [(3, 2)])
    tally = ablations.tally(entry, "no-smooth")
    assert (tally.wins, tally.ties, tally.losses) == (13, 10, 1)
    row, by_time = of_orders({"ablations": entry}).rows
    assert row[2] == "93 %; 13 less, 10 equal, 1 more"
    assert row[-1] == "yes"
    # Equal times of one run each decide nothing.
    assert by_time[-1] == "undecided"
    (tied, _) = of_orders({"ablations": _orders([(2, 2)] * 23 + [(1, 2)])}).rows
    assert tied[2] == "100 %; 1 less, 23 equal, 0 more"
    assert tied[-1] == "undecided"


def _pages() -> list[Path]:
    return [
        page
        for page in sorted(DOCS.glob("benchmarks*.md"))
        if re.search(r"^#+ Targets", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]


def _number(text: str) -> float:
    return math.inf if text == "∞" else float(text.replace(",", ""))


@pytest.mark.parametrize("page", _pages(), ids=lambda page: page.stem)
def test_every_page_has_verdicts_that_follow_from_its_intervals(page: Path) -> None:
    """In each row of a table of targets, the shown interval leads to the shown verdict."""
    rows, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        inside = line.startswith("| target |") or (inside and line.startswith("|"))
        if inside and not line.startswith(("| target |", "|---")):
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    assert rows
    for *before, runs, interval, met in rows:
        assert met in {"yes", "no", "undecided"}
        wanted = re.search(r"([≤≥]) ([\d,.]+)", " ".join(before))
        if not interval or wanted is None:
            assert runs == "counted" or wanted is None
            assert met != "undecided"
            continue
        least, limit = wanted[1] == "≥", _number(wanted[2])
        low, high = map(_number, re.fullmatch(r"(-?[\d.,∞]+)–(-?[\d.,∞]+)", interval).groups())  # type: ignore[union-attr]
        digits = len(interval.partition("–")[0].partition(".")[2])
        off = 0.5 * 10**-digits
        bad, good = (low, high) if least else (high, low)
        sign = 1 if least else -1
        if met == "yes":
            assert sign * (bad - limit) >= -off, before
        elif met == "undecided":
            assert sign * (bad - limit) <= off, before
        if met == "undecided":
            assert sign * (good - limit) >= -off, before
