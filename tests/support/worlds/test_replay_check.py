"""Tests that the check of a replay detects faults, in replays made from the oracle's results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.oracles.oracle import Oracle
from tests.support.scenarios.draw import Generated, generate
from tests.support.scenarios.file import activation_in, read_report, read_scenario
from tests.support.scenarios.seeds import FEW
from tests.support.worlds.replay_check import check, filtered


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    """A scenario with a faultless replay in ``out``, in which all tuples are stored."""
    generated = generate(FEW[-1], tmp_path_factory.mktemp("scenario"))
    out = generated.folder / "out"
    scenario = read_scenario(generated.path)
    oracle = Oracle(scenario)
    counts = {name: oracle.counts(name) for name in scenario.streams}
    report: dict[str, Any] = {
        "batches": oracle.batches(),
        "input_tuples": sum(c.rows for c in counts.values()),
        "late_tuples": {n: c.late for n, c in counts.items()},
        "invalid_tuples": {n: c.invalid for n, c in counts.items()},
        "ahead_tuples": {n: c.ahead for n, c in counts.items()},
        "queries": {},
    }
    for name, query in generated.queries.items():
        begins, ends = scenario.span(name, oracle.batches())
        report["queries"][name] = {
            "status": "active",
            "activated_batch": begins,
            "expired_batch": ends,
            "visible_from": {a: {"batch": 0, "event_time": None} for a, _ in query.members},
        }
        activation = activation_in(report, name)
        assert activation is not None
        folder = out / "results" / name
        folder.mkdir(parents=True)
        rows = oracle.sql(query, scenario.queries[name], activation)
        names = ", ".join(f'"{label}"' for _, label, _ in query.select)
        oracle.db.execute(f"CREATE TABLE made AS SELECT * FROM ({rows}) AS r({names})")
        oracle.db.execute(f"COPY made TO '{folder}/part-0.parquet' (FORMAT parquet)")
        count = oracle.db.execute("SELECT count(*) FROM made").fetchone()
        assert count is not None
        report["queries"][name]["results"] = count[0]
        oracle.db.execute("DROP TABLE made")
    oracle.close()
    (out / "report.json").write_text(json.dumps(report))
    return generated


def problems(generated: Generated, change: Any = None) -> tuple[str, ...]:
    """Return the problems that the check finds after ``change`` was made to the report."""
    out = generated.folder / "out"
    kept = (out / "report.json").read_text()
    report = read_report(out)
    if change:
        change(report)
    (out / "report.json").write_text(json.dumps(report))
    try:
        found = check(generated.path, out, generated.queries).problems
        assert check(generated.path, out).problems == found
    finally:
        (out / "report.json").write_text(kept)
    return found


def test_a_perfect_replay_passes(made_up: Generated) -> None:
    assert problems(made_up) == ()


def test_wrong_totals_are_found(made_up: Generated) -> None:
    def change(report: dict[str, Any]) -> None:
        report["input_tuples"] += 1
        report["late_tuples"]["s0"] += 1

    found = problems(made_up, change)
    assert [p.split(" is ")[0] for p in found] == ["input_tuples", "late_tuples"]


def test_an_activation_at_the_wrong_batch_is_found(made_up: Generated) -> None:
    name = next(iter(made_up.queries))

    def change(report: dict[str, Any]) -> None:
        report["queries"][name]["activated_batch"] += 1

    assert any(p.startswith(f"{name}: activated at batch") for p in problems(made_up, change))


def test_a_newcomer_that_ignores_what_is_stored_is_found(made_up: Generated) -> None:
    report = read_report(made_up.folder / "out")
    late = [
        (name, alias)
        for name, query in made_up.queries.items()
        for alias, _ in query.members
        if report["queries"][name]["activated_batch"] > 0 and alias not in filtered(query)
    ]

    def change(report: dict[str, Any]) -> None:
        for name, alias in late:
            said = report["queries"][name]
            said["visible_from"][alias]["batch"] = said["activated_batch"]

    found = problems(made_up, change)
    assert any("stored since batch 0" in p for p in found)


def test_a_lost_row_is_found(made_up: Generated) -> None:
    report = read_report(made_up.folder / "out")
    name = next(n for n in made_up.queries if report["queries"][n]["results"] > 1)
    file = made_up.folder / "out" / "results" / name / "part-0.parquet"
    kept = file.read_bytes()
    oracle = Oracle(read_scenario(made_up.path))
    oracle.db.execute(f"CREATE TABLE cut AS SELECT * FROM '{file}' OFFSET 1")
    oracle.db.execute(f"COPY cut TO '{file}' (FORMAT parquet)")
    oracle.close()
    found = problems(made_up)
    file.write_bytes(kept)
    assert found[0].startswith(f"{name}: 1 missing, such as (")
    assert found[1].startswith(f"{name}: ")
    assert found[1].endswith("written")
    assert len(found) == 2
