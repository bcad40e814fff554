"""The process for views and deliveries starts with its first work, and its loss is an error."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from anabranch_contract.connectors.policy import AccessError
from anabranch_runtime.driver.beside import Beside, checkpoints_of
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.views.counts import put, shown_file, written_file
from tests.support.surroundings.deliveries import sink, staged
from tests.support.surroundings.policy import OPEN


@pytest.fixture
def beside(redis: str, tmp_path: Path) -> Beside:
    (tmp_path / "state").mkdir()
    settings = DriverSettings(tmp_path / "state", tmp_path / "results", access=OPEN)
    return Beside(settings, redis, "test")


def test_without_views_there_is_no_process(beside: Beside) -> None:
    known = {child.pid for child in psutil.Process().children()}
    beside.begin(3, {})
    assert (beside.problems(), beside.lag(), beside.shown()) == ({}, {}, {})
    assert (beside.written(), beside.left_rows()) == ({}, {})
    beside.drain()
    beside.close()
    assert {child.pid for child in psutil.Process().children()} == known


def test_rows_of_views_that_have_ended_are_known_without_a_process(
    beside: Beside, tmp_path: Path
) -> None:
    (tmp_path / "results").mkdir()
    put(shown_file(tmp_path / "results", "ended"), 3, 13)
    put(written_file(tmp_path / "results", "ended"), 3, 40)
    beside.begin(9, {})
    assert beside.shown() == {"ended": 13}
    assert beside.written() == {"ended": (3, 40)}


@pytest.mark.spark
def test_a_delivery_is_written_by_the_process_and_its_loss_is_an_error(
    beside: Beside, tmp_path: Path
) -> None:
    rows = pa.record_batch({"x": [1, 2]})
    beside.begin(0)
    beside.write(staged(tmp_path, "q", sink("json", str(tmp_path / "out")), 0, rows))
    files = sorted((tmp_path / "out").glob("*/*.json"))
    found = [json.loads(line)["x"] for file in files for line in file.read_text().splitlines()]
    assert sorted(found) == [1, 2]
    with pytest.raises(AccessError, match="not supported"):
        beside.write(staged(tmp_path, "q", sink("jdbc", url="jdbc:no-such:x"), 1, rows))

    (process,) = [c for c in psutil.Process().children() if "spawn_main" in " ".join(c.cmdline())]
    process.kill()
    with pytest.raises(PipelineError) as caught:
        beside.problems()
    assert caught.value.code == "views-lost"


def test_checkpoints_outlive_a_state_directory_that_is_a_cache(tmp_path: Path) -> None:
    alone = DriverSettings(tmp_path / "state", tmp_path / "results")
    assert checkpoints_of(alone).is_relative_to(alone.state)
    cached = DriverSettings(tmp_path / "state", tmp_path / "results", object_store="s3://bucket/x")
    assert checkpoints_of(cached).is_relative_to(cached.results)
