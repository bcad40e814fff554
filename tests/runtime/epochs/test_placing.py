"""Which host has which partition, from one epoch to the next, and what a host is dealt next."""

from __future__ import annotations

from dataclasses import replace

from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.epochs.placing import coming, placed
from anabranch_runtime.state.manifest import State
from tests.support.cases.states import RS, rules


def _state(*hosts: str) -> State:
    return replace(enter_epoch(State(), rules(0, {"q": RS}), 0), hosts=hosts)


def test_without_hosts_nothing_is_dealt_and_nothing_comes() -> None:
    assert placed(_state()).placement is None
    assert coming(_state()) is None


def test_what_comes_is_what_the_next_epoch_deals() -> None:
    state = placed(_state("a", "b"))
    assert coming(state) is None
    for hosts in (("a", "b", "c"), ("a",), ("b", "c")):
        changed = replace(state, hosts=hosts)
        found = coming(changed)
        assert found is not None
        assert found.hosts == hosts
        assert placed(changed).placement == found
        assert coming(placed(changed)) is None
