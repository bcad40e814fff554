"""Tests of real processes killed with SIGKILL at each step of the batch protocol: results are
exact.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch_runtime.faults import Point
from tests.support.oracles.ledger import read_paid, read_rations
from tests.support.scenarios.fault_grid import Cell, Component, cells_of, play_cells
from tests.support.scenarios.file import read_report


@pytest.mark.spark
@pytest.mark.e2e
def test_a_handful_of_cells(tmp_path: Path) -> None:
    cells = [
        Cell(Component.DRIVER, Point.PUBLISHED),
        Cell(Component.WORKER, Point.STORING),
        Cell(Component.SERVICE, Point.BOUNDARY),
        Cell(Component.REDIS, Point.CHOSEN),
    ]
    verdict = play_cells(cells, tmp_path / "grid")

    assert not verdict.problems, str(verdict)
    assert verdict.results > 1000
    restarts = {c.component: c.restarts for c in cells}
    assert restarts[Component.DRIVER] == 1
    # The batch is retried without restarting a process of the pipeline.
    assert restarts[Component.WORKER] == 0


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("component", [Component.DRIVER, Component.SERVICE, Component.REDIS])
def test_the_grid_where_rules_are_revised(component: Component, tmp_path: Path) -> None:
    cells = cells_of(component)
    verdict = play_cells(cells, tmp_path / "grid", revise=1)

    assert not verdict.problems, str(verdict)
    epochs = read_report(tmp_path / "grid" / "out")["epochs"]
    assert any(epoch["revisions"] for epoch in epochs)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("component", Component)
def test_the_grid_with_rations_and_catch_up(component: Component, tmp_path: Path) -> None:
    cells = cells_of(component)
    verdict = play_cells(cells, tmp_path / "grid", revise=1, rationed=True)

    assert not verdict.problems, str(verdict)
    results = tmp_path / "grid" / "out" / "results"
    assert len(read_rations(results)) > len(cells) // 2
    assert read_paid(results)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("component", [Component.DRIVER, Component.JVM, Component.WORKER])
def test_the_grid_with_a_standby(component: Component, tmp_path: Path) -> None:
    cells = cells_of(component)
    verdict = play_cells(cells, tmp_path / "grid", standby=True)

    assert not verdict.problems, str(verdict)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("component", Component)
def test_the_grid(component: Component, tmp_path: Path) -> None:
    cells = cells_of(component)
    verdict = play_cells(cells, tmp_path / "grid")

    assert not verdict.problems, str(verdict)
    assert len({c.pid for c in cells}) == (1 if component is Component.REDIS else len(cells))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("component", Component)
def test_the_grid_with_streams_of_changes(component: Component, tmp_path: Path) -> None:
    cells = cells_of(component)
    verdict = play_cells(cells, tmp_path / "grid", revise=1, changed=True)

    assert not verdict.problems, str(verdict)
