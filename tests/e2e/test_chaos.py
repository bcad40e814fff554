"""Test of random kills, pauses and restarts under load; ``tests.e2e.chaos`` runs more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.chaos import run


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 8])
def test_twenty_random_strikes_lose_and_double_nothing(seed: int, tmp_path: Path) -> None:
    assert run(tmp_path, 20, seed) == []
