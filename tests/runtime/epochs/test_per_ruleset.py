"""Tests of values that are derived from a ruleset once."""

from __future__ import annotations

from dataclasses import replace

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.rows import read_ruleset, renumbered
from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_runtime.epochs.lookups import without_lookups
from anabranch_runtime.epochs.ownership import ownership, without
from anabranch_runtime.epochs.per_ruleset import alike, per_number, per_ruleset
from tests.support.cases.states import RS, ST, rules


def numbered() -> tuple[Ruleset, Ruleset, Ruleset]:
    """Return a ruleset, the same for the next epoch, and another, as a process reads them."""
    text = rulesets.dumps(rules(3, {"rs": RS, "st": ST}))
    other = rulesets.dumps(rules(5, {"rs": RS}))
    return (
        read_ruleset(text, RulesetId(3)),
        read_ruleset(renumbered(text, 4), RulesetId(4)),
        read_ruleset(other, RulesetId(5)),
    )


def test_values_of_an_epoch_with_the_same_rules_are_not_derived_again() -> None:
    one, two, other = numbered()
    assert (one.epoch, two.epoch) == (3, 4)
    assert alike(one, two)
    assert not alike(two, other)
    assert not alike(one, replace(one, queries=one.queries[:1]))
    assert ownership(one) is ownership(two)
    assert ownership(two) is not ownership(other)
    seen = list[int]()
    by_rules = per_ruleset(lambda given: seen.append(given.epoch))
    by_number = per_number(lambda given: seen.append(given.epoch))
    for work in (by_rules, by_number):
        for given in (one, two, other, one, two, other):
            work(given)
    assert seen == [3, 5, 3, 4, 5]


def test_a_ruleset_without_failed_queries_keeps_its_number() -> None:
    one, two, _ = numbered()
    for given in (one, two, one):
        assert without_lookups(given).epoch == given.epoch
        rest = without(given, frozenset({"st"}))
        assert (rest.epoch, [q.id for q in rest.queries]) == (given.epoch, ["rs"])
