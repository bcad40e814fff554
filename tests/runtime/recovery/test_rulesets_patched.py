"""Tests of rulesets published and saved as patches: complete, errors detected, or fetched
in full.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis as redis_client
from structlog.testing import capture_logs

from anabranch_contract.errors import RulesetError
from anabranch_contract.packed import pack
from anabranch_contract.plans import rows
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.patches import Patch, difference, is_patch
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.progress import Mode
from anabranch_runtime import decoding
from anabranch_runtime.control import Control, fetch_ruleset
from anabranch_runtime.errors import PipelineError, StateError
from anabranch_runtime.recovery.rulesets import KIND, Rulesets, kept_ruleset
from anabranch_runtime.storage.documents import read_text, write_document
from tests.support.cases.states import RS, ST, rules
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.driven import KEYS, Killed, die, driver, expected, job, results

MANY = {f"q{n:02}": (RS, ST)[n % 2] for n in range(20)}
ZERO = RulesetId(0)


@pytest.fixture
def url() -> Iterator[str]:
    forget()
    with redis_url() as server:
        yield server


def forget() -> None:
    """Clear caches, as in another process."""
    fetch_ruleset.cache_clear()
    rows._LAST.clear()
    decoding._BASES.clear()
    decoding._RESULTS.clear()


def text_of(epoch: int, queries: Mapping[str, str] = MANY) -> str:
    return rulesets.dumps(rules(epoch, queries))


def without(name: str) -> dict[str, str]:
    return {n: sql for n, sql in MANY.items() if n != name}


class World:
    """A Redis, written to as the service does, and a state directory."""

    def __init__(self, url: str, root: Path) -> None:
        self.url, self.root = url, root
        self.redis = redis_client.Redis.from_url(url)
        self.control = Control(url, "test")
        self.rulesets = Rulesets(root, self.control)

    def whole(self, epoch: int, text: str) -> None:
        """Publish a ruleset in full."""
        self.redis.set(KEYS.ruleset(epoch), pack(text))
        self.redis.delete(KEYS.newest_ruleset)
        self.redis.zadd(KEYS.published, {str(epoch): epoch})

    def patch(self, epoch: int, base: str, text: str, **changes: Any) -> Patch:
        """Publish a ruleset as a patch of epoch 0's ``base``, with ``changes``."""
        patch = replace(difference(ZERO, base, text), **changes)
        self.redis.set(KEYS.ruleset(epoch), patch.dumps())
        self.redis.set(KEYS.newest_ruleset, pack(text))
        self.redis.zadd(KEYS.published, {str(epoch): epoch})
        return patch

    def file(self, epoch: int) -> Path:
        return self.root / "rulesets" / f"{epoch:08d}.json"

    def is_patched(self, epoch: int) -> bool:
        return is_patch(read_text(self.file(epoch), KIND))

    def another(self) -> Rulesets:
        """Return the saved rulesets as another process reads them."""
        forget()
        self.rulesets = Rulesets(self.root, self.control)
        return self.rulesets


@pytest.fixture
def world(url: str, tmp_path: Path) -> World:
    return World(url, tmp_path)


def test_a_patch_is_the_ruleset_and_its_rows_are_those_of_the_base(world: World) -> None:
    base, text = text_of(0), text_of(1, without("q07"))
    world.whole(0, base)
    world.patch(1, base, text)
    first = world.rulesets.get(ZERO)
    second = world.rulesets.get(RulesetId(1))
    assert second == rulesets.loads(text)
    assert world.control.ruleset_text(RulesetId(1)) == text
    known = {q.id: q for q in first.queries}
    assert all(known[q.id] is q for q in second.queries)
    assert len(second.queries) == len(MANY) - 1
    # A copied patch gives a ruleset with the number under which it is published.
    world.redis.copy(KEYS.ruleset(1), KEYS.ruleset(5))
    assert world.rulesets.get(RulesetId(5)) == replace(second, epoch=5)


