"""Tests of showing, verifying and compacting a state directory, over states that batches made."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from anabranch_contract.plans import ruleset as rulesets
from anabranch_runtime import inspection
from anabranch_runtime.errors import StateError
from anabranch_runtime.inspection import compact, describe, describe_store, main, verify
from anabranch_runtime.state.manifest import Manifests, read_manifest
from anabranch_runtime.storage.pipeline_lock import exclusive
from anabranch_runtime.storage.segment_cache import close_all
from tests.support.cases.states import RS, rules
from tests.support.worlds.driven import KEYS, driver, expected, job, publish, results

BATCHES = 5


@pytest.fixture
def root(url: str, tmp_path: Path) -> Path:
    """The state after some batches of a join of R and S."""
    run(url, tmp_path, range(BATCHES))
    return tmp_path / "state"


def run(url: str, home: Path, batches: Sequence[int]) -> None:
    for epoch in range(10):
        publish(url, epoch)
    one = driver(url, home)
    for batch in batches:
        one.run(job(batch))


def test_stores_are_described(root: Path) -> None:
    found = describe(root)
    assert (found["next_batch"], found["epoch"]) == (BATCHES, 2)
    assert {s["mir"]: (s["kind"], s["rows"], s["segments"]) for s in found["stores"]} == {
        "R": ("stream", BATCHES, BATCHES),
        "S": ("stream", BATCHES, BATCHES),
    }
    for store in found["stores"]:
        assert store["queries"] == ["q"]
        assert store["growing"]
        assert store["batches"] == [[0, BATCHES - 1]]
        assert store["levels"] == [
            {"level": 0, "segments": BATCHES, "rows": BATCHES, "bytes": store["bytes"]}
        ]
        assert 0 < store["index_bytes"] < store["bytes"]
    assert found["bytes"] == sum(s["bytes"] for s in found["stores"])
    assert found["disk_bytes"] >= found["bytes"]
    assert found["packs"] == len(list((root / "segments").iterdir()))
    assert found["spare_bytes"] == 0
    assert (found["inserted_bytes"], found["merged_bytes"]) == (found["bytes"], 0)
    assert found["write_amplification"] == 1
    assert 1 < found["space_amplification"] < 3


def test_a_store_of_an_earlier_layout_has_readers_too(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    document = rulesets.dumps(rules(1, {"q": RS}, parallelism=2))
    connection = redis.Redis.from_url(url)
    connection.set(KEYS.ruleset(1), document)
    connection.zadd(KEYS.published, {"1": 1})
    one = driver(url, tmp_path)
    for batch in range(3):
        one.run(job(batch))
    found = {s["store"]: s for s in describe(tmp_path / "state")["stores"]}
    assert {name: (s["partitions"], s["growing"]) for name, s in found.items()} == {
        "R/1": (1, False),
        "S/1": (1, False),
        "R[a:bigint]/2": (2, True),
        "S[a:bigint]/2": (2, True),
    }
    assert all(s["queries"] == ["q"] for s in found.values())


def test_a_store_is_described_with_its_segments(root: Path) -> None:
    name = describe(root)["stores"][0]["store"]
    found = describe_store(root, name)
    assert [p["batches"] for p in found["parts"]] == [[n, n] for n in range(BATCHES)]
    assert all((root / p["pack"]).is_file() for p in found["parts"])
    assert sum(p["bytes"] for p in found["parts"]) == found["bytes"]
    with pytest.raises(StateError, match="there is no store 'X'") as caught:
        describe_store(root, "X")
    assert name in caught.value.remedy


def test_what_is_damaged_or_missing_is_named(root: Path) -> None:
    whole = verify(root)
    assert whole["problems"] == []
    assert whole["bytes"] == describe(root)["bytes"]
    packs = sorted(p["pack"] for p in describe_store(root, "R/1")["parts"])
    damaged = root / packs[0]
    content = bytearray(damaged.read_bytes())
    content[100] ^= 1
    damaged.write_bytes(content)
    (root / packs[1]).unlink()
    problems = verify(root)["problems"]
    assert [(p["pack"], p["code"]) for p in problems] == [
        (packs[0], "damaged-pack"),
        (packs[1], "missing-pack"),
    ]
    assert all(p["remedy"] for p in problems)


def test_compacting_changes_no_result(root: Path, url: str, tmp_path: Path) -> None:
    before = describe(root)
    assert compact(root)["segments_before"] == 2 * BATCHES
    close_all()
    after = describe(root)
    assert [(s["store"], s["rows"], s["segments"]) for s in after["stores"]] == [
        (s["store"], s["rows"], 1) for s in before["stores"]
    ]
    assert verify(root)["problems"] == []
    assert after["inserted_bytes"] == before["bytes"]
    assert after["merged_bytes"] == after["bytes"]
    # Older manifests still name the merged segments.
    assert after["spare_bytes"] > 0
    assert compact(root)["segments"] == 2

    run(url, tmp_path, range(BATCHES, BATCHES + 4))
    assert results(tmp_path) == expected(BATCHES + 4)
    assert describe(root)["spare_bytes"] == 0


def test_a_state_in_use_is_not_compacted_but_looked_at(root: Path) -> None:
    with exclusive(root):
        with pytest.raises(StateError) as caught:
            compact(root)
        assert caught.value.code == "state-in-use"
        assert describe(root)["next_batch"] == BATCHES


def test_a_damaged_segment_is_not_compacted(root: Path) -> None:
    damaged = root / describe_store(root, "R/1")["parts"][0]["pack"]
    content = bytearray(damaged.read_bytes())
    content[100] ^= 1
    damaged.write_bytes(content)
    before = describe(root)
    with pytest.raises(StateError) as caught:
        compact(root)
    assert caught.value.code == "damaged-segment"
    assert describe(root)["stores"] == before["stores"]


def test_without_its_ruleset_a_state_is_shown_but_not_compacted(root: Path) -> None:
    for file in (root / "rulesets").iterdir():
        file.unlink()
    assert all(s["queries"] == [] for s in describe(root)["stores"])
    with pytest.raises(StateError) as caught:
        compact(root)
    assert caught.value.code == "no-ruleset"


@pytest.mark.parametrize("command", [["ls"], ["verify"], ["compact"], ["show", "R/1"]])
def test_no_state_is_an_error_with_a_remedy(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for where in (tmp_path, tmp_path / "nowhere"):
        assert main(["--state", str(where), *command]) == 1
        error = json.loads(capsys.readouterr().out)["error"]
        assert (error["code"], error["field"]) == ("no-state", "state")
        assert error["remedy"]
    assert not list(tmp_path.iterdir())


def test_a_manifest_that_goes_away_meanwhile(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, reads = read_manifest(max((root / "manifest").iterdir())), list[Path]()

    def gone_at_first(path: Path) -> object:
        reads.append(path)
        if len(reads) == 1:
            # Two commits delete the manifests on which this one is based.
            manifests = Manifests(root)
            for batch in range(BATCHES + 1, BATCHES + 7):
                manifests.commit(replace(state, next_batch=batch))
        return read_manifest(path)

    monkeypatch.setattr(inspection, "read_manifest", gone_at_first)
    assert inspection.newest(root).next_batch == BATCHES + 6
    assert len(reads) == 2


@pytest.mark.parametrize("seed", range(10))
def test_every_flipped_bit_is_found(root: Path, seed: int) -> None:
    """A hundred bits, one at a time, anywhere in the packs and the newest manifest."""
    draw = random.Random(seed)
    files = sorted((root / "segments").iterdir()) + sorted((root / "manifest").iterdir())[-1:]
    whole = {path: path.read_bytes() for path in files}
    places = [(path, at) for path, content in whole.items() for at in range(8 * len(content))]
    for path, at in draw.sample(places, 100):
        content = bytearray(whole[path])
        content[at // 8] ^= 1 << at % 8
        path.write_bytes(content)
        try:
            found = [p["pack"] for p in verify(root)["problems"]]
        except StateError as error:
            found = [str(path.relative_to(root))] if str(path) in error.message else []
        assert found == [str(path.relative_to(root))], f"bit {at} of {path.name}"
        path.write_bytes(whole[path])
    assert verify(root)["problems"] == []
