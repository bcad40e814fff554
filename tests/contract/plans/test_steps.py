"""The steps of a ruleset, and which of them all of a start's tuples take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.ahead import askable
from anabranch_contract.plans.ruleset import Edge, Substreams
from anabranch_contract.plans.steps import steps_of, steps_of_all
from anabranch_contract.queries.joins import Label
from tests.support.cases.states import RS, ST, rules

R = Substreams(Label("R"), "a", "bigint", ((1, 2),))
RULES = rules(0, {"rs": RS, "st": ST})
(PROBE,) = (rule for rule in RULES.probe_rules if rule.start == "R")
BOTH = rules(0, {"rst": "SELECT R.a FROM R, S, T WHERE R.a = S.a AND S.b = T.b"})
OTHERS = tuple(rule for rule in RULES.probe_rules if rule != PROBE)


def test_without_substreams_all_tuples_take_all_steps() -> None:
    assert steps_of_all(RULES) == steps_of(RULES)


def test_a_step_that_some_substreams_take_is_left_out() -> None:
    some = replace(PROBE, substreams=(1,))
    divided = replace(RULES, substreams=(R,), probe_rules=(*OTHERS, some))
    divided.validate()
    assert steps_of_all(divided).keys() == steps_of(divided).keys() - {PROBE.out}


def test_a_step_that_substreams_take_apart_is_left_in() -> None:
    apart = (
        replace(PROBE, substreams=(1,)),
        replace(PROBE, substreams=(0,), out=Edge(f"{PROBE.out}%")),
    )
    divided = replace(RULES, substreams=(R,), probe_rules=(*OTHERS, *apart))
    divided.validate()
    assert steps_of_all(divided) == steps_of(divided)
    assert len(steps_of(divided)) == len(RULES.probe_rules) + 1


def test_steps_behind_a_question_ahead_are_left_out() -> None:
    known = askable(BOTH)
    asking = [r for r in BOTH.probe_rules if known.get(r.out)]
    assert asking
    for rule in asking:
        probes = (replace(r, ahead=known[r.out] if r is rule else ()) for r in BOTH.probe_rules)
        left = steps_of_all(replace(BOTH, probe_rules=tuple(probes)))
        behind = {r.out for r in BOTH.probe_rules if r.out.startswith(rule.out)}
        assert left.keys() == steps_of(BOTH).keys() - behind


@pytest.mark.parametrize(("functions", "number"), [((R,), 2), ((R,), -1), ((), 0), ((R, R), 0)])
def test_substreams_that_are_not_there_are_refused(
    functions: tuple[Substreams, ...], number: int
) -> None:
    some = replace(PROBE, substreams=(number,))
    with pytest.raises(RulesetError):
        replace(RULES, substreams=functions, probe_rules=(*OTHERS, some)).validate()
