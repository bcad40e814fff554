"""Tests of partial stores, which keep only some values of a key: sets of values, and which probes
may use them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations, product

import pytest

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.partial import (
    ValueSet,
    Ways,
    check_kept,
    covers,
    kept_values,
    values_of,
)
from anabranch_contract.plans.plan import Objective, Optimizer, Plan, ProbeOrder, Step, StoreCopy
from anabranch_contract.plans.ruleset import KeptValues, Ruleset, Substreams, dumps, loads
from anabranch_contract.queries.joins import AttrRef, Label
from anabranch_contract.queries.mirs import base_mir, sub_join
from anabranch_planner.plans.compile import compile_ruleset
from tests.support.cases.queries import chain

#: R, S and T by one key; the intermediate result of S and T is stored.
QUERY = chain("R.a=S.a", "S.a=T.a", id="q")
R, S, T = map(Label, "RST")
#: Values 1 and 2 have substreams 1 and 2; all others are in substream 0.
FUNCTION = Substreams(R, "a", "bigint", ((1,), (2,)))
UNIVERSE = range(4)


def members(values: ValueSet) -> set[int]:
    return {x for x in UNIVERSE if (x in values.hashes) == values.listed}


SETS = [
    ValueSet(frozenset(some), listed)
    for size in range(len(UNIVERSE))
    for some in combinations(UNIVERSE, size)
    for listed in (True, False)
]


@pytest.mark.parametrize("one", SETS)
def test_sets_of_values(one: ValueSet) -> None:
    for other in SETS:
        assert members(one.union(other)) == members(one) | members(other)
        # The universe does not have all values that exist.
        expected = members(one) >= members(other) and (other.listed or not one.listed)
        assert one.has(other) == expected, other
    assert one.is_all == (members(one) == set(UNIVERSE) and not one.listed)


def test_values_of_substreams() -> None:
    function = replace_(FUNCTION, others=2)
    assert values_of(function, [3]) == ValueSet(frozenset({2}))
    assert values_of(function, [2, 3]) == ValueSet(frozenset({1, 2}))
    # Substreams that divide the unlisted values by hash count as one here.
    assert values_of(function, [1]) == values_of(function, [0, 1])
    assert values_of(function, [0, 3]) == ValueSet(frozenset({1}), listed=False)
    assert values_of(function, range(4)).is_all


def replace_(function: Substreams, others: int) -> Substreams:
    return Substreams(function.start, function.attribute, function.type, function.groups, others)


def test_what_a_store_can_answer_for() -> None:
    def kept(*hashes: int, listed: bool = True, attribute: str = "a") -> KeptValues:
        return KeptValues(AttrRef(S, attribute), "bigint", hashes, listed)

    assert covers(None, None)
    assert covers(None, kept(1))
    assert not covers(kept(1, listed=False), None)
    assert covers(kept(1, 2), kept(1))
    assert not covers(kept(1), kept(1, 2))
    assert covers(kept(1, listed=False), kept(1, 2, listed=False))
    assert not covers(kept(1, 2), kept(1, attribute="b"))
    assert kept_values(kept(1, listed=False)) == ValueSet(frozenset({1}), listed=False)


def rules(*through: int, functions: tuple[Substreams, ...] = (FUNCTION,)) -> Ruleset:
    """Return rules by which R's substreams ``through`` probe the store of S and T; the others probe
    S, then T.
    """
    inside = sub_join(QUERY, frozenset({S, T}))
    bases = [base_mir(QUERY.relation_of(label).id) for label in (R, S, T)]

    def step(label: Label) -> Step:
        return Step(base_mir(QUERY.relation_of(label).id).id, (label,), None, False, 0, 0)

    orders = [ProbeOrder("q", False, S, (step(R), step(T)))]
    orders += [ProbeOrder("q", False, T, (step(S), step(R)))]
    orders += [ProbeOrder(inside.id, True, S, (step(T),))]
    orders += [ProbeOrder(inside.id, True, T, (step(S),))]
    count = functions[0].count if functions else 1
    for number in range(count):
        joined = (Step(inside.id, (S, T), None, False, 0, 0),)
        steps = joined if number in through else (step(S), step(T))
        orders.append(ProbeOrder("q", False, R, steps, substream=number))
    plan = Plan(
        Optimizer.CLASH,
        Objective.TUPLES,
        (QUERY.id,),
        tuple(sorted(orders, key=lambda o: o.rank)),
        (*bases, inside),
        tuple(StoreCopy(m.id, None) for m in (*bases, inside)),
        0.0,
        0.0,
        0.0,
        "by hand",
        substreams=functions,
    )
    return compile_ruleset(plan, (QUERY,), (), epoch=0, parallelism=1, sinks={})


@pytest.mark.parametrize(
    ("through", "kept"),
    [
        ((0,), KeptValues(AttrRef(S, "a"), "bigint", (1, 2), listed=False)),
        ((0, 2), KeptValues(AttrRef(S, "a"), "bigint", (1,), listed=False)),
        ((1,), KeptValues(AttrRef(S, "a"), "bigint", (1,), listed=True)),
        ((1, 2), KeptValues(AttrRef(S, "a"), "bigint", (1, 2), listed=True)),
        ((0, 1, 2), None),
    ],
)
def test_a_store_keeps_what_is_looked_for(
    through: tuple[int, ...], kept: KeptValues | None
) -> None:
    found = rules(*through)
    (store,) = (s for s in found.stores if len(s.members) > 1)
    assert store.kept == kept
    assert loads(dumps(found)) == found
    check_kept(found)
    # A store's id says which values it keeps, and every rule uses this id.
    others = {s.id for through_ in ((0,), (1,), (0, 1, 2)) for s in rules(*through_).stores}
    assert (store.id in others) == (through in ((0,), (1,), (0, 1, 2)))


def test_tuples_may_not_look_for_what_is_not_kept() -> None:
    found = rules(0)
    rule = next(p for p in found.probe_rules if p.fill)
    assert Ways.of(found).found(rule)[0].hashes == (1, 2)
    for hashes, listed in product([(), (1,), (1, 2), (1, 2, 3)], (True, False)):
        kept = KeptValues(AttrRef(S, "a"), "bigint", hashes, listed)
        stores = tuple(replace(s, kept=kept) if s.kept else s for s in found.stores)
        changed = replace(found, stores=stores)
        if not listed and set(hashes) <= {1, 2}:
            check_kept(changed)
        else:
            with pytest.raises(RulesetError, match=re.escape(f"edge {rule.out}: ")):
                check_kept(changed)


def test_tuples_that_are_not_told_apart_may_look_for_anything() -> None:
    found = rules(0)
    with pytest.raises(RulesetError, match="does not keep"):
        check_kept(replace(found, substreams=()))


def test_an_attribute_that_the_store_is_not_probed_by_says_nothing() -> None:
    other = Substreams(R, "v", "bigint", ((1,),))
    (store,) = (s for s in rules(0, functions=(other,)).stores if len(s.members) > 1)
    assert store.kept is None
    kind = Substreams(R, "a", "string", ((1,),))
    (store,) = (s for s in rules(0, functions=(kind,)).stores if len(s.members) > 1)
    assert store.kept is None
