"""Tests of damaged and lost parts of a state: rolled back to the last intact batch, or refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import redis as redis_client

from anabranch_contract.protocol.progress import Mode
from anabranch_runtime.control import Control
from anabranch_runtime.driver import driver as drivers
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.errors import AnabranchRuntimeError, PipelineError, StateError
from anabranch_runtime.recovery.journal import REMEMBERED
from anabranch_runtime.storage.pipeline_lock import exclusive
from tests.support.cases.states import RS
from tests.support.worlds.driven import (
    KEYS,
    Killed,
    boundaries,
    driver,
    expected,
    job,
    publish,
    results,
)
from tests.support.worlds.random_cuts import RandomCuts


@pytest.fixture
def url(url: str) -> str:
    publish(url, 0)
    return url


@pytest.fixture
def log(url: str, tmp_path: Path) -> RandomCuts:
    return RandomCuts(url, tmp_path)


def newest_manifest(folder: Path) -> Path:
    return max((folder / "state" / "manifest").glob("*.json"))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def remove(path: Path) -> None:
    path.unlink()


def halves(log: RandomCuts, batches: int) -> Driver:
    one = log.start()
    for _ in range(batches):
        log.step(one)
    return one


def refused(log: RandomCuts, code: str) -> StateError:
    """Check that a start is refused with ``code`` and a remedy, and changes nothing."""
    before = {p: p.stat().st_mtime_ns for p in log.folder.rglob("*") if p.is_file()}
    with pytest.raises(StateError) as caught:
        log.start()
    assert caught.value.code == code
    assert caught.value.remedy
    after = {p: p.stat().st_mtime_ns for p in log.folder.rglob("*") if p.is_file()}
    assert after == before
    return caught.value


# --- rolled back -------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [flip, truncate, remove])
def test_a_damaged_newest_manifest_costs_one_batch(
    damage: Callable[[Path], None], log: RandomCuts, tmp_path: Path
) -> None:
    halves(log, 6)
    damage(newest_manifest(tmp_path))
    ran = list(log.read)

    one = log.start()
    assert one.state.next_batch == 5
    log.run(one)

    # The batch has run again with the same input.
    assert log.read[6] == ran[5]
    assert results(tmp_path) == expected(log.total)


def test_two_damaged_manifests_cost_two_batches(log: RandomCuts, tmp_path: Path) -> None:
    halves(log, 6)
    ran = list(log.read)
    for _ in range(2):
        remove(newest_manifest(tmp_path))

    one = log.start()
    assert one.state.next_batch == 4
    log.run(one)

    # Both batches were repeated with their original input, not planned again.
    assert log.read[6:8] == ran[4:6]
    assert results(tmp_path) == expected(log.total)


@pytest.mark.parametrize("damage", [flip, truncate, remove])
def test_a_damaged_pack_of_the_last_batch_costs_that_batch(
    damage: Callable[[Path], None], log: RandomCuts, tmp_path: Path
) -> None:
    halves(log, 5)
    damage(max((tmp_path / "state" / "segments").iterdir()))

    one = log.start()
    assert one.state.next_batch == 4
    log.run(one)

    assert results(tmp_path) == expected(log.total)


def test_merged_packs_stay_as_long_as_the_state_can_go_back_to_them(
    log: RandomCuts, tmp_path: Path
) -> None:
    one = log.start()
    while not any(s.level for store in one.state.stores.values() for s in store.segments):
        assert log.step(one)
    remove(newest_manifest(tmp_path))

    one = log.start()
    assert not any(s.level for store in one.state.stores.values() for s in store.segments)
    log.run(one)

    assert results(tmp_path) == expected(log.total)
    named = one.durability.manifests.named
    assert {f"segments/{p.name}" for p in (tmp_path / "state" / "segments").iterdir()} == named


def test_an_interrupted_batch_runs_as_it_was_begun_after_a_roll_back(
    log: RandomCuts, tmp_path: Path
) -> None:
    log.interrupt(halves(log, 4))
    ran = list(log.read)
    truncate(newest_manifest(tmp_path))

    log.run(log.start())

    # Its results had been published: other tuples with its number would be wrong.
    assert log.read[5:7] == ran[3:5]
    assert results(tmp_path) == expected(log.total)


def test_the_first_batches_can_be_rolled_back_to_nothing(log: RandomCuts, tmp_path: Path) -> None:
    halves(log, 2)
    for path in (tmp_path / "state" / "manifest").iterdir():
        flip(path)

    one = log.start()
    assert one.state.next_batch == 0
    log.run(one)

    assert results(tmp_path) == expected(log.total)


def test_epochs_go_on_after_a_roll_back_over_their_boundary(url: str, log: RandomCuts) -> None:
    halves(log, 4)
    assert [b.epoch for b in boundaries(url)] == [-1, 0]
    publish(url, 1, {"q": RS, "p": RS})
    remove(newest_manifest(log.folder))

    one = log.start()
    log.step(one)
    assert one.state.epoch == 0
    assert [b.epoch for b in boundaries(url)] == [-1, 0]
    log.step(one)
    assert one.state.epoch == 1
    assert one.state.queries["p"].activated_batch == 4


# --- refused -----------------------------------------------------------------------------------


def test_a_damaged_old_pack_is_refused(log: RandomCuts, tmp_path: Path) -> None:
    halves(log, 6)
    first = min((tmp_path / "state" / "segments").iterdir())
    flip(first)
    assert first.name in refused(log, "state-lost").message
    flip(first)
    log.run(log.start())
    assert results(tmp_path) == expected(log.total)


def test_lost_manifests_are_refused(log: RandomCuts, tmp_path: Path) -> None:
    halves(log, 8)
    shutil.rmtree(tmp_path / "state" / "manifest")
    (tmp_path / "state" / "manifest").mkdir()
    refused(log, "state-lost")


def test_an_older_state_is_refused(log: RandomCuts, tmp_path: Path) -> None:
    halves(log, 2)
    for name in ("manifest", "segments"):
        shutil.copytree(tmp_path / "state" / name, tmp_path / "old" / name)
    one = log.start()
    for _ in range(6):
        log.step(one)
    for name in ("manifest", "segments"):
        shutil.rmtree(tmp_path / "state" / name)
        shutil.copytree(tmp_path / "old" / name, tmp_path / "state" / name)
    refused(log, "state-behind")


def entry(folder: Path, batch: int) -> Path:
    return folder / "state" / "journal" / f"{batch:012d}.json"


@pytest.mark.parametrize("damage", [flip, truncate])
def test_a_damaged_entry_of_a_begun_batch_is_refused_until_it_is_deleted(
    damage: Callable[[Path], None], log: RandomCuts, tmp_path: Path
) -> None:
    log.interrupt(halves(log, 3))
    damage(entry(tmp_path, 3))
    error = refused(log, "damaged-journal")
    assert str(entry(tmp_path, 3)) in error.message
    assert "delete" in error.remedy
    remove(entry(tmp_path, 3))
    log.run(log.start())
    assert results(tmp_path) == expected(log.total)


@pytest.mark.parametrize("damage", [flip, truncate, remove])
def test_a_damaged_entry_between_batches_costs_nothing(
    damage: Callable[[Path], None], log: RandomCuts, tmp_path: Path
) -> None:
    halves(log, 3)
    damage(entry(tmp_path, 1))
    if damage is not remove:
        damage(entry(tmp_path, 2))
    log.run(log.start())
    assert results(tmp_path) == expected(log.total)


@pytest.mark.parametrize("mode", [Mode.LIVE, Mode.STEP])
def test_a_lost_journal_is_refused_unless_batches_repeat_identically(
    mode: Mode, log: RandomCuts, tmp_path: Path
) -> None:
    log.mode = mode
    for epoch in range(1, 20 if mode is Mode.STEP else 1):
        publish(log.url, epoch)
    halves(log, 3)
    shutil.rmtree(tmp_path / "state" / "journal")
    if mode is Mode.LIVE:
        (tmp_path / "state" / "journal").mkdir()
        assert entry(tmp_path, 2).name in refused(log, "damaged-journal").remedy
        entry(tmp_path, 2).touch()
    log.run(log.start())
    assert results(tmp_path) == expected(log.total)


def test_old_entries_are_deleted(log: RandomCuts, tmp_path: Path) -> None:
    halves(log, 7)
    kept = sorted(int(p.stem) for p in (tmp_path / "state" / "journal").iterdir())
    assert kept == list(range(7 - REMEMBERED, 7))


@pytest.mark.parametrize("name", ["files/x.jsonl", "checkpoint/sources/0/3"])
@pytest.mark.parametrize("damage", [flip, truncate, remove])
def test_a_damaged_log_of_a_source_is_refused(
    damage: Callable[[Path], None], name: str, log: RandomCuts, tmp_path: Path
) -> None:
    path = tmp_path / "state" / name
    path.parent.mkdir(parents=True)
    path.write_text("one\ntwo\n")
    halves(log, 2)
    with path.open("a") as file:
        file.write("three\n")
    log.step(log.start())
    kept = path.read_bytes()
    damage(path)
    assert name in refused(log, "damaged-log").message
    path.write_bytes(kept)
    if path.suffix != ".jsonl":
        # Spark has replaced this entry by a compacted one.
        path.rename(path.with_name("9.compact"))
    log.run(log.start())
    assert results(tmp_path) == expected(log.total)


def test_a_state_directory_is_one_processes(tmp_path: Path) -> None:
    with exclusive(tmp_path):
        with pytest.raises(StateError) as caught, exclusive(tmp_path):
            pass
        assert caught.value.code == "state-in-use"
        assert str(tmp_path) in caught.value.message
    with exclusive(tmp_path):
        pass


# --- Redis -------------------------------------------------------------------------------------


def test_a_redis_without_its_data_is_refused(url: str, log: RandomCuts) -> None:
    one = halves(log, 3)
    redis_client.Redis.from_url(url).flushall()
    with pytest.raises(StateError) as caught:
        one.belong()
    assert caught.value.code == "redis-lost"
    publish(url, 0, {"other": RS})
    refused(log, "redis-lost")


def test_another_pipelines_redis_is_refused(url: str, log: RandomCuts, tmp_path: Path) -> None:
    halves(log, 2)
    redis_client.Redis.from_url(url).set(KEYS.pipeline, "another")
    refused(log, "foreign-state")


def test_a_lost_state_directory_is_refused(url: str, log: RandomCuts, tmp_path: Path) -> None:
    halves(log, 2)
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(StateError) as caught:
        log.start()
    assert caught.value.code == "state-lost"
    redis_client.Redis.from_url(url).delete(KEYS.pipeline)
    assert log.start().state.next_batch == 0


def test_another_ruleset_under_a_number_in_use_is_refused(url: str, log: RandomCuts) -> None:
    halves(log, 2)
    publish(url, 0, {"q": RS, "p": RS})
    refused(log, "foreign-ruleset")


def test_a_ruleset_that_redis_has_lost_is_given_back(
    url: str, log: RandomCuts, tmp_path: Path
) -> None:
    halves(log, 4)
    connection = redis_client.Redis.from_url(url)
    kept = connection.get(KEYS.ruleset(0))
    connection.delete(KEYS.ruleset(0), KEYS.published)

    one = log.start()
    log.run(one)

    assert results(tmp_path) == expected(log.total)
    assert json.loads(connection.get(KEYS.ruleset(0)) or b"") == json.loads(kept or b"")
    assert Control(url, "test").newest_epoch(9) == 0


def test_a_damaged_kept_ruleset_is_fetched_again(url: str, log: RandomCuts, tmp_path: Path) -> None:
    halves(log, 2)
    kept = tmp_path / "state" / "rulesets" / "00000000.json"
    flip(kept)

    log.run(log.start())

    assert results(tmp_path) == expected(log.total)
    flip(kept)
    redis_client.Redis.from_url(url).delete(KEYS.ruleset(0))
    log.total += 10
    with pytest.raises(PipelineError) as caught:
        log.run(log.start())
    assert caught.value.code == "no-ruleset"


def test_waiting_for_a_ruleset_ends_when_redis_has_lost_everything(
    url: str, tmp_path: Path
) -> None:
    one = driver(url, tmp_path)
    for batch in range(2):
        one.run(job(batch))
    redis_client.Redis.from_url(url).flushall()
    with pytest.raises(StateError) as caught:
        one.run(job(2))
    assert caught.value.code == "redis-lost"


# --- at random ---------------------------------------------------------------------------------


def fuzz(log: RandomCuts, seed: int) -> str:
    """Stop a pipeline at random, damage one or two of its files, and start it again; return the
    outcome.

    Raises:
        AssertionError: its results are wrong.
    """
    random = Random(seed)
    log.random = random
    log.mode = random.choice((Mode.LIVE, Mode.STEP))
    for epoch in range(1, 40 if log.mode is Mode.STEP else 1):
        publish(log.url, epoch)
    one = halves(log, random.randint(1, 5))
    where = random.choice(("commit", "publish", "job", "nowhere"))
    if where != "nowhere":
        target, name = {
            "commit": (one.durability.manifests, "commit"),
            "publish": (type(one.publisher), "publish"),
            "job": (drivers, "attempt"),
        }[where]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(target, name, _killed)
            with pytest.raises(Killed):
                log.step(one)
    files = sorted(p for p in (log.folder / "state").rglob("*") if p.is_file())
    for _ in range(random.choice((1, 1, 2))):
        path = random.choice(files)
        if not path.exists():
            continue
        size = path.stat().st_size
        kind = random.choice(("flip", "truncate", "remove"))
        if kind == "remove" or not size:
            path.unlink()
        elif kind == "truncate":
            path.write_bytes(path.read_bytes()[: random.randrange(size)])
        else:
            content = bytearray(path.read_bytes())
            content[random.randrange(size)] ^= 1 << random.randrange(8)
            path.write_bytes(content)
    refusal: AnabranchRuntimeError | None = None
    try:
        log.run(log.start())
    except AnabranchRuntimeError as error:
        refusal = error
    if refusal is not None:
        assert refusal.remedy, f"no remedy: {refusal!r}"
        return refusal.code
    assert results(log.folder) == expected(log.total)
    return "exact"


def _killed(*_: object, **__: object) -> None:
    raise Killed


@pytest.mark.parametrize("seed", range(8))
def test_damage_is_made_good_or_refused(seed: int, log: RandomCuts) -> None:
    fuzz(log, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 400))
def test_damage_of_many_kinds_is_made_good_or_refused(seed: int, log: RandomCuts) -> None:
    fuzz(log, seed)
