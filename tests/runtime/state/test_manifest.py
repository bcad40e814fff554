"""The manifest: loading gives the committed state, and damage is noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch_contract.protocol.activations import Activation, Visibility
from anabranch_contract.protocol.measurements import EdgeStatistics, JoinSample
from anabranch_contract.queries.joins import Label
from anabranch_contract.queries.mirs import MirId
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.errors import StateError
from anabranch_runtime.state import manifest
from anabranch_runtime.state.manifest import KEPT, KIND, Manifests, Speller, State, read_manifest
from anabranch_runtime.state.measured import Measurements
from anabranch_runtime.state.measures import StreamMeter, pack
from anabranch_runtime.state.values import KeyValues
from anabranch_runtime.storage.documents import canonical
from tests.support.cases.states import RS, base_store, measuring, mir_store, rules, segment


def full_state() -> State:
    """A state with something in every field."""
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
    assert len(list((tmp_path / "manifest").iterdir())) == KEPT + 1


def test_a_commit_that_was_interrupted_does_not_count(tmp_path: Path) -> None:
    manifests = Manifests(tmp_path)
    manifests.commit(State(next_batch=1))
    (tmp_path / "manifest" / "000000000002.partial").write_text('{"version":1,')
    assert Manifests(tmp_path).load() == State(next_batch=1)


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
    full_state().validate()
    with pytest.raises(StateError) as caught:
        State(next_batch=4, stores={"x": store}).validate()  # type: ignore[dict-item]
    assert caught.value.code == code


def test_the_text_of_a_state_is_canonical_whatever_was_spelled_before() -> None:
    speller, state = Speller(), full_state()
    x = state.stores["x"]
    for change in (
        {},
        {"measured": {"arrivals": {"R": 4, "Größe": 1}}},
        {"stores": {**state.stores, "x": replace(x, segments=(*x.segments, *x.segments))}},
        {"stores": {"x": x}, "measured": {"edges": {}}},
        {"measured": {"edges": {"R>S": EdgeStatistics(3, 2, 1e-7, 9, 2), "A>B": EdgeStatistics()}}},
        {"measured": {"sketches": {"R": {"b": "", "a": "x"}}}, "next_batch": 5},
    ):
        fields: dict[str, Any] = dict(change)
        state = measuring(state, **fields.pop("measured", {}))
        state = replace(state, **fields)
        for _ in range(2):
            assert speller.spell(state).text == canonical(state)


def test_entries_of_nested_records_are_spelled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    speller, state, spelled = Speller(), full_state(), list[object]()
    speller.spell(state)

    def canonical_text(body: object) -> str:
        spelled.append(body)
        return canonical(body)

    monkeypatch.setattr(manifest, "canonical", canonical_text)
    fresh = EdgeStatistics(1)
    speller.spell(measuring(state, edges={**state.measured.edges, "A>B": fresh}))
    measured = state.measured
    kept = [*state.stores.values(), *measured.sketches.values(), *measured.edges.values()]
    assert any(body is fresh for body in spelled)
    assert not any(body is one for body in spelled for one in kept)
