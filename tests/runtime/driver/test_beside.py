"""Tests of the process for deliveries beside the driver: it starts with the first one, and its loss
is an error.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch_contract.connectors.policy import AccessError
from anabranch_runtime.driver.beside import Beside
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.errors import PipelineError
from tests.support.surroundings.deliveries import sink, staged
from tests.support.surroundings.kin import kin, no_kin_left
from tests.support.surroundings.policy import OPEN


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    (tmp_path / "state").mkdir()
    settings = DriverSettings(tmp_path / "state", tmp_path / "results", access=OPEN)
    return Beside(settings, "test")


def test_without_deliveries_there_is_no_process(beside: Beside) -> None:
    with no_kin_left():
        beside.close()


@pytest.mark.spark
def test_a_delivery_is_written_by_the_process_and_its_loss_is_an_error(
    beside: Beside, tmp_path: Path
) -> None:
    rows = pa.record_batch({"x": [1, 2]})
    beside.write(staged(tmp_path, "q", sink("json", str(tmp_path / "out")), 0, rows))
    files = sorted((tmp_path / "out").glob("*/*.json"))
    found = [json.loads(line)["x"] for file in files for line in file.read_text().splitlines()]
    assert sorted(found) == [1, 2]
    with pytest.raises(AccessError, match="not supported"):
        beside.write(staged(tmp_path, "q", sink("jdbc", url="jdbc:no-such:x"), 1, rows))

    (process,) = kin(lambda words: "spawn_main" in " ".join(words))
    process.kill()
    with pytest.raises(PipelineError) as caught:
        beside.write(staged(tmp_path, "q", sink("json", str(tmp_path / "out")), 2, rows))
    assert caught.value.code == "sinks-lost"