@pytest.mark.parametrize(
    "fault", ["missing", "another", "damaged", "patch", "digest", "of a patch"]
)
def test_what_can_not_be_patched_is_fetched_in_full_and_said(world: World, fault: str) -> None:
    base, text = text_of(0), text_of(1, without("q07"))
    world.whole(0, base)
    changes: dict[str, Any] = {}
    if fault == "missing":
        world.redis.delete(KEYS.ruleset(0))
    elif fault == "another":
        world.redis.set(KEYS.ruleset(0), text_of(0, without("q01")))
    elif fault == "damaged":
        world.redis.set(KEYS.ruleset(0), "zlib:AAAA")
    elif fault == "patch":
        changes["sections"] = {}
    elif fault == "digest":
        changes["base_digest"] = "0" * 32
    else:
        of_patch = difference(ZERO, base, base).dumps()
        world.redis.set(KEYS.ruleset(0), of_patch)
        changes["base_digest"] = rulesets.digest(of_patch)
    world.patch(1, base, text, **changes)
    with capture_logs() as logs:
        assert world.rulesets.get(RulesetId(1)) == rulesets.loads(text)
    said = [line for line in logs if "whole ruleset is fetched" in line["event"]]
    codes = {"patch": "digest-differs", "of a patch": "patch-of-patch"}
    assert [(line["ruleset"], line["base"], line["code"], line["log_level"]) for line in said] == [
        ("1", "0", codes.get(fault, "base-differs"), "warning")
    ]
    # The saved ruleset is complete without Redis.
    world.redis.flushall()
    assert world.another().get(RulesetId(1)) == rulesets.loads(text)
    assert kept_ruleset(world.root, RulesetId(1)) == rulesets.loads(text)


def test_nothing_runs_by_a_ruleset_that_was_not_checked(world: World) -> None:
    base, text = text_of(0), text_of(1, without("q07"))
    world.patch(1, base, text)
    for newest in (None, text_of(1, without("q01")), text.replace('"q00"', '"q99"'), "zlib:AAAA"):
        if newest is None:
            world.redis.delete(KEYS.newest_ruleset)
        else:
            world.redis.set(KEYS.newest_ruleset, newest)
        with pytest.raises(PipelineError) as caught:
            world.rulesets.get(RulesetId(1))
        assert caught.value.code == "no-ruleset"
        assert not world.file(1).exists()
    # It is published later.
    world.whole(0, base)
    assert world.rulesets.get(RulesetId(1)) == rulesets.loads(text)


@pytest.mark.parametrize(
    ("short", "code"),
    [('{"base":[0,0],"patch":1}', "bad-patch"), ('{"base":[0,0],"patch":9}', "unknown-version")],
)
def test_a_patch_that_can_not_be_read_is_an_error(world: World, short: str, code: str) -> None:
    world.redis.set(KEYS.ruleset(1), short)
    world.redis.set(KEYS.newest_ruleset, text_of(1))
    with pytest.raises(RulesetError) as caught:
        world.rulesets.get(RulesetId(1))
    assert caught.value.code == code
    assert not world.file(1).exists()


def test_what_is_kept_is_a_patch_of_what_is_kept(world: World) -> None:
    texts = [text_of(0), text_of(1, without("q07")), text_of(2, without("q08"))]
    texts.append(rulesets.renumbered(texts[2], 3))
    texts.append(text_of(4, {"other": "SELECT R.a FROM R JOIN S ON R.a = S.a WHERE S.b = 5"}))
    texts.append(rulesets.renumbered(texts[4], 5))
    for epoch, text in enumerate(texts):
        # Redis has all of them in full; local patches do not depend on that.
        world.whole(epoch, text)
        world.rulesets.get(RulesetId(epoch))
    assert [world.is_patched(n) for n in range(6)] == [False, True, True, True, False, True]
    # If only the number has changed, next to nothing is written.
    assert world.file(5).stat().st_size < 1500
    world.redis.flushall()
    for reader in (world.rulesets, world.another()):
        for epoch, text in enumerate(texts):
            assert reader.get(RulesetId(epoch)) == rulesets.loads(text)
    forget()
    for epoch, text in enumerate(texts):
        assert kept_ruleset(world.root, RulesetId(epoch)) == rulesets.loads(text)


def test_a_base_stays_as_long_as_a_patch_of_it(world: World) -> None:
    base = text_of(0)
    for epoch in range(9):
        text = base if epoch == 0 else text_of(epoch, without(f"q{epoch:02}"))
        world.whole(epoch, text)
        world.rulesets.get(RulesetId(epoch))
    names = [RulesetId(n) for n in range(9)]
    world.rulesets.forget(names[5:6])
    left = [0, 5, 7, 8]
    assert sorted(int(p.stem) for p in (world.root / "rulesets").iterdir()) == left
    # Another process does not know the bases of patches, and writes its next ruleset in full.
    again = world.another()
    world.whole(9, text_of(9, without("q10")))
    again.get(RulesetId(9))
    assert not world.is_patched(9)
    world.whole(10, text_of(10, without("q11")))
    again.get(RulesetId(10))
    assert world.is_patched(10)
    again.forget([names[5]])
    assert sorted(int(p.stem) for p in (world.root / "rulesets").iterdir()) == [0, 5, 9, 10]
    again.forget([])
    assert sorted(int(p.stem) for p in (world.root / "rulesets").iterdir()) == [9, 10]


