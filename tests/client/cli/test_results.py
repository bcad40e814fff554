"""Tests of ``anabranch results`` over a real pipeline's folders, by the runtime's command in a
process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
from typer.testing import CliRunner

from anabranch_client.cli.app import app
from anabranch_runtime.control import fetch_ruleset
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.driven import driver, expected, job, publish, results

if TYPE_CHECKING:
    from typer.testing import Result


@pytest.fixture
def url() -> Iterator[str]:
    """Address of an empty Redis."""
    with redis_url() as found:
        redis.Redis.from_url(found).flushall()
        fetch_ruleset.cache_clear()
        yield found


def run(home: Path, *arguments: str) -> Result:
    given = ["results", "merge", "--state", str(home / "state"), *arguments]
    return CliRunner().invoke(app, given, env={"COLUMNS": "160"})


def test_files_are_merged_and_it_says_so(url: str, tmp_path: Path) -> None:
    for epoch in range(5):
        publish(url, epoch)
    one = driver(url, tmp_path)
    for batch in range(8):
        one.run(job(batch))
    where = "--results", str(tmp_path / "results")
    # The state can be rolled back by two batches, so their files stay unmerged.
    assert "8 result files became 3, " in run(tmp_path, *where).stdout
    assert results(tmp_path) == expected(8)
    found = json.loads(run(tmp_path, *where, "--json").stdout)
    assert (found["queries"], found["before"], found["after"]) == (0, 3, 3)


def test_what_is_no_pipeline_is_exit_code_2(url: str, tmp_path: Path) -> None:
    assert run(tmp_path).exit_code == 2
    publish(url, 0)
    driver(url, tmp_path).run(job(0))
    found = run(tmp_path, "--results", str(tmp_path / "nowhere"))
    assert found.exit_code == 2
    assert "nowhere is not a directory" in found.stderr
