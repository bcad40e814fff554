"""Tests of the partitions to which new rows of hot values are distributed, from one ruleset to the
next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import HotValue, Ruleset, StoreId
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.epochs.revisions import check_revision, enter_revision
from anabranch_runtime.placement import spreading as dealing
from anabranch_runtime.placement.spreading import deal, forget_cold
from anabranch_runtime.state.dealt import Dealt
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.placement import Hosts, Placement
from tests.support.cases.states import RS, rules, segment

COUNT = 6
#: Three hosts; from partition 4 on the next partitions are on hosts 1, 0 and 2.
PLACES = Placement(("a", "b", "c"), ((COUNT, (0, 2, 1, 1, 1, 0)),))
STORE = StoreId("R[a:bigint]/6")


def hot(epoch: int, *values: tuple[int, int]) -> Ruleset:
    """Return a ruleset by which these (hash, hosts) are hot in the store of R."""
    made = rules(epoch, {"q": RS}, parallelism=COUNT)
    found = tuple(HotValue(*one) for one in values)
    stores = tuple(replace(s, hot=found) if s.id == STORE else s for s in made.stores)
    made = replace(made, stores=stores)
    made.validate()
    return made


def entered(state: State, ruleset: Ruleset, batch: int = 0) -> State:
    """Return ``state``, in which batch ``batch`` begins the epoch of ``ruleset``."""
    state = enter_epoch(replace(state, next_batch=batch), ruleset, ruleset.epoch)
    return deal(state, ruleset)


def dealt(state: State) -> tuple[Dealt, ...]:
    """Return the entries of R's store for hot values and their partitions."""
    return state.stores[STORE].dealt


def with_segments(state: State, *partitions: int, batches: tuple[int, int]) -> State:
    """Return ``state`` with a segment of R in each of these partitions."""
    found = tuple(segment(STORE, batches, partition=p) for p in partitions)
    store = replace(state.stores[STORE], segments=found)
    return replace(state, stores={**state.stores, STORE: store})


@pytest.mark.parametrize(("hosts", "targets"), [(2, (4, 5)), (3, (4, 5, 1)), (9, (4, 5, 1))])
def test_a_value_goes_to_one_partition_of_each_host(hosts: int, targets: Sequence[int]) -> None:
    state = entered(State(hosts=Hosts(PLACES)), hot(0, (4, hosts)))
    (found,) = dealt(state)
    assert (found.hash, found.now, found.first) == (4, targets, 0)
    assert found.partitions == tuple(sorted(set(targets) - {4}))


def test_nothing_is_dealt_on_one_host_or_before_hosts_have_partitions() -> None:
    one = Placement(("a",), ((COUNT, (0,) * COUNT),))
    other = Placement(("a", "b"), ((3, (0, 1, 0)),))
    for placement in (None, one, other):
        assert dealt(entered(State(hosts=Hosts(placement)), hot(0, (4, 3)))) == ()


def test_what_has_cooled_is_looked_for_until_its_rows_have_gone() -> None:
    state = entered(State(hosts=Hosts(PLACES)), hot(0, (4, 3)))
    state = entered(with_segments(state, 1, batches=(0, 2)), hot(1), batch=3)
    assert dealt(state) == (Dealt(4, (1, 5), (), 0, 2),)
    # Rows that arrived since are in the value's home partition.
    state = entered(with_segments(state, 1, 4, batches=(3, 4)), hot(2), batch=5)
    assert dealt(state) == ()


def test_a_value_that_is_hot_again_is_looked_for_wherever_it_has_been() -> None:
    state = entered(State(hosts=Hosts(PLACES)), hot(0, (4, 3)))
    state = entered(with_segments(state, 1, batches=(0, 2)), hot(1), batch=3)
    moved = Placement(("a", "b", "c"), ((COUNT, (2, 2, 0, 1, 1, 1)),))
    state = entered(replace(state, hosts=Hosts(moved)), hot(2, (4, 3)), batch=9)
    assert dealt(state) == (Dealt(4, (0, 1, 2, 5), (4, 0, 2), 0, 2),)


def test_a_store_that_is_closed_deals_nothing_and_keeps_what_it_says() -> None:
    state = entered(State(hosts=Hosts(PLACES)), hot(0, (4, 3)))
    gone = hot(1)
    gone = replace(
        gone,
        stores=tuple(s for s in gone.stores if s.id != STORE),
        store_rules=tuple(r for r in gone.store_rules if r.store != STORE),
    )
    state = entered(with_segments(state, 5, batches=(0, 0)), gone, batch=1)
    assert dealt(state) == (Dealt(4, (1, 5), (), 0, 0),)


def test_no_more_values_are_remembered_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealing, "REMEMBERED", 2)
    state = entered(State(hosts=Hosts(PLACES)), hot(0, (1, 3), (4, 3)))
    state = entered(with_segments(state, *range(COUNT), batches=(0, 0)), hot(1, (4, 3), (5, 3)), 1)
    assert [(one.hash, bool(one.now)) for one in dealt(state)] == [(1, False), (4, True)]


def test_a_revision_may_have_other_hot_values() -> None:
    running, revision = hot(0, (4, 3)), replace(hot(0, (3, 2)), revision=1)
    state = replace(entered(State(hosts=Hosts(PLACES)), running), next_batch=2)
    state = with_segments(state, 1, batches=(0, 1))
    check_revision(running, revision)
    found = dealt(deal(enter_revision(state, revision, ()), revision))
    assert found == (Dealt(3, (5,), (3, 5), 2, 1), Dealt(4, (1, 5), (), 0, 1))


def test_rules_say_what_is_hot_in_their_text_and_only_where_there_is_an_attribute() -> None:
    made = hot(0, (4, 3), (2**64 - 1, 2))
    assert rulesets.loads(rulesets.dumps(made)) == made
    for values in (((4, 1),), ((5, 2), (4, 2)), ((4, 2), (4, 3)), ((-1, 2),)):
        with pytest.raises(RulesetError, match="values can't be hot"):
            hot(0, *values)
    alone = tuple(replace(s, partition=None) for s in made.stores)
    with pytest.raises(RulesetError, match="values can't be hot"):
        replace(made, stores=alone).validate()


def test_a_value_is_forgotten_with_the_last_segment_that_may_have_its_rows() -> None:
    cold, hot = Dealt(3, (1, 2), (), 4, 6), Dealt(9, (1,), (1, 2), 8, 7)
    kept = forget_cold((cold, hot), [segment("R", (6, 9), partition=2)])
    assert kept == (cold, hot)
    for other in (
        segment("R", (7, 9), partition=2),
        segment("R", (0, 3), partition=1),
        segment("R", (4, 6), partition=3),
    ):
        assert forget_cold((cold, hot), [other]) == (hot,)
    assert forget_cold((), []) == ()
