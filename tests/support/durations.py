"""Budgets for the share of each folder in the time of the test run.

Seconds depend on the machine and its load, but shares of one run hardly do. A run of ``make test``
(more than :data:`WHOLE` tests, none of them slow) fails if a folder exceeds its budget: twice its
share of an earlier measured run, plus 3 %.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

#: Folder → greatest share of the time of ``make test``.
BUDGETS: Final = Path(__file__).with_name("durations.json")
WHOLE: Final = 8_000
#: Budget of a folder that has none in the file.
SMALL: Final = 0.03


def folder_of(path: str) -> str:
    """Return the folder to which a test's time is assigned: two levels below ``tests``.

    >>> folder_of("tests/service/planning/test_loop.py"), folder_of("tests/e2e/test_live.py")
    ('service/planning', 'e2e')
    """
    return "/".join(path.split("/")[1:-1][:2])


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Map each folder to its share of the time, the greatest first."""
    total = sum(seconds.values())
    return {f: s / total for f, s in sorted(seconds.items(), key=lambda one: -one[1])}


def exceeded(seconds: Mapping[str, float], budgets: Mapping[str, float]) -> list[str]:
    """Return folders above their budget (default: :data:`SMALL`), as sentences.

    >>> exceeded({"e2e": 6.0, "planner/sql": 4.0}, {"e2e": 0.7, "planner/sql": 0.3})
    ['planner/sql takes 40.0% of the time, its budget is 30.0%']
    """
    return [
        f"{folder} takes {share:.1%} of the time, its budget is {budgets.get(folder, SMALL):.1%}"
        for folder, share in shares(seconds).items()
        if share > budgets.get(folder, SMALL)
    ]


class Durations:
    """A pytest plugin that sums the time of tests by folder."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.tests = 0
        self.slow = False
        self.over: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the time of one phase of a test."""
        self.seconds[folder_of(report.nodeid.partition("::")[0])] += report.duration
        self.tests += report.when == "call"
        self.slow = self.slow or "slow" in report.keywords

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run of ``make test`` in which a folder exceeds its budget."""
        if self.tests < WHOLE or self.slow or hasattr(session.config, "workerinput"):
            return
        budgets = json.loads(BUDGETS.read_text())
        self.over = exceeded(self.seconds, budgets)
        if self.over and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the shares of a complete run, and the folders above their budgets."""
        if self.tests < WHOLE:
            return
        most = [f"{folder} {share:.1%}" for folder, share in shares(self.seconds).items()][:12]
        terminalreporter.write_line("time by folder: " + ", ".join(most))
        for line in self.over:
            terminalreporter.write_line(f"over budget: {line}")
