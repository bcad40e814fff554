"""Tests of the state's manifests: loading restores the committed state, and damage is noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from anabranch_contract.protocol.activations import Activation, Visibility
from anabranch_contract.protocol.measurements import EdgeStatistics, JoinSample
from anabranch_contract.queries.joins import Label
from anabranch_contract.queries.mirs import MirId
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.errors import StateError
from anabranch_runtime.state import manifest
from anabranch_runtime.state.manifest import (
    KEPT,
    KIND,
    Manifests,
    State,
    packs_of,
    read_manifest,
)
from anabranch_runtime.state.measured import Measurements
from anabranch_runtime.state.measures import StreamMeter, pack
from anabranch_runtime.state.values import KeyValues
from tests.support.cases.states import RS, base_store, mir_store, rules, segment
from tests.support.oracles.invariants import check_state


def full_state() -> State:
    """Return a state with something in every field."""
    state = enter_epoch(State(), rules(0, {"q": RS + " WHERE S.b > 3"}, window=5, parallelism=2), 0)
    stored = segment("x", (1, 3), tau=[(-5, None)])
    indexed = replace(
        stored, indexes=(("k:bigint", True, ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 8, 7))),)
    )
    old = Activation(0, {"R": Visibility(0, 12)}, 5, "from", retention=((0, None), (-3, 0)))
    return replace(
        state,
        next_batch=4,
        streams={n: replace(s, max_tau=-7, history=((0, None),)) for n, s in state.streams.items()},
        stores={
            **state.stores,
            "x": base_store("R", ((0, 1),), since=3, segments=[indexed], expired_below=9),
            "y": mir_store("RS", ("R", "S"), (), since=2, bounds=[("R", "S", 3)]),
        },
        queries={
            **state.queries,
            "old": replace(old, expired_batch=2, results=3, earlier=(old, old)),
        },
        measured=Measurements(
            arrivals={"R": 3},
            sketches={"R": {"a,b": pack(np.array([1, 1 << 63], np.uint64))}},
            values={"R": {"a": KeyValues(9, 8.5, 1, 0.5, "AAA=", "CQA=", ("Ä",))}},
            meters={"R": StreamMeter(7, 1, since=5, delays=(6, 0, 1))},
            ran=(1.5, 2.5),
            edges={"R>S": EdgeStatistics(1, 2, 0.5, 9, 2)},
            probes={"0": 12},
            processing_seconds=1.25,
            steps=(JoinSample(MirId("R*S@1"), (Label("R"),), (Label("S"),), 4.5, 9.0, 2.0),),
        ),
    )


def test_what_is_committed_is_what_is_loaded(tmp_path: Path) -> None:
    state = full_state()
    Manifests(tmp_path).commit(state)
    assert Manifests(tmp_path).load() == state


def test_an_empty_directory_is_the_empty_state(tmp_path: Path) -> None:
    assert Manifests(tmp_path).load() == State()


def test_the_newest_counts_and_few_are_kept(tmp_path: Path) -> None:
    manifests = Manifests(tmp_path)
    for batch in (9, 10, 11, 100):
        manifests.commit(State(next_batch=batch))
    assert manifests.load().next_batch == 100
    assert len(manifests.kept()) == KEPT + 1


def test_a_commit_that_was_interrupted_does_not_count(tmp_path: Path) -> None:
    manifests = Manifests(tmp_path)
    manifests.commit(State(next_batch=1))
    (tmp_path / "manifest" / "000000000002.partial").write_text('{"version":1,')
    assert Manifests(tmp_path).load() == State(next_batch=1)


def test_a_commit_whose_packs_are_not_durable_does_not_count(tmp_path: Path) -> None:
    manifests = Manifests(tmp_path)
    manifests.commit(State(next_batch=1))

    def fails() -> None:
        assert not manifest.manifest_path(tmp_path, 2).exists()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        manifests.commit(State(next_batch=2), fails)
    assert Manifests(tmp_path).load().next_batch == 1
    manifests.commit(State(next_batch=2))
    assert Manifests(tmp_path).load().next_batch == 2


def test_entering_an_epoch_twice_replaces_the_manifest_of_the_same_batch(tmp_path: Path) -> None:
    manifests = Manifests(tmp_path)
    manifests.commit(State(next_batch=3, epoch=1))
    manifests.commit(State(next_batch=3, epoch=2))
    assert Manifests(tmp_path).load().epoch == 2


def committed(tmp_path: Path) -> Path:
    Manifests(tmp_path).commit(full_state())
    return next((tmp_path / "manifest").iterdir())


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = committed(tmp_path)
    path.write_text(path.read_text().replace('"next_batch":4', '"next_batch":5'))
    with pytest.raises(StateError) as caught:
        read_manifest(path)
    assert caught.value.code == "damaged-manifest"


@pytest.mark.parametrize("text", ["", "[", "{}", '{"version":1}'])
def test_what_is_no_manifest_is_said_to_be_none(text: str, tmp_path: Path) -> None:
    path = committed(tmp_path)
    path.write_text(text)
    with pytest.raises(StateError) as caught:
        read_manifest(path)
    assert caught.value.code == "damaged-manifest"


@pytest.mark.parametrize("version", [0, KIND.version + 1, "1", None])
def test_other_versions_are_refused(version: object, tmp_path: Path) -> None:
    path = committed(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": version}))
    with pytest.raises(StateError) as caught:
        read_manifest(path)
    assert caught.value.code == "unknown-version"
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("code", "store"),
    [
        ("overlap", base_store("R", ((0, 2), (2, 3)))),
        ("overlap", base_store("R", ((0, 2),), since=1)),
        ("future-segment", base_store("R", (), since=0, segments=[segment("x", (4, 4))])),
        ("stray-segment", base_store("R", ((2, 3),), segments=[segment("x", (1, 2))])),
        ("stray-segment", base_store("R", ((0, 1),), segments=[segment("x", (1, 2))])),
    ],
)
def test_broken_invariants_are_named(code: str, store: object) -> None:
    check_state(full_state())
    with pytest.raises(StateError) as caught:
        check_state(State(next_batch=4, stores={"x": store}))  # type: ignore[dict-item]
    assert caught.value.code == code


# --- chains of changes ---------------------------------------------------------------------------


def grown(state: State, draw: Random) -> State:
    """Return the state after a batch with some new segments, some merged, and some counts."""
    number = state.next_batch
    stores = dict(state.stores)
    for name in draw.sample(sorted(stores), draw.randrange(len(stores) + 1)):
        segments = list(stores[name].segments)
        if len(segments) > 3 and draw.random() < 0.5:
            at = draw.randrange(len(segments) - 1)
            del segments[at : at + draw.randint(1, 2)]
        segments.append(segment("x", (number, number)))
        stores[name] = replace(stores[name], segments=tuple(segments))
    if draw.random() < 0.2:
        stores[f"z{number}"] = base_store("R", ((0, 1),), since=number)
    if len(stores) > 2 and draw.random() < 0.2:
        del stores[max(stores)]
    known = state.measured
    arrivals = {**known.arrivals, draw.choice("RST"): draw.randrange(5)}
    state = replace(state, stores=stores, measured=replace(known, arrivals=arrivals))
    return replace(state, next_batch=number + draw.randint(0, 1), epoch=state.epoch + 1)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write whole manifests after few changes."""
    monkeypatch.setattr(manifest, "MOST_LINKS", 5)
    monkeypatch.setattr(manifest, "LEAST_GROWN", 4000)


