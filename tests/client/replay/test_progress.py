"""Tests of a replay's live progress: a picture on a terminal, lines elsewhere."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from anabranch_client.replay.progress import LiveView
from anabranch_client.replay.scenario import RecordedStream, Scenario, ScenarioQuery
from anabranch_contract.plans.plan import Optimizer
from anabranch_contract.protocol.progress import Progress, Resources

SCENARIO = Scenario(
    streams=(RecordedStream("s", Path("s.parquet"), 1, 8, ()),),
    queries=(ScenarioQuery("q1", "SELECT 1"), ScenarioQuery("q2", "SELECT 2", register_at=4)),
    every=2,
    optimizer={0: Optimizer.CLASH},
    parallelism=1,
)
HALF = Progress(
    state="running",
    committed=4,
    epoch=1,
    streams={"s": {"input": 4000}},
    results={"q1": 1234, "q2": 99_999},
    shown={"q2": 17},
    resources=Resources(2048, 0.5),
)


def play(*, terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120)
    with LiveView(SCENARIO, console) as view:
        view.started("http://127.0.0.1:9")
        view.called(4, "q2 registered")
        view.progressed(HALF)
        console.print(view.render())
    return out.getvalue()


def test_the_picture_has_the_figures_of_the_moment() -> None:
    shown = play(terminal=True)
    for words in ("batch 4/8", "epoch 1", "2.0 KiB", "1,234", "tuples/s", "q2 registered"):
        assert words in shown
    # A view's count is of its rows, not its joined rows.
    assert " 17" in shown
    assert "99,999" not in shown


def test_without_a_terminal_each_event_is_a_line() -> None:
    lines = play(terminal=False).splitlines()
    assert lines[:2] == ["dashboard: http://127.0.0.1:9", "batch 4: q2 registered"]


def test_without_a_terminal_the_figures_come_from_time_to_time() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=False, width=40)
    for pause in (0.0, 1000.0):
        with LiveView(SCENARIO, console, pause) as view:
            view.progressed(HALF)
            view.progressed(HALF)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert all(line.startswith("running  batch 4/8  epoch 1") for line in lines)
