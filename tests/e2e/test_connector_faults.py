"""Test of faults of all servers around a pipeline (``shop``): no result is lost or duplicated."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.kafka import Broker
from scripts.postgres import Server
from tests.support.worlds.shop import run_faults


@pytest.mark.spark
@pytest.mark.slow
def test_faults_of_servers_lose_and_double_nothing(
    tmp_path: Path, kafka: Broker, postgres: Server
) -> None:
    done, results = run_faults(tmp_path, kafka, postgres, 30, 5)
    assert done.total() == 30
    assert min(results.values()) > 100