@pytest.mark.parametrize("damage", ["gone", "flipped", "another"])
def test_a_kept_base_that_is_lost_is_noticed(world: World, damage: str) -> None:
    texts = [text_of(0), text_of(1, without("q07"))]
    for epoch, text in enumerate(texts):
        world.whole(epoch, text)
        world.rulesets.get(RulesetId(epoch))
    assert world.is_patched(1)
    base = world.file(0)
    if damage == "gone":
        base.unlink()
    elif damage == "flipped":
        data = bytearray(base.read_bytes())
        data[len(data) // 2] ^= 1
        base.write_bytes(data)
    else:
        write_document(base, KIND, rulesets.to_json(rules(0, without("q01"))))
    forget()
    with pytest.raises((StateError, RulesetError)) as caught:
        kept_ruleset(world.root, RulesetId(1))
    assert caught.value.code == ("base-differs" if damage == "another" else "damaged-ruleset")
    # It is fetched again, and then complete by itself.
    assert world.another().get(RulesetId(1)) == rulesets.loads(texts[1])
    world.redis.flushall()
    assert world.another().get(RulesetId(1)) == rulesets.loads(texts[1])


def test_redis_is_given_back_what_it_lost_in_full(world: World) -> None:
    base, text = text_of(0), text_of(1, without("q07"))
    world.whole(0, base)
    world.patch(1, base, text)
    for name in (ZERO, RulesetId(1)):
        world.rulesets.get(name)
    # Only the base is lost: a patch that can't be applied counts as missing, too.
    for lost in ([KEYS.ruleset(0), KEYS.newest_ruleset], [KEYS.ruleset(0), KEYS.ruleset(1)]):
        world.redis.delete(*lost)
        world.another().restore([ZERO, RulesetId(1)])
        forget()
        assert world.control.ruleset_text(ZERO) == base
        assert world.control.ruleset_text(RulesetId(1)) == text
    world.patch(1, base, text_of(1, without("q01")))
    with pytest.raises(StateError) as caught:
        world.another().restore([ZERO, RulesetId(1)])
    assert caught.value.code == "foreign-ruleset"


def test_files_of_the_release_before_are_read_and_are_no_bases(world: World) -> None:
    text = text_of(0)
    world.whole(0, text)
    world.rulesets.get(ZERO)
    write_document(world.file(0), replace(KIND, version=1), rulesets.to_json(rules(0, MANY)))
    assert world.another().get(ZERO) == rulesets.loads(text)
    assert kept_ruleset(world.root, ZERO) == rulesets.loads(text)
    # However the JSON is formatted, the saved file gives the same ruleset.
    for epoch in (1, 2):
        spelled = json.dumps(rulesets.to_json(rules(epoch, MANY)), indent=1)
        world.redis.set(KEYS.ruleset(epoch), spelled)
        world.rulesets.get(RulesetId(epoch))
        assert not world.is_patched(epoch)
    assert world.another().get(RulesetId(2)) == rules(2, MANY)


@pytest.mark.parametrize("mode", list(Mode))
def test_results_are_exact_whatever_dies_between_patches(
    url: str, tmp_path: Path, mode: Mode
) -> None:
    """Epochs of one batch, each with another query; drivers are killed, and Redis loses
    the base.
    """
    world, base = World(url, tmp_path / "unused"), text_of(0)
    one = driver(url, tmp_path, mode, every=1)
    patched = 0
    for epoch in range(12):
        text = text_of(epoch, without(f"q{2 * (epoch % 8) + 2:02}") if epoch else MANY)
        if epoch % 4:
            world.patch(epoch, base, text)
        else:
            world.whole(epoch, text)
        if epoch % 5 == 4:
            world.redis.delete(KEYS.ruleset(0))
        if epoch % 3 == 1:
            # The ruleset is saved, and no batch uses it yet.
            one.durability.rulesets.get(RulesetId(epoch))
        elif epoch % 3 == 2:
            with pytest.raises(Killed):
                one.run(die(job(epoch)))
        if epoch % 3:
            forget()
            one = driver(url, tmp_path, mode, every=1)
        one.run(job(epoch))
        assert kept_ruleset(tmp_path / "state", RulesetId(epoch)) == rulesets.loads(text)
        world.redis.set(KEYS.ruleset(0), pack(base))
        file = tmp_path / "state" / "rulesets" / f"{epoch:08d}.json"
        patched += is_patch(read_text(file, KIND))
    assert 3 <= patched < 12
    assert results(tmp_path, "q00") == expected(12)
    assert one.state.queries["q00"].results == 144
