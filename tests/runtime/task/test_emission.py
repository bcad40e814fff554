"""Tests of results that are only counted, for many queries with different filters in one shared
store.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.task.emission import Emission
from benchmarks.engine import Engine
from benchmarks.queries import batches, rules

BATCHES, ROWS = 4, 3000


def _counts(shares: bool, home: Path, url: str) -> list[Counter[str]]:
    """Return the number of results of each query by batch."""
    case = batches.Case("rules", tuple(rules.rules(90)), (rules.STREAM,), (rules.STREAM,), shares)
    made = batches.planned(case)
    engine = Engine(home, url, list(made.streams), (), rules=made)
    drawn, found = np.random.default_rng(0), list[Counter[str]]()
    for batch in range(BATCHES):
        rows = rules.events(ROWS, batch * batches.SPAN, batches.SPAN, drawn)
        block = Block(made.streams[0].name, rows)
        engine.run(lambda task, tasks, block=block: [block])  # type: ignore[misc]
        found.append(sum((Counter(r.results) for r in engine.reports), Counter()))
    return found


def test_counts_are_those_of_stores_for_each_filter(
    redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, count = Counter[str](), Emission._count

    def noted(self: Emission, counted: dict[str, int], seconds: float) -> None:
        together.update(counted)
        count(self, counted, seconds)  # type: ignore[arg-type]

    monkeypatch.setattr(Emission, "_count", noted)
    shared = _counts(True, tmp_path / "shared", redis)
    assert sum(together.values()) > 50
    assert shared == _counts(False, tmp_path / "own", redis)
