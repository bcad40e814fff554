"""Test that a pipeline continues from a saved state directory of the present formats
(``golden/state``).

:func:`write` wrote ``golden/state``: a pipeline after three batches, the fourth begun and
interrupted. ``python -m tests.runtime.state.test_manifest_golden FOLDER`` writes another one, for a
new version of a format (ADR 0056).
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as redis_client

from anabranch_contract.errors import RulesetError
from anabranch_contract.protocol.progress import Mode
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.errors import StateError
from anabranch_runtime.state import manifest
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.driven import KEYS, Killed, die, driver, job, publish, results

GOLDEN = Path(__file__).parents[1] / "golden"
QUERIES = {"q": "SELECT R.a, S.b FROM R JOIN S ON R.a = S.a WHERE S.b >= 0"}


def write(url: str, folder: Path) -> None:
    """Write a state directory, with the content of Redis in its ``redis.json``."""
    publish(url, 0, QUERIES)
    one = driver(url, folder, Mode.LIVE, every=10)
    for batch in range(3):
        one.run(job(batch))
    with pytest.raises(Killed):
        one.run(die())
    connection = redis_client.Redis.from_url(url, decode_responses=True)
    known = {
        "rulesets": {"0": connection.get(KEYS.ruleset(0))},
        "boundaries": connection.lrange(KEYS.boundaries, 0, -1),
        "pipeline": connection.get(KEYS.namespace + ":pipeline"),
    }
    (folder / "state" / "redis.json").write_text(json.dumps(known, indent=1) + "\n")


def restore(url: str, folder: Path) -> None:
    """Copy a golden state into ``folder`` and its Redis content into Redis."""
    shutil.copytree(GOLDEN / "state", folder / "state")
    known = json.loads((folder / "state" / "redis.json").read_text())
    connection = redis_client.Redis.from_url(url)
    for epoch, text in known["rulesets"].items():
        connection.set(KEYS.ruleset(int(epoch)), text)
        connection.zadd(KEYS.published, {epoch: epoch})
    connection.rpush(KEYS.boundaries, *known["boundaries"])
    if known["pipeline"] is not None:
        connection.set(KEYS.pipeline, known["pipeline"])


@pytest.fixture
def url() -> Iterator[str]:
    fetch_ruleset.cache_clear()
    with redis_url() as server:
        yield server


def test_a_pipeline_goes_on_from_it(url: str, tmp_path: Path) -> None:
    restore(url, tmp_path)

    one = driver(url, tmp_path, Mode.LIVE, every=10)
    assert one.state.next_batch == 3
    assert one.state.queries["q"].results == 9
    one.run(job(3))

    # The new R joins four S, the new S three earlier R.
    assert results(tmp_path) == [0, 1, 2, 3, 3, 3, 3]
    assert one.state.queries["q"].results == 16
    newest = max((tmp_path / "state" / "manifest").iterdir())
    assert json.loads(newest.read_text())["version"] == manifest.KIND.version


@pytest.mark.parametrize(
    "name",
    [
        "manifest/000000000003.json",
        "journal/000000000002.json",
        "rulesets/00000000.json",
        "pipeline.json",
    ],
)
@pytest.mark.parametrize("version", [0, 2, 99, "1", None])
def test_documents_of_other_versions_are_refused(
    url: str, name: str, version: object, tmp_path: Path
) -> None:
    restore(url, tmp_path)
    path = tmp_path / "state" / name
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": version}))
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "state").rglob("*") if p.is_file()}

    with pytest.raises(StateError) as caught:
        driver(url, tmp_path, Mode.LIVE)

    assert caught.value.code == "unknown-version"
    assert str(path) in caught.value.message
    assert "release" in caught.value.remedy
    after = {p: p.stat().st_mtime_ns for p in (tmp_path / "state").rglob("*") if p.is_file()}
    assert after == before


def test_a_ruleset_of_another_version_is_refused(url: str, tmp_path: Path) -> None:
    document = json.loads((GOLDEN / "state" / "redis.json").read_text())["rulesets"]["0"]
    text = json.dumps({**json.loads(document), "version": 99})
    redis_client.Redis.from_url(url).set(KEYS.ruleset(0), text)
    redis_client.Redis.from_url(url).zadd(KEYS.published, {"0": 0})

    with pytest.raises(RulesetError) as caught:
        driver(url, tmp_path, Mode.LIVE).run(job(0))

    assert caught.value.code == "unknown-version"
    assert "one release" in caught.value.remedy


if __name__ == "__main__":
    with redis_url() as server:
        write(server, Path(sys.argv[1]))
