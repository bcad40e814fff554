"""Tests of ``anabranch state`` over a real state, by the runtime's command in a process."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from typer.testing import CliRunner

from anabranch_client.cli.app import app
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.storage.pipeline_lock import exclusive
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.driven import driver, job, publish

if TYPE_CHECKING:
    from typer.testing import Result


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with two stores of four segments each."""
    home = tmp_path_factory.mktemp("state")
    with redis_url() as url:
        redis.Redis.from_url(url).flushall()
        fetch_ruleset.cache_clear()
        for epoch in range(3):
            publish(url, epoch)
        one = driver(url, home)
        for batch in range(4):
            one.run(job(batch))
    return home / "state"


def run(state: Path, *arguments: str) -> Result:
    environ = {"ANABRANCH_STORAGE": str(state), "COLUMNS": "160"}
    return CliRunner().invoke(app, ["state", *arguments], env=environ)


def answer(state: Path, *arguments: str) -> Any:
    result = run(state, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_stores_and_segments_as_json_and_for_people(state: Path) -> None:
    stores = answer(state, "list")["stores"]
    assert [s["rows"] for s in stores] == [4, 4]
    text = run(state, "list").stdout
    assert all(s["store"] in text and s["mir"] in text for s in stores)
    name = stores[0]["store"]
    shown = answer(state, "show", name)
    assert [p["batches"] for p in shown["parts"]] == [[n, n] for n in range(4)]
    text = run(state, "show", name).stdout
    assert all(p["pack"].removeprefix("segments/") in text for p in shown["parts"])


def test_a_whole_state_is_whole_and_a_damaged_one_exit_code_1(state: Path) -> None:
    assert answer(state, "verify")["problems"] == []
    assert "whole: 4 packs" in run(state, "verify").stdout
    pack = state / answer(state, "show", "R/1")["parts"][0]["pack"]
    content = pack.read_bytes()
    pack.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    try:
        result = run(state, "verify")
    finally:
        pack.write_bytes(content)
    assert result.exit_code == 1
    assert pack.name in result.stdout


def test_compacting_says_what_it_did_and_wants_the_state_alone(state: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(state, tmp_path / "state")
    with exclusive(copy):
        result = run(copy, "compact")
    assert result.exit_code == 1
    assert "is in use by process" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "8 segments became 2" in run(copy, "compact").stdout


@pytest.mark.parametrize(
    "arguments", mostly_slow([["list"], ["compact"], ["ls"], ["verify"], ["show", "x"]], 2)
)
def test_a_folder_without_a_state_is_exit_code_2(arguments: list[str], tmp_path: Path) -> None:
    result = run(tmp_path, *arguments)
    assert result.exit_code == 2
    assert "holds no state" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_unknown_store_is_exit_code_2(state: Path) -> None:
    result = run(state, "show", "nothing")
    assert result.exit_code == 2
    assert "there is no store 'nothing' (one of: " in result.stderr


def test_without_the_runtime_it_says_so(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    result = run(state, "list")
    assert result.exit_code == 1
    assert "run this where the runtime is installed" in result.stderr
