"""Set operations as continuous queries: registration, and whole runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch_contract.protocol.progress import Mode
from anabranch_service.settings import ServiceSettings
from tests.support.worlds.service import serving
from tests.support.worlds.set_operations import run_seed


@pytest.mark.parametrize("seed", range(3))
def test_random_set_operations(settings: ServiceSettings, tmp_path: Path, seed: int) -> None:
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        seen = run_seed(service, tmp_path, seed)
        assert min(seen["rows"], seen["batches"], seen["branches"]) > 0
