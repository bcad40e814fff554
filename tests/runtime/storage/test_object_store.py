"""Tests of state in an object store: replaced machines, noticed damage, one driver at a time."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.protocol.progress import Mode
from anabranch_runtime import inspection
from anabranch_runtime.__main__ import main
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.errors import AnabranchRuntimeError, PipelineError, StateError
from anabranch_runtime.recovery import durability
from anabranch_runtime.storage import lease as leases
from anabranch_runtime.storage import object_store as remotes
from anabranch_runtime.storage.cache import Cached, evictions
from anabranch_runtime.storage.depth import Verify
from anabranch_runtime.storage.durable import Mirrored, attach, durable
from anabranch_runtime.storage.lease import StoreLease
from anabranch_runtime.storage.object_store import Remote, open_remote
from anabranch_runtime.storage.segment_cache import close_all
from tests.support.scenarios.run import local
from tests.support.surroundings.folders import passing_folder
from tests.support.worlds.driven import expected, publish, results
from tests.support.worlds.random_cuts import RandomCuts, failing


@pytest.fixture
def url(url: str) -> str:
    publish(url, 0)
    return url


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def log(url: str, tmp_path: Path, objects: Path) -> RandomCuts:
    return RandomCuts(url, tmp_path, settings={"object_store": objects.as_uri()})


@pytest.fixture
def remote(objects: Path) -> Remote:
    return open_remote(objects.as_uri())


def begun(log: RandomCuts, batches: int) -> Driver:
    one = log.start()
    for _ in range(batches):
        assert log.step(one)
    settle(log)
    return one


def settle(log: RandomCuts) -> None:
    """Wait until the store has carried out its deletions."""
    kept = durable(log.folder / "state")
    assert isinstance(kept, Mirrored)
    kept._settle()
    if kept._tidying is not None:
        kept._tidying.result()


def documents(remote: Remote) -> set[str]:
    """Return the names of journal entries and manifests in the store."""
    return {name for name in remote.names() if name.startswith(("journal/", "manifest/"))}


def lose(log: RandomCuts) -> None:
    """Lose the machine, with its state directory."""
    close_all()
    shutil.rmtree(log.folder / "state")


def refused(log: RandomCuts, code: str) -> AnabranchRuntimeError:
    with pytest.raises(AnabranchRuntimeError) as caught:
        log.run(log.start())
    assert caught.value.code == code, caught.value
    assert caught.value.remedy
    return caught.value


def packs(folder: Path) -> set[str]:
    return {p.name for p in (folder / "segments").glob("*.pack")}


# --- puts of a batch ----------------------------------------------------------------------------


def test_a_batch_has_two_conditional_puts_and_the_second_commits_it(
    log: RandomCuts, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, names = begun(log, 3), list[str]()
    replace = Remote.replace

    def counted(self: Remote, name: str, content: bytes, known: remotes.Version | None) -> object:
        names.append(name)
        return replace(self, name, content, known)

    monkeypatch.setattr(Remote, "replace", counted)
    while log.step(one):
        names = [name for name in names if name != "lease.json"]
        number = one.state.next_batch
        assert names == [f"journal/{number - 1:012d}.json", f"manifest/{number:012d}.json"]
        names.clear()


# --- another machine ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(Mode))
def test_a_fresh_machine_goes_on_where_the_old_one_stopped(
    mode: Mode, url: str, log: RandomCuts, tmp_path: Path
) -> None:
    log.mode = mode
    for epoch in range(1, 8):
        publish(url, epoch)
    one, done = log.start(), 0
    while log.step(one):
        # On a new machine Spark repeats the last batch.
        if one.state.next_batch > done:
            done = one.state.next_batch
            lose(log)
            one = log.start()
    assert results(tmp_path) == expected(log.total)
    # No batch was read twice.
    assert [batch for batch, _, _ in log.read] == list(range(len(log.read)))


def test_a_batch_under_way_is_the_same_on_another_machine(log: RandomCuts, tmp_path: Path) -> None:
    log.interrupt(begun(log, 3))
    ran = log.read[-1]
    lose(log)
    log.run(log.start())
    assert log.read[4] == ran
    assert results(tmp_path) == expected(log.total)


def test_logs_of_found_files_come_along(log: RandomCuts, tmp_path: Path) -> None:
    found = tmp_path / "state" / "files" / "x.jsonl"
    found.parent.mkdir(parents=True)
    found.write_text("one\n")
    one = begun(log, 2)
    with found.open("a") as file:
        file.write("two\n")
    log.step(one)
    kept = found.read_bytes()
    lose(log)
    log.run(log.start())
    assert found.read_bytes() == kept
    assert results(tmp_path) == expected(log.total)


def test_a_lost_journal_is_refused_on_another_machine(log: RandomCuts, objects: Path) -> None:
    begun(log, 3)
    shutil.rmtree(objects / "journal")
    lose(log)
    assert refused(log, "damaged-journal").message


def test_a_machine_that_has_been_away_follows_the_store(log: RandomCuts, tmp_path: Path) -> None:
    begun(log, 2)
    away = tmp_path / "away"
    shutil.copytree(log.folder / "state", away)
    begun(log, 3)
    lose(log)
    shutil.copytree(away, log.folder / "state")
    (log.folder / "state" / "manifest" / "000000000099.json").write_text("{}")
    log.run(log.start())
    assert results(tmp_path) == expected(log.total)
    assert (log.folder / "state" / "aside" / "manifest" / "000000000099.json").exists()


def test_garbage_is_collected_in_the_store(log: RandomCuts, tmp_path: Path, objects: Path) -> None:
    one = log.start()
    (objects / "segments").mkdir(parents=True, exist_ok=True)
    (objects / "segments" / "left.pack").write_text("by a task that was killed")
    log.run(one)
    one = log.start()
    settle(log)
    there = {f"segments/{name}" for name in packs(objects)}
    assert (
        there
        == one.durability.manifests.named
        == {f"segments/{n}" for n in packs(tmp_path / "state")}
    )
    folders = [folder / "manifest" for folder in (objects, log.folder / "state")]
    assert len({tuple(sorted(p.name for p in folder.iterdir())) for folder in folders}) == 1
    assert not list(objects.rglob("*.partial"))


def test_what_a_failed_attempt_has_left_goes_while_the_pipeline_runs(
    log: RandomCuts, tmp_path: Path, objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durability, "TIDY", 0.0)
    failed = failing(log, monkeypatch)
    one = log.start()
    while log.step(one):
        settle(log)
        if one.state.next_batch == 4:
            # A task of a former attempt was slow.
            (objects / "segments" / "0000000001-slow-0-base.pack").write_text("late")
    settle(log)
    there = {f"segments/{name}" for name in packs(objects)}
    assert len(failed) == 1
    assert one.durability.manifests.named <= there
    assert not [name for name in there if failed[0] in name or "slow" in name]
    assert not [name for name in packs(tmp_path / "state") if failed[0] in name]
    assert results(tmp_path) == expected(log.total)


def test_who_has_lost_the_store_deletes_nothing(
    remote: Remote, tmp_path: Path, objects: Path
) -> None:
    kept = attach(tmp_path / "state", objects.as_uri())
    assert isinstance(kept, Mirrored)
    remote.put("segments/0000000001-a-0-base.pack", b"x")
    with kept.held():
        document = json.loads(remote.get("lease.json") or b"")
        stolen = json.dumps(document).replace(str(kept._lease and kept._lease.id), "another")
        remote.put("lease.json", stolen.encode())
        with structlog.testing.capture_logs() as logs:
            kept.tidy(frozenset(), 5)
            assert kept._tidying is not None
            kept._tidying.result()
        remote.put("lease.json", json.dumps(document).encode())
    assert [entry["event"] for entry in logs] == ["object store not tidied"]
    assert remote.get("segments/0000000001-a-0-base.pack") == b"x"


# --- the cache ---------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=20),
    limit=st.integers(0, 300),
)
def test_what_was_not_opened_for_longest_goes(sizes: list[tuple[int, int]], limit: int) -> None:
    cached = [Cached(f"{n:03}", size, opened) for n, (size, opened) in enumerate(sizes)]
    gone = evictions(cached, limit)
    kept = [c for c in cached if c.name not in gone]
    assert sum(c.bytes for c in kept) <= limit
    removed = [c for name in gone for c in cached if c.name == name]
    assert [c.opened for c in removed] == sorted(c.opened for c in removed)
    if removed:
        assert all(c.opened >= removed[-1].opened for c in kept)
        # With the last removed one, the limit would be exceeded.
        assert sum(c.bytes for c in kept) + removed[-1].bytes > limit


@pytest.mark.parametrize("limit", [0, 6000])
def test_the_cache_stays_within_its_limit(limit: int, log: RandomCuts, tmp_path: Path) -> None:
    log.settings["cache_size"] = limit
    one = log.start()
    while log.step(one):
        # Segments merged since are not committed, so they do not count.
        here = [tmp_path / "state" / name for name in one.durability.manifests.named]
        assert sum(p.stat().st_size for p in here if p.exists()) <= limit
    assert results(tmp_path) == expected(log.total)
    kept = durable(tmp_path / "state")
    assert isinstance(kept, Mirrored)
    assert kept.fetched > 0


@pytest.mark.parametrize("depth", list(Verify))
def test_a_truncated_object_is_refused_by_either_depth(
    depth: Verify, log: RandomCuts, objects: Path
) -> None:
    begun(log, 6)
    first = min((objects / "segments").iterdir())
    first.write_bytes(first.read_bytes()[:-100])
    lose(log)
    log.settings["verify"] = depth
    assert first.name in refused(log, "state-lost").message


def test_footers_alone_fetch_nothing(log: RandomCuts, tmp_path: Path) -> None:
    begun(log, 4)
    lose(log)
    log.settings["verify"] = Verify.FOOTERS
    one = log.start()
    assert not packs(tmp_path / "state")
    log.run(one)
    assert results(tmp_path) == expected(log.total)


def test_a_flipped_bit_is_noticed_when_the_pack_is_fetched(
    log: RandomCuts, tmp_path: Path, objects: Path
) -> None:
    begun(log, 6)
    lose(log)
    log.settings["verify"] = Verify.FOOTERS
    one = log.start()
    first = min((objects / "segments").iterdir())
    content = bytearray(first.read_bytes())
    content[100] ^= 1
    first.write_bytes(content)
    with pytest.raises(StateError) as caught:
        log.run(one)
    assert caught.value.code == "damaged-pack"
    assert first.name in caught.value.message
    assert not list((tmp_path / "state" / "segments").glob("*.partial"))
    content[100] ^= 1
    first.write_bytes(content)
    log.run(log.start())
    assert results(tmp_path) == expected(log.total)


def test_a_store_that_fails_during_a_start_is_no_reason_to_roll_back(
    log: RandomCuts, objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(log, 5)
    lose(log)
    monkeypatch.setattr(remotes, "PAUSES", ())

    def broken(_: object, name: str, __: object) -> None:
        raise StateError("store-unreachable", name, remedy="wait")

    with monkeypatch.context() as patch:
        patch.setattr(remotes.Remote, "download", broken)
        refused(log, "store-unreachable")
    assert log.start().state.next_batch == 5
    assert (objects / "manifest" / "000000000005.json").exists()


def test_tools_read_what_is_not_here_in_the_store(
    log: RandomCuts, tmp_path: Path, objects: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.settings["cache_size"] = 0
    begun(log, 5)
    state = tmp_path / "state"
    assert not packs(state)
    found = inspection.verify(state)
    assert not found["problems"]
    assert found["packs"] == 5
    assert not packs(state)
    first = min((objects / "segments").iterdir())
    first.write_bytes(first.read_bytes()[:50])
    (problem,) = inspection.verify(state)["problems"]
    assert problem["code"] == "damaged-pack"
    assert first.name in problem["message"]
    attach(state, None)
    assert inspection.main(["--state", str(state), "compact"]) == 1
    assert "store-missing" in capsys.readouterr().out


def test_what_is_compacted_is_durable(log: RandomCuts, tmp_path: Path) -> None:
    one = begun(log, 4)
    settings = log.settings["object_store"]
    arguments = ["--state", str(tmp_path / "state"), "--object-store", settings, "compact"]
    assert inspection.main(arguments) == 0
    lose(log)
    two = log.start()
    assert two.state.next_batch == one.state.next_batch
    assert any(s.level for store in two.state.stores.values() for s in store.segments)
    log.run(two)
    assert results(tmp_path) == expected(log.total)


def test_what_is_whole_here_and_not_there_is_put_there_again(
    log: RandomCuts, tmp_path: Path, objects: Path
) -> None:
    begun(log, 5)
    damaged, lost = sorted((objects / "segments").iterdir())[:2]
    kept = damaged.read_bytes(), lost.read_bytes()
    damaged.write_bytes(kept[0][:50])
    lost.unlink()
    log.start()
    assert (damaged.read_bytes(), lost.read_bytes()) == kept


def test_what_is_damaged_here_and_whole_there_is_fetched(log: RandomCuts, tmp_path: Path) -> None:
    begun(log, 5)
    first = min((tmp_path / "state" / "segments").iterdir())
    kept = first.read_bytes()
    first.write_bytes(kept[:50])
    one = log.start()
    assert first.read_bytes() == kept
    log.run(one)
    assert results(tmp_path) == expected(log.total)


# --- beginning and ending ----------------------------------------------------------------------


def test_an_empty_store_takes_on_the_state_of_a_directory(
    log: RandomCuts, tmp_path: Path, objects: Path
) -> None:
    settings, log.settings = log.settings, {}
    one = log.start()
    for _ in range(4):
        log.step(one)
    log.settings = settings
    log.start()
    assert {f"segments/{n}" for n in packs(objects)} >= one.durability.manifests.named
    lose(log)
    log.run(log.start())
    assert results(tmp_path) == expected(log.total)


def test_a_cache_is_not_run_without_its_store(log: RandomCuts) -> None:
    begun(log, 2)
    log.settings = {}
    assert "--object-store" in refused(log, "store-missing").remedy


def test_an_empty_store_behind_a_cache_is_refused(log: RandomCuts, objects: Path) -> None:
    begun(log, 2)
    shutil.move(objects, objects.with_name("elsewhere"))
    refused(log, "store-lost")
    shutil.move(objects.with_name("elsewhere"), objects)
    log.run(log.start())
    assert results(log.folder) == expected(log.total)


def test_another_pipelines_store_is_refused(log: RandomCuts, tmp_path: Path, objects: Path) -> None:
    begun(log, 2)
    path = objects / "pipeline.json"
    kept = path.read_bytes()
    path.write_bytes(json.dumps({**json.loads(kept), "pipeline": "another"}).encode())
    before = {p: p.read_bytes() for p in (tmp_path / "state" / "manifest").iterdir()}
    refused(log, "foreign-store")
    assert before == {p: p.read_bytes() for p in (tmp_path / "state" / "manifest").iterdir()}


@pytest.mark.parametrize(
    "uri", ["nothing", "ftp://host/x", "s3://", "file:///", "s3://user:secret@bucket/x?bad=1"]
)
def test_what_is_no_store_is_refused(uri: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError) as caught:
        attach(tmp_path, uri)
    assert caught.value.code == "bad-object-store"
    assert caught.value.field == "object_store"
    assert "secret" not in str(caught.value)


def test_the_command_line_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--redis-url", "redis://127.0.0.1:1", "--results", str(tmp_path)]
    arguments += ["--state", str(tmp_path / "state")]
    with pytest.raises(SystemExit):
        main([*arguments, "--cache-size", "2GB"])
    assert "--object-store" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*arguments, "--object-store", tmp_path.as_uri(), "--cache-size", "some"])
    assert "--cache-size" in capsys.readouterr().err
    monkeypatch.setenv("ANABRANCH_OBJECT_STORE", "ftp://host/x")
    # Otherwise the logger would write to the stream captured here.
    monkeypatch.setattr(structlog, "configure", lambda **_: None)
    assert main(arguments) == 1
    assert "is not an object store" in capsys.readouterr().err


def test_a_store_that_does_not_answer_is_told_of(
    log: RandomCuts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remotes, "PAUSES", ())
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    address = "s3://key:secret@bucket/x?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"
    log.settings = {"object_store": address}
    error = refused(log, "store-unreachable")
    assert "bucket/x" in error.message
    assert "secret" not in str(error)


# --- one at a time -----------------------------------------------------------------------------


def test_a_store_is_one_processes(remote: Remote, tmp_path: Path) -> None:
    with StoreLease(remote, tmp_path / "a").held():
        with pytest.raises(StateError) as caught, StoreLease(remote, tmp_path / "b").held():
            pass
        assert caught.value.code == "store-in-use"
        assert "objects" in caught.value.message
    # The lease has been given up.
    with StoreLease(remote, tmp_path / "b").held():
        pass


def test_a_killed_owner_is_followed_at_once_over_the_same_directory(
    remote: Remote, tmp_path: Path
) -> None:
    StoreLease(remote, tmp_path / "a")._renew()
    with StoreLease(remote, tmp_path / "a").held():
        pass


def test_a_stale_lease_is_taken_and_its_owner_stops(
    log: RandomCuts, tmp_path: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = attach(tmp_path / "state", log.settings["object_store"])
    with kept.held():
        one = begun(log, 2)
        before = results(tmp_path), documents(remote)
        monkeypatch.setattr(leases, "STALE", -1.0)
        with StoreLease(remote, tmp_path / "b").held():
            with pytest.raises(StateError) as caught:
                log.step(one)
            assert caught.value.code == "store-taken"
            assert one.state.next_batch == 2
    # Tasks may have run the batch by then, but none of its effects is visible.
    assert (results(tmp_path), documents(remote)) == before
    lose(log)
    log.run(log.start())
    assert results(tmp_path) == expected(log.total)


def test_a_lease_taken_during_a_batch_stops_its_commit(
    log: RandomCuts, tmp_path: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = attach(tmp_path / "state", log.settings["object_store"])
    with kept.held():
        one = begun(log, 2)
        publish_results = type(one.publisher).publish

        def meanwhile(*arguments: Any) -> Any:
            monkeypatch.setattr(leases, "STALE", -1.0)
            with StoreLease(remote, tmp_path / "b").held():
                return publish_results(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(type(one.publisher), "publish", meanwhile)
            with pytest.raises(StateError) as caught:
                log.step(one)
    assert caught.value.code == "store-taken"
    assert max(n for n in remote.names() if n.startswith("manifest/")) == (
        "manifest/000000000002.json"
    )
    lose(log)
    log.run(log.start())
    assert results(tmp_path) == expected(log.total)


def test_a_lease_is_renewed(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RENEWAL", 0.01)
    with StoreLease(remote, tmp_path / "a").held():
        first, deadline = remote.get(leases.NAME), time.monotonic() + 120
        while remote.get(leases.NAME) == first:
            assert time.monotonic() < deadline


# --- at random ---------------------------------------------------------------------------------


@pytest.fixture
def folder() -> Iterator[Path]:
    with passing_folder() as found:
        yield found


def assert_exact(seeds: Sequence[int], redis: str, folder: Path) -> set[str]:
    found: set[str] = set()
    for seed in seeds:
        verdict, happened = local(seed, folder / str(seed), redis, remote=True)
        assert not verdict.problems, f"seed {seed}: {verdict}"
        found |= set(happened)
    return found


def test_random_runs_over_lost_machines_are_exact(redis: str, folder: Path) -> None:
    found = assert_exact((3, 5, 7), redis, folder)
    assert found >= {"machine lost", "pack not in the cache"}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 300, 20))
def test_many_random_runs_over_lost_machines_are_exact(
    first: int, redis: str, folder: Path
) -> None:
    assert_exact(range(first, first + 20), redis, folder)


def damage(log: RandomCuts, seed: int) -> str:
    """Flip a bit of one of the store's objects, truncate or delete it, and lose the machine.

    Returns:
        ``exact`` if the results are, otherwise the code of the refusal.

    Raises:
        AssertionError: results are wrong, or damage of a live segment was not noticed.
    """
    random = Random(seed)
    log.random = random
    log.mode = random.choice((Mode.LIVE, Mode.STEP))
    for epoch in range(1, 40 if log.mode is Mode.STEP else 1):
        publish(log.url, epoch)
    one = begun(log, random.randint(1, 8))
    named = {s.path for store in one.state.stores.values() for s in store.kept}
    objects = log.folder / "objects"
    path = random.choice(sorted(p for p in objects.rglob("*") if p.is_file()))
    size = path.stat().st_size
    kind = random.choice(("flip", "flip", "truncate", "remove"))
    if kind == "remove":
        path.unlink()
    elif kind == "truncate":
        path.write_bytes(path.read_bytes()[: random.randrange(size)])
    else:
        content = bytearray(path.read_bytes())
        content[random.randrange(size)] ^= 1 << random.randrange(8)
        path.write_bytes(content)
    lose(log)
    refusal: AnabranchRuntimeError | None = None
    try:
        two = log.start()
        live = path.relative_to(objects).as_posix() in named
        assert not live or two.state.next_batch < one.state.next_batch, f"{path} is live"
        log.run(two)
    except AnabranchRuntimeError as error:
        refusal = error
    if refusal is not None:
        assert refusal.remedy, f"no remedy: {refusal!r}"
        return refusal.code
    assert results(log.folder) == expected(log.total)
    return "exact"


@pytest.mark.parametrize("seed", range(8))
def test_damage_in_the_store_is_made_good_or_refused(seed: int, log: RandomCuts) -> None:
    damage(log, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 308))
def test_damage_of_many_kinds_in_the_store_is_made_good_or_refused(
    seed: int, log: RandomCuts
) -> None:
    damage(log, seed)


# --- two drivers -------------------------------------------------------------------------------


def duel(url: str, folder: Path, seed: int) -> int:
    """Run two drivers on two machines alternately at random over one store, without a lease.

    Each takes itself for the only one, and restarts when the other has committed meanwhile.

    Returns:
        Number of restarts.
    """
    random = Random(seed)
    objects, shared = folder / "objects", folder / "results"
    logs = []
    for name in ("a", "b"):
        (folder / name).mkdir()
        shared.mkdir(exist_ok=True)
        (folder / name / "results").symlink_to(shared)
        settings = {"object_store": objects.as_uri()}
        logs.append(RandomCuts(url, folder / name, random=random, settings=settings))
    drivers: list[Driver | None] = [None, None]
    taken, goes_on = 0, True
    while goes_on:
        at = random.randrange(2)
        try:
            one = drivers[at]
            if one is None:
                one = drivers[at] = logs[at].start()
            goes_on = logs[at].step(one)
        except StateError as error:
            if error.code != "store-taken":
                raise
            taken += 1
            drivers[at] = None
    assert results(folder) == expected(logs[0].total)
    return taken


def test_of_two_drivers_one_commits_each_batch(url: str, tmp_path: Path) -> None:
    assert duel(url, tmp_path, 1) > 2
