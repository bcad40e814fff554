"""Subqueries of expressions in whole runs: parts, their readers, and DuckDB's answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch_service.settings import ServiceSettings
from tests.support.scenarios.seeds import SUBQUERIES_FEW
from tests.support.worlds.service import serving
from tests.support.worlds.subqueries import run_seed


def run(settings: ServiceSettings, folder: Path, seed: int) -> None:
    home = folder / str(seed)
    with serving(settings.changed(namespace=f"subqueries{seed}")) as service:
        assert run_seed(service, home, seed)["batches"]


@pytest.mark.parametrize("seed", SUBQUERIES_FEW)
def test_random_subqueries(settings: ServiceSettings, tmp_path: Path, seed: int) -> None:
    run(settings, tmp_path, seed)
