"""Tests of subqueries and chains of joins in whole runs: their parts, the parts' readers, and
DuckDB's results.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch_service.settings import ServiceSettings
from tests.support.scenarios.seeds import (
    CHAINS_FEW,
    CHAINS_MANY,
    SUBQUERIES_FEW,
    mostly_slow,
    parts,
)
from tests.support.worlds.join_chains import ChainGrammar
from tests.support.worlds.service import serving
from tests.support.worlds.subqueries import run_seed


def run(settings: ServiceSettings, folder: Path, seed: int) -> None:
    home = folder / str(seed)
    with serving(settings.changed(namespace=f"subqueries{seed}")) as service:
        assert run_seed(service, home, seed)["batches"]


@pytest.mark.e2e
@pytest.mark.parametrize("seed", mostly_slow(SUBQUERIES_FEW))
def test_random_subqueries(settings: ServiceSettings, tmp_path: Path, seed: int) -> None:
    run(settings, tmp_path, seed)


def run_chains(settings: ServiceSettings, folder: Path, seed: int) -> None:
    home = folder / str(seed)
    with serving(settings.changed(namespace=f"chains{seed}")) as service:
        assert run_seed(service, home, seed, ChainGrammar)["batches"]


@pytest.mark.parametrize("seed", mostly_slow(CHAINS_FEW))
def test_random_chains(settings: ServiceSettings, tmp_path: Path, seed: int) -> None:
    run_chains(settings, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(CHAINS_MANY, 25), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_random_chains(
    settings: ServiceSettings, tmp_path: Path, seeds: Sequence[int]
) -> None:
    for seed in seeds:
        run_chains(settings, tmp_path, seed)
