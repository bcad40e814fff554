"""The state store's benchmarks at a tiny scale: their shape and their checks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.benchmarks.state import filters

if TYPE_CHECKING:
    import pytest


def test_filters(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rows", "2000", "--probes", "300", "--rounds", "3"]
    assert filters.main(["--json", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    (asked,), (compared,) = found["matching"], found["kinds"]
    assert set(asked["nanoseconds"]) == {"hit", "miss", "hit_without", "miss_without"}
    assert set(compared["kinds"]) == {"blocked", "bloom", "fuse"}
    for kind in compared["kinds"].values():
        assert kind["wrong"] < 0.05
        assert 8 < kind["bits_per_key"] < 20
    assert filters.main(arguments) == 0
    assert "blocked" in capsys.readouterr().out