@pytest.mark.parametrize("seed", range(20))
def test_every_kept_state_is_read_back_from_its_chain(
    seed: int, tmp_path: Path, short: None
) -> None:
    draw, state, manifests = Random(seed), full_state(), Manifests(tmp_path)
    committed: dict[int, State] = {}
    for _ in range(40):
        manifests.commit(state)
        committed = {n: s for n, s in committed.items() if n < state.next_batch}
        committed[state.next_batch] = state
        newest = [committed[n] for n in sorted(committed)[-KEPT - 1 :]][::-1]
        assert [found for _, found in Manifests(tmp_path).kept()] == newest
        assert manifests.named == frozenset().union(*map(packs_of, newest))
        assert len(list((tmp_path / "manifest").iterdir())) <= 2 * (5 + KEPT + 1)
        if draw.random() < 0.1:
            manifests = Manifests(tmp_path)
            manifests.kept()
        state = grown(state, draw)
    assert any(not whole(path) for path in (tmp_path / "manifest").iterdir())


def whole(path: Path) -> bool:
    return bool(json.loads(path.read_text())["commit"][0] is None)


def chain(tmp_path: Path, commits: int) -> list[Path]:
    """Return the paths of the manifests after ``commits`` commits; the first is whole."""
    manifests, state = Manifests(tmp_path), full_state()
    for batch in range(4, 4 + commits):
        manifests.commit(replace(state, next_batch=batch))
    paths = sorted((tmp_path / "manifest").iterdir())
    assert [whole(path) for path in paths] == [True] + [False] * (commits - 1)
    return paths


def test_a_manifest_after_another_has_the_changes_alone(tmp_path: Path) -> None:
    state, manifests = full_state(), Manifests(tmp_path)
    many = {f"x{n}": state.stores["x"] for n in range(1000)}
    state = replace(state, stores=many)
    manifests.commit(state)
    one = replace(many["x7"], segments=(*many["x7"].segments, segment("x", (4, 4))))
    manifests.commit(replace(state, next_batch=5, stores=many | {"x7": one}))
    sizes = [path.stat().st_size for path in sorted((tmp_path / "manifest").iterdir())]
    assert sizes[1] < 1000 < sizes[0] / 100
    assert manifests.load().stores["x7"] == one


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "another"])
@pytest.mark.parametrize("place", [0, 2])
def test_damage_within_a_chain_is_named_with_its_remedy(
    damage: str, place: int, tmp_path: Path
) -> None:
    paths = chain(tmp_path, 6)
    path, content = paths[place], paths[place].read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "another":
        path.write_bytes(KIND.spelled([None, [{}, {}, []]]).encode())
    else:
        path.write_bytes(content[:-9] if damage == "cut" else content.replace(b"batch", b"bat\0h"))
    for _, found in Manifests(tmp_path).kept():
        assert isinstance(found, StateError)
        assert (found.code, path.name in found.message) == ("damaged-manifest", True)
        assert found.remedy
    if damage != "gone":
        path.write_bytes(content)
        assert Manifests(tmp_path).load().next_batch == 9


def test_damage_of_the_newest_link_leaves_the_one_before(tmp_path: Path) -> None:
    paths = chain(tmp_path, 6)
    paths[-1].write_bytes(paths[-1].read_bytes()[:-5])
    found = [state for _, state in Manifests(tmp_path).kept()]
    assert isinstance(found[0], StateError)
    assert [s.next_batch for s in found[1:] if isinstance(s, State)] == [8, 7]


def test_a_commit_deletes_at_most_two_manifests(tmp_path: Path, short: None) -> None:
    manifests, state = Manifests(tmp_path), full_state()
    before: set[str] = set()
    for batch in range(4, 60):
        manifests.commit(replace(state, next_batch=batch))
        now = {path.name for path in (tmp_path / "manifest").iterdir()}
        assert len(before - now) <= 2
        before = now
