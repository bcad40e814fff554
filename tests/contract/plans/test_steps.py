"""Tests of the probe steps of a ruleset, and of the tuples counted at each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.ahead import askable
from anabranch_contract.plans.ruleset import Edge, KeyPart, Ruleset, Substreams
from anabranch_contract.plans.steps import (
    WHOLE,
    StepMemo,
    StepPart,
    SubJoinStep,
    counted_steps,
    function_digest,
    steps_of,
)
from anabranch_contract.queries.joins import Label
from tests.support.cases.states import RS, ST, rules

R = Substreams(Label("R"), "a", "bigint", ((1, 2),))
RULES = rules(0, {"rs": RS, "st": ST})
(PROBE,) = (rule for rule in RULES.probe_rules if rule.start == "R")
BOTH = rules(0, {"rst": "SELECT R.a FROM R, S, T WHERE R.a = S.a AND S.b = T.b"})
OTHERS = tuple(rule for rule in RULES.probe_rules if rule != PROBE)


def steps(ruleset: Ruleset) -> dict[str, SubJoinStep]:
    return {edge: counted.step for edge, counted in counted_steps(ruleset).items()}


def test_without_substreams_all_tuples_take_all_steps() -> None:
    assert steps(RULES) == steps_of(RULES)


def test_a_step_that_some_substreams_take_is_counted_on_these() -> None:
    some = replace(PROBE, substreams=(1,))
    divided = replace(RULES, substreams=(R,), probe_rules=(*OTHERS, some))
    divided.validate()
    part = StepPart(Label("R"), function_digest(R), (1,))
    assert steps(divided)[PROBE.out] == steps_of(divided)[PROBE.out]._replace(part=part)
    assert str(part) == "substream 1 of R"
    assert {steps(divided)[rule.out].part for rule in OTHERS} == {WHOLE}


def test_a_step_that_substreams_take_apart_is_counted_on_all() -> None:
    apart = (
        replace(PROBE, substreams=(1,)),
        replace(PROBE, substreams=(0,), out=Edge(f"{PROBE.out}%")),
    )
    divided = replace(RULES, substreams=(R,), probe_rules=(*OTHERS, *apart))
    divided.validate()
    assert steps(divided) == steps_of(divided)
    assert len(steps_of(divided)) == len(RULES.probe_rules) + 1


def test_steps_behind_a_look_ahead_are_counted_by_themselves() -> None:
    known = askable(BOTH)
    asking = [r for r in BOTH.probe_rules if known.get(r.out)]
    assert asking
    for rule in asking:
        probes = tuple(
            replace(r, ahead=known[r.out] if r is rule else ()) for r in BOTH.probe_rules
        )
        found = counted_steps(replace(BOTH, probe_rules=probes))
        behind = {r.out for r in BOTH.probe_rules if r.out.startswith(rule.out)}
        assert {edge for edge, one in found.items() if one.step.part.sifted} == behind
        asked = {edge for edge, one in found.items() if one.asked == (rule.out, 1)}
        assert len(asked) == 1
        assert asked < behind


@pytest.mark.parametrize(("functions", "number"), [((R,), 2), ((R,), -1), ((), 0), ((R, R), 0)])
def test_substreams_that_are_not_there_are_refused(
    functions: tuple[Substreams, ...], number: int
) -> None:
    some = replace(PROBE, substreams=(number,))
    with pytest.raises(RulesetError):
        replace(RULES, substreams=functions, probe_rules=(*OTHERS, some)).validate()


def test_steps_of_a_later_ruleset_come_from_the_last_one() -> None:
    memo = StepMemo()
    first = steps_of(BOTH, memo)
    known = dict(memo.steps)
    fewer = replace(BOTH, probe_rules=tuple(r for r in BOTH.probe_rules if r.start != "R"))
    assert steps_of(fewer, memo) == steps_of(fewer)
    assert memo.steps.items() < known.items()
    assert counted_steps(BOTH, memo) == counted_steps(BOTH)
    # On the same edges, other keys reach other sub-joins: here each key is compared as text.
    other = tuple(
        replace(r, key=tuple(KeyPart(k.probe, k.build, "string") for k in r.key))
        for r in BOTH.probe_rules
    )
    assert steps_of(replace(BOTH, probe_rules=other), memo) != first
    assert memo.steps.keys().isdisjoint(known)
    mixed = replace(BOTH, probe_rules=(*other[:2], *BOTH.probe_rules[2:]))
    assert steps_of(mixed, memo) == steps_of(mixed)
