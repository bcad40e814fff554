"""Tests that a revision replaces a ruleset only if it uses the same stores, maintained in the same
way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.protocol.measurements import EdgeStatistics, JoinSample
from anabranch_contract.queries.joins import Label, RelationId
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.epochs.revisions import check_revision, enter_revision
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.state.manifest import State
from tests.support.cases.drawn_worlds import random_world
from tests.support.cases.random_plans import random_plan, random_revision
from tests.support.cases.states import measuring

SAMPLE = JoinSample(MirId("r*s@1"), (Label("r"),), (Label("s"),), 3.0, 9.0, 2.0)


def drawn(seed: int) -> tuple[Ruleset, Ruleset]:
    """A random ruleset of epoch 2 that keeps an intermediate result, and a revision of it."""
    rng = Random(seed)
    while True:
        queries = random_world(rng, epochs=1).queries
        plan = random_plan(queries, rng, mirs=0.7, apart=True)
        running = compile_ruleset(plan, queries, (), epoch=2, parallelism=2, sinks={})
        if any(len(s.members) > 1 for s in running.stores):
            revision = random_revision(running, queries, rng, 1)
            if any(len(s.members) > 1 for s in revision.stores):
                return running, revision


def begun(running: Ruleset) -> State:
    """Return a state whose epoch began in batch 5; batch 9 is next."""
    state = enter_epoch(State(next_batch=5), running, 2)
    edges = {"in:r>s": EdgeStatistics(probes=4)}
    return measuring(replace(state, next_batch=9), edges=edges)


@pytest.mark.parametrize("seed", range(20))
def test_a_revision_closes_what_it_leaves_out(seed: int) -> None:
    running, revision = drawn(seed)
    check_revision(running, revision)

    state = enter_revision(begun(running), revision, (SAMPLE,))

    assert state.ruleset == RulesetId(2, 1)
    assert state.epoch == 2
    assert (state.measured.edges, state.measured.epoch_steps) == ({}, (SAMPLE,))
    kept = {str(s.id): s for s in revision.stores}
    for name, store in state.stores.items():
        if name in kept:
            assert (store.open_since, store.intervals, store.spec) == (5, (), kept[name])
        else:
            assert (store.open_since, store.intervals) == (None, ((5, 8),))


def without_a_base(rules: Ruleset) -> Ruleset:
    base = next(s.id for s in rules.stores if len(s.members) == 1)
    stores = tuple(s for s in rules.stores if s.id != base)
    return replace(
        rules, stores=stores, store_rules=tuple(r for r in rules.store_rules if r.store != base)
    )


def with_a_store_more(rules: Ruleset) -> Ruleset:
    last = rules.stores[-1]
    return replace(rules, stores=(*rules.stores, replace(last, id=last.id + "x")))  # type: ignore[arg-type]


def with_other_columns(rules: Ruleset) -> Ruleset:
    *rest, last = rules.stores
    return replace(rules, stores=(*rest, replace(last, columns=((Label("r"), "new"),))))


def with_less_upkeep(rules: Ruleset) -> Ruleset:
    kept = next(s.id for s in rules.stores if len(s.members) > 1)
    fed = next(r for r in rules.store_rules if r.store == kept)
    return replace(rules, store_rules=tuple(r for r in rules.store_rules if r != fed))


def with_one_query_less(rules: Ruleset) -> Ruleset:
    return replace(rules, queries=rules.queries[1:])


def with_another_relation(rules: Ruleset) -> Ruleset:
    one = replace(rules.relations[0], id=RelationId("z"))
    return replace(rules, relations=(*rules.relations, one))


def of_another_epoch(rules: Ruleset) -> Ruleset:
    return replace(rules, epoch=3)


def the_same_again(rules: Ruleset) -> Ruleset:
    return replace(rules, revision=0)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (without_a_base, "revision-stores-differ"),
        (with_a_store_more, "revision-stores-differ"),
        (with_other_columns, "revision-stores-differ"),
        (with_less_upkeep, "revision-upkeep-differs"),
        (with_one_query_less, "revision-differs"),
        (with_another_relation, "revision-differs"),
        (of_another_epoch, "revision-differs"),
        (the_same_again, "revision-differs"),
    ],
)
def test_what_is_no_revision_is_refused(change: Callable[[Ruleset], Ruleset], code: str) -> None:
    running, revision = drawn(1)

    with pytest.raises(PipelineError) as caught:
        check_revision(running, change(revision))

    assert caught.value.code == code
    assert "the old ruleset continues" in caught.value.remedy
