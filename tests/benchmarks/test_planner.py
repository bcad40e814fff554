"""Tests of the planning benchmark on tiny problems: counts and comparisons, never speed."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest

from anabranch_contract.plans.plan import Formulation, Objective, Optimizer, Solver
from benchmarks.planner import (
    command,
    part_figure9,
    part_incremental,
    part_rivals,
    part_solvers,
    part_targets,
    part_tpch,
)
from benchmarks.planner.part_rivals import Ratio, ratio
from benchmarks.planner.runs import (
    Case,
    Environment,
    Run,
    Shape,
    WrongPlanError,
    require_equal,
    require_no_worse,
    run,
    summary,
)
from benchmarks.planner.targets import MEBI, TARGETS, Kind, Target, verdict
from benchmarks.planner.worker import WorkerError, measure, peak_bytes
from benchmarks.report import __main__ as report
from benchmarks.report.charts import Line, lines
from benchmarks.report.figures import document, line

_TINY = Shape(6, 4, 3)
_RUN = Run(2.0, 1.5, {"build": 0.5, "solve": 1.0, "ruleset": 0.25}, 4, cost=10.0, gap=0.0)


def test_targets_are_data() -> None:
    assert len(set(TARGETS)) == len(TARGETS)
    with pytest.raises(FrozenInstanceError):
        TARGETS[0].wanted = 1.0  # type: ignore[misc]
    proven = {str(t.shape): t.wanted for t in TARGETS if t.kind is Kind.PROVEN}
    assert proven == {
        **{"100×100×3": 0.1, "100×10×4": 0.1, "100×100×4": 1.0, "100×10×5": 1.0},
        **{"100×30×5": 2.5, "100×1000×3": 1.5, "1000×1000×3": 3.0, "100×10×6": 4.0},
    }
    assert [t.wanted for t in TARGETS if t.kind is Kind.MEMORY] == [500 * MEBI]
    assert {t.kind for t in TARGETS} == set(Kind)


def test_a_target_is_met_at_its_figure_and_on_its_side() -> None:
    fast, saved = Target(Kind.PROVEN, _TINY, 0.1), Target(Kind.SAVED, _TINY, 0.4)
    assert [fast.met(x) for x in (0.05, 0.1, 0.11)] == [True, True, False]
    assert [saved.met(x) for x in (0.39, 0.4, 0.5)] == [False, True, True]
    found = {"median": 0.2, "low": 0.1, "high": 0.3}
    assert verdict(fast, found, parallelism=1) == {
        **{"kind": "proven", "shape": "6×4×3", "wanted": 0.1, "within": 0.0},
        **{"found": found, "met": False, "parallelism": 1},
    }


def test_a_case_is_its_json() -> None:
    case = Case(
        _TINY,
        3,
        environment=Environment.TREE,
        objective=Objective.PAPER,
        optimizer=Optimizer.SHARED,
        formulation=Formulation.PAPER,
        solver=Solver.CP_SAT,
        deadline=0.5,
    )
    assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_run_is_timed_and_its_parts_add_up(parallelism: int) -> None:
    found = run(Case(_TINY, 1, parallelism=parallelism))
    assert found.proven
    assert found.queries == 4
    assert 0 < found.probes < found.cost
    assert found.variables > 0
    assert {"build", "solve", "assemble", "ruleset"} <= set(found.phases)
    assert sum(found.phases.values()) == pytest.approx(found.seconds)
    assert 0 < found.planning < found.seconds
    summed = summary([found, replace(found, gap=0.5)])
    assert (summed["runs"], summed["proven"], summed["refused"]) == (2, 1, {})
    assert summed["gap"]["high"] == 0.5


def test_a_refusal_is_told_and_not_summed_up() -> None:
    found = run(Case(Shape(14, 1, 13), 1, formulation=Formulation.PAPER))
    assert found.refused == "formulation-limit"
    assert not found.proven
    assert summary([found]) == {"runs": 1, "proven": 0, "refused": {"formulation-limit": 1}}
    assert ratio(found, _RUN) is None


def test_wrong_plans_give_no_figures() -> None:
    require_equal("x", [_RUN, _RUN, replace(_RUN, cost=12.0, gap=0.2)])
    with pytest.raises(WrongPlanError, match="x: proven optima differ"):
        require_equal("x", [_RUN, replace(_RUN, cost=10.1)])
    require_no_worse("x", _RUN, replace(_RUN, cost=11.0))
    require_no_worse("x", replace(_RUN, cost=12.0, gap=0.2), replace(_RUN, cost=11.0))
    with pytest.raises(WrongPlanError, match="x: costs do not rise"):
        require_no_worse("x", _RUN, replace(_RUN, cost=9.0))


def test_ratios_leave_the_ruleset_out_and_are_lower_bounds_where_nothing_is_proven() -> None:
    slow = replace(_RUN, seconds=18.0, cpu=15.0)
    assert ratio(slow, _RUN) == Ratio(17.75 / 1.75, 10.0, at_least=False)
    # Time after the solver's own deadline does not count.
    assert ratio(replace(slow, gap=0.1), _RUN) == Ratio(1.5 / 1.75, 1.0, at_least=True)
    assert ratio(slow, replace(_RUN, gap=0.1)) is None


def test_no_ratio_is_claimed_where_the_tight_formulation_proves_nothing() -> None:
    target = next(t for t in TARGETS if t.kind is Kind.FASTER)
    tight = [_RUN, replace(_RUN, gap=0.1), replace(_RUN, gap=0.1)]
    ratios = [Ratio(1000.0, 900.0, at_least=True)]
    judged = part_rivals._judge(target, ratios, [_RUN] * 3, tight, 60.0, {})
    assert judged is not None
    assert judged["found"]["median"] == 1000.0
    assert (judged["problems"], judged["runs"], judged["at_least"]) == (1, 3, 1)
    assert not judged["met"]


def test_a_worker_has_its_own_memory_and_says_how_it_ended() -> None:
    ballast = bytearray(200 * MEBI)
    found = measure([Case(_TINY, seed) for seed in (1, 2)])
    assert [r.proven for r in found.runs] == [True, True]
    assert 20 * MEBI < found.peak_bytes < 200 * MEBI < peak_bytes()
    del ballast
    with pytest.raises(WorkerError, match="ended with code 1 after 0 of 1 runs"):
        measure([Case(Shape(2, 1, 3), 1)])


def _entry(part: str, found: dict[str, Any]) -> dict[str, Any]:
    return document("planner", {"seeds": 2}, (0.0, 0.0, 0.0)) | {"part": part} | found


@pytest.fixture(scope="module")
def entries() -> list[dict[str, Any]]:
    """Results of every part of the benchmark on tiny problems, converted to JSON and back."""
    small = Shape(6, 3, 3)
    targets = [
        Target(Kind.PROVEN, small, 60.0),
        Target(Kind.CERTIFIED, small, 0.01, within=60.0),
        Target(Kind.MEMORY, None, 1),
    ]
    found = {
        "targets": part_targets.measure_targets(part_targets.Options(2, (1, 2), 20.0, targets)),
        "incremental": part_incremental.measure_incremental(
            part_incremental.Options(2, (1,), 20.0, [Target(Kind.ADDED, small, 60.0, within=1.0)])
        ),
        "figure9": part_figure9.measure_figure9(
            part_figure9.Options(2, Environment.NATURAL, 20.0, (5, 8), (2, 4), (3, 4), (2,))
        ),
        "rivals": part_rivals.measure_rivals(
            part_rivals.Options(2, (1,), [Objective.PAPER], 20.0, [part_rivals.Duel(small, 1)])
        ),
        "solvers": part_solvers.measure_solvers(
            part_solvers.Options(1, (1, 2), 20.0, [Shape(5, 2, 3)], [Solver.BRANCH, Solver.CBC])
        ),
    }
    return [json.loads(line(_entry(part, one))) for part, one in found.items()]


@pytest.mark.slow
def test_parts_measure_what_they_say(entries: list[dict[str, Any]]) -> None:
    targets, incremental, figure9, rivals, solvers = entries
    assert [(g["kind"], g["parallelism"]) for g in targets["groups"]] == [
        *(("proven", 1), ("certified", 1), ("proven", 2), ("certified", 2))
    ]
    assert [v["met"] for v in targets["verdicts"]] == [True, True, False, True, True, False]
    (added,) = incremental["groups"]
    assert (added["first"]["queries"]["median"], added["added"]["queries"]["median"]) == (3, 4)
    assert added["improved"]["proven"] == 2
    assert added["improved"]["cost"]["median"] <= added["added"]["cost"]["median"]
    assert [(g["relations"], g["wanted"]) for g in figure9["costs"]] == [
        *((5, 2), (5, 4), (8, 2), (8, 4))
    ]
    for group in figure9["costs"]:
        assert 0 <= group["saved"]["median"] < 1
        sizes = group["printed_sizes"]
        assert sizes["decorated"]["orders"]["median"] > sizes["plain"]["orders"]["median"]
        assert sizes["plain"]["variables"] == group["printed"]["variables"]
    (duel,) = rivals["groups"]
    assert [(c["formulation"], c["runs"], c["proven"]) for c in duel["contenders"]] == [
        *(("paper", 1, 1), ("tight", 1, 1), ("tight", 1, 1))
    ]
    assert duel["ratio"]["problems"] == 1
    assert len(solvers["groups"]) == 4
    assert {g["proven"] for g in solvers["groups"]} == {1}
    assert len({g["cost"]["median"] for g in solvers["groups"]}) == 1


def test_savings_are_of_probes_and_of_all_costs() -> None:
    found = part_targets._savings(Shape(6, 8, 3), part_targets.Options(1, (1,), 20.0))
    paper, tuples = found["objectives"]["paper"], found["objectives"]["tuples"]
    assert paper["probes_saved"] == paper["cost_saved"]
    assert tuples["individual"]["probes"]["low"] < tuples["individual"]["cost"]["low"]
    for one in (paper, tuples):
        assert 0 < one["cost_saved_by_shared"]["low"] <= one["cost_saved"]["low"] < 1


@pytest.mark.slow
def test_the_report_shows_every_part(entries: list[dict[str, Any]], tmp_path: Path) -> None:
    figures = tmp_path / "benchmarks"
    figures.mkdir()
    old = {"benchmark": "planner", "part": "targets", "groups": [], "savings": []}
    kept = [old, *entries, {"benchmark": "planner", "problems": []}]
    (figures / "planner.jsonl").write_text("".join(line(e) + "\n" for e in kept))
    assert report.main(["--docs", str(tmp_path)]) == 0
    made = {p.name: p.read_bytes() for p in tmp_path.rglob("*") if p.suffix in (".md", ".svg")}
    assert report.main(["--docs", str(tmp_path)]) == 0
    assert {p.name: p.read_bytes() for p in tmp_path.rglob("*") if p.name in made} == made
    charts = [name for name in made if name.endswith(".svg")]
    assert sorted(charts) == [f"figure9{letter}.svg" for letter in "abcdef"]
    for name in charts:
        assert ElementTree.fromstring(made[name]).tag.endswith("svg")
    text = made["benchmarks.md"].decode()
    assert "| 6×3×3 proven optimal | parallelism 1 | ≤ 60 s |" in text
    assert "| 5 relations, 2 queries |" in text
    assert "| cbc | 2 |" in text
    tables = [row for row in text.splitlines() if row.startswith("|")]
    head = 0
    for row in tables:
        if set(row) <= set("|-:"):
            assert row.count("|") == head
        head = row.count("|")


@pytest.mark.slow
def test_the_demos_queries_are_planned_by_every_optimiser() -> None:
    found = part_tpch.measure_tpch(part_tpch.Options(1, (2,), 0.001, 20.0))
    assert found["queries"] == 5
    assert [g["objective"] for g in found["groups"]] == ["tuples", "paper"]
    for group in found["groups"]:
        assert group["of_individual"]["individual"]["high"] == 1
        assert group["of_individual"]["clash"]["high"] < 1
        assert group["optimizers"]["clash"]["proven"] == 1


@pytest.mark.slow
def test_the_command_prints_one_line_per_part(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--json", "--seeds", "1", "--only", "tpch", "--scale", "0.001"]
    assert command.main([*arguments, "--parallelism", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["benchmark"], found["part"]) == ("planner", "tpch")
    assert found["sources"] == command.fingerprint()
    assert found["settings"] == {"seeds": 1, "parallelism": [1], "limit": 30.0, "scale": 0.001}
    with pytest.raises(SystemExit):
        command.main(["--seeds", "0"])
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks.planner", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "targets" in told.stdout


def test_there_are_no_figures_where_the_code_changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    digests = iter(["before", "after"])
    monkeypatch.setattr(command, "fingerprint", lambda: next(digests))
    monkeypatch.setattr(command, "_measure", lambda *_: {"verdicts": []})
    assert command.main(["--json", "--only", "targets"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "changed while it was measured" in printed.err


def test_lines_are_drawn_in_their_place() -> None:
    chart = lines("T", "x", "y", [Line("a", ((0.0, 1.0), (10.0, 100.0)))], logarithmic=True)
    root = ElementTree.fromstring(chart)
    circles = [e for e in root.iter() if e.tag.endswith("circle")]
    low, high = ((float(c.attrib["cx"]), float(c.attrib["cy"])) for c in circles)
    assert low[0] < high[0]
    assert low[1] - high[1] == pytest.approx(240)
