"""Tests of a host's segment cache: it follows the manifest, and drops segments of other hosts and
merged ones.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.exchange.fleet import Fleet
from anabranch_runtime.placement.assignment import place
from anabranch_runtime.spark import apart
from anabranch_runtime.state.manifest import Manifests, State
from anabranch_runtime.task.context import BatchContext
from tests.support.cases.states import RS, rules, segment

HOSTS = ("a", "b", "c")


def context_of(root: Path, state: State, manifests: Manifests) -> BatchContext:
    """Return the context of the batch after ``state``."""
    manifests.commit(state)
    return BatchContext(
        batch=state.next_batch,
        epoch=0,
        ruleset=RulesetId(0, 0),
        attempt="x",
        root=str(root),
        staging="",
        redis_url="",
        namespace="",
        manifest=manifests.checksum(state.next_batch),
    )


def test_what_others_probe_and_what_was_merged_leaves_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "_next_sweep", 0.0)
    monkeypatch.setattr(apart, "SWEEP", 0.0)
    monkeypatch.setattr(apart, "REST", 0.0)
    manifests, placement = Manifests(tmp_path), place([4], HOSTS)
    state = enter_epoch(State(), rules(0, {"q": RS}, parallelism=4), 0)
    store = next(name for name, one in state.stores.items() if one.spec.partitions == 4)

    def holding(batch: int, names: dict[str, int]) -> BatchContext:
        found = tuple(
            replace(segment(store, (0, 0), partition=p), path=f"segments/{name}.pack")
            for name, p in names.items()
        )
        stores = {**state.stores, store: replace(state.stores[store], segments=found)}
        return context_of(tmp_path, replace(state, stores=stores, next_batch=batch), manifests)

    names = {f"{0:010d}-y-0-{p}": p for p in range(4)}
    segments = tmp_path / "segments"
    segments.mkdir()
    for name in (*names, "merged-young", f"{7:010d}-x-0-base"):
        (segments / f"{name}.pack").touch()
    fleet = Fleet(HOSTS, 1, placement)
    mine = {name for name, p in names.items() if placement.host_of(4, p) == "b"}
    young = {"merged-young", f"{7:010d}-x-0-base"}
    assert 0 < len(mine) < 4
    apart._tidy(holding(7, names), tmp_path, [fleet])
    assert {p.stem for p in segments.iterdir()} == mine | young
    # Segments prefetched for the host's next placement stay.
    dealt = Fleet(HOSTS, 0, placement)
    for name in names:
        (segments / f"{name}.pack").touch()
    apart._tidy(holding(7, names), tmp_path, [fleet, dealt])
    both = {name for name, p in names.items() if placement.host_of(4, p) in ("a", "b")}
    assert {p.stem for p in segments.iterdir()} == both | young
    apart._tidy(holding(7, names), tmp_path, [fleet])
    assert {p.stem for p in segments.iterdir()} == mine | young
    # The merged segment replaces them; no manifest names the other merged one yet.
    (segments / "merged-of-mine.pack").touch()
    merged = {"merged-of-mine": names[min(mine)]}
    apart._tidy(holding(8, merged), tmp_path, [fleet])
    assert {p.stem for p in segments.iterdir()} == {"merged-of-mine", "merged-young"}
    apart._tidy(holding(9, {}), tmp_path, [fleet])
    assert {p.stem for p in segments.iterdir()} == {"merged-young"}
