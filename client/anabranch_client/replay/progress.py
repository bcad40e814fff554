"""Live view of a replay's progress, on standard error."""

from __future__ import annotations

import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from anabranch_client.render.tables import number, size
from anabranch_client.replay.player import ScenarioObserver
from anabranch_client.replay.scenario import Scenario
from anabranch_contract.protocol.progress import Progress


class LiveView(ScenarioObserver):
    """A progress bar, current rates, and the number of results of each query.

    If standard error is not a terminal, the view prints a line per event instead, and the rates
    every ``pause`` seconds.
    """

    def __init__(self, scenario: Scenario, console: Console, pause: float = 10.0) -> None:
        self._scenario = scenario
        self._console = console
        self._url = ""
        self._progress = Progress(state="starting")
        self._events: list[str] = []
        self._began: float | None = None
        self._pause, self._printed = pause, time.monotonic()
        self._live = Live(
            get_renderable=self.render, console=console, refresh_per_second=8, transient=True
        )

    def __enter__(self) -> LiveView:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def started(self, url: str) -> None:
        """Show the dashboard's URL."""
        self._url = url
        self._say(f"dashboard: {url}")

    def called(self, batch: int, what: str) -> None:
        """Show a REST call of the scenario."""
        self._say(f"batch {batch}: {what}")

    def progressed(self, progress: Progress) -> None:
        """Show the progress in the heartbeat."""
        if self._began is None and progress.committed > 0:
            self._began = time.monotonic() - progress.resources.batch_seconds
        self._progress = progress
        now = time.monotonic()
        if not self._console.is_terminal and now - self._printed >= self._pause:
            self._printed = now
            self._console.print(self._figures(), highlight=False, soft_wrap=True)

    def _say(self, event: str) -> None:
        self._events.append(event)
        if not self._console.is_terminal:
            self._console.print(event, highlight=False, markup=False, soft_wrap=True)

    def _figures(self) -> Text:
        progress, total = self._progress, max(self._scenario.batches, 1)
        seconds = time.monotonic() - self._began if self._began is not None else 0.0
        rate = progress.input_tuples / seconds if seconds > 0 else 0.0
        return Text.assemble(
            (f"{progress.state:8}", "bold"),
            f" batch {progress.committed}/{total}  epoch {max(progress.epoch, 0)}  "
            f"{number(round(rate))} tuples/s  state {size(progress.resources.state_bytes)}",
        )

    def render(self) -> RenderableType:
        """The current view of a replay as rich tables and texts."""
        progress, total = self._progress, max(self._scenario.batches, 1)
        results = Table(box=None, pad_edge=False, show_header=False)
        results.add_column(style="bold", overflow="fold")
        results.add_column(justify="right")
        for query in self._scenario.queries:
            count = progress.shown.get(query.name, progress.results.get(query.name))
            results.add_row(query.name, "–" if count is None else f"{count:,}")
        bar = ProgressBar(total=total, completed=progress.committed, width=60)
        recent = [Text(event, style="dim") for event in self._events[-6:]]
        return Group(self._figures(), bar, results, *recent)
