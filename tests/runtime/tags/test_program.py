"""Tests of the tags of rulesets compiled by the planner."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch_contract.plans.plan import Optimizer
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_runtime.probe.program import program as probe_program
from anabranch_runtime.tags import program
from anabranch_runtime.tags.predicates import PredicateIndex
from anabranch_runtime.tags.program import tag_program

pytestmark = pytest.mark.fast

COLUMNS = {"k": "bigint", "v": "int", "text": "string"}
STREAMS: dict[str, Stream] = {
    name: Stream(StreamName(name), tuple((c, parse_type(t)) for c, t in COLUMNS.items()))
    for name in ("a", "b")
}
JOIN = "SELECT a.v FROM a JOIN b ON a.k = b.k"


def _query(name: str, condition: str = "") -> JoinQuery:
    where = f" WHERE {condition}" if condition else ""
    whole: dict[str, tuple[Expr, ...]] = {"a": (), "b": ()}
    return parse_sql(name, JOIN + where, STREAMS, relaxed=whole)


def _ruleset(*queries: JoinQuery) -> Ruleset:
    options = Options(optimizer=Optimizer.SHARED, mir=False)
    plan = optimise(queries, Statistics(), options)
    given = list(STREAMS.values())
    return compile_ruleset(plan, queries, given, epoch=0, parallelism=1, sinks={})


def test_queries_that_differ_in_a_filter_are_choices_of_one_step() -> None:
    rules = _ruleset(*(_query(f"q{n}", f"a.v > {n}") for n in range(3)))
    assert len(rules.probe_rules) == 2
    found = tag_program(rules)
    from_a = next(rule for rule in rules.probe_rules if rule.start == "a")
    from_b = next(rule for rule in rules.probe_rules if rule.start == "b")
    # All rows of b probe: the filters are on the rows of a that they find.
    assert found.inputs[from_a.out].predicates.shape == (3, 1)
    assert from_b.out not in found.inputs
    for rule in rules.probe_rules:
        outputs = found.outputs[rule.out]
        assert not outputs.untagged
        assert outputs.choices.labels == ("a",)
        assert [len(some) for some in outputs.rules] == [1, 1, 1]
        for (one,) in outputs.rules:
            assert not one.tested.residuals
            assert one.whole.residuals
    assert len(found.indexes["a"]) >= 3


def test_a_query_without_a_filter_wants_every_tuple() -> None:
    rules = _ruleset(_query("all"), _query("some", "a.v > 5"))
    found = tag_program(rules)
    assert not found.inputs
    for outputs in found.outputs.values():
        assert [rule.query for rule in outputs.untagged] == ["all"]


def test_a_residual_that_tags_test_is_not_checked_after_its_probe() -> None:
    rules = _ruleset(_query("q", "a.v > 5 AND b.v < 3"))
    found = tag_program(rules)
    assert any(rule.residuals for rule in rules.probe_rules)
    for rule in rules.probe_rules:
        assert found.residuals[rule.out] == ()
        # The output still has all conditions for tuples whose tags are unknown.
        ((one,),) = found.outputs[rule.out].rules
        assert {str(e) for e in one.whole.residuals} == {"(a.v > 5)", "(b.v < 3)"}


def test_conditions_over_two_streams_or_that_may_fail_are_no_tags() -> None:
    rules = _ruleset(_query("q", "a.v > b.v"), _query("r", "CAST(a.text AS INT) > 3"))
    found = tag_program(rules)
    assert not found.inputs
    assert not found.outputs
    assert not found.indexes


def test_equal_filters_are_one_choice() -> None:
    rules = _ruleset(_query("q", "a.v > 5"), _query("r", "a.v > 5"))
    outputs = tag_program(rules).outputs
    assert outputs
    for one in outputs.values():
        assert [len(some) for some in one.rules] == [2]


def test_indexes_with_many_sets_are_replaced_before_rows_have_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Indexes that are full again soon may have more sets: so many are of stored rows."""
    monkeypatch.setattr(program, "SOON", 2)
    monkeypatch.setattr(program, "LASTING", 5)
    monkeypatch.setattr(program, "MANY_BYTES", 24 * 40)
    monkeypatch.setattr(program, "_NEWEST", [program._Generation(1_000, 24 * 10)])
    rules = _ruleset(*(_query(f"q{n}", f"a.v > {n}") for n in range(200)))
    used = tag_program(rules)
    for enough, batches in ((10, 3), (20, 3), (40, 6), (40, 6)):
        assert program._NEWEST[-1].enough == 24 * enough
        (index,) = used.indexes.values()
        _add_sets(index, enough)
        for _ in range(batches - 2):
            assert tag_program(rules) is used
        assert not index.overflowed
        former, used = used, tag_program(rules)
        assert former.name != used.name


def test_large_indexes_with_many_new_predicates_are_replaced_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Most of their sets are former sets of rows."""
    monkeypatch.setattr(program, "MANY_BYTES", 24 * 30)
    monkeypatch.setattr(program, "_NEWEST", [program._Generation(1_000)])
    queries = [_query(f"q{n}", f"a.v > {n}") for n in range(50)]
    first = tag_program(_ruleset(*queries[:20]))
    (index,) = first.indexes.values()
    _add_sets(index, 20)
    assert tag_program(_ruleset(*queries[:30])).name == first.name
    _add_sets(index, 30)
    second = tag_program(_ruleset(*queries[:31]))
    assert second.name != first.name
    (index,) = second.indexes.values()
    _add_sets(index, 31)
    assert tag_program(_ruleset(*queries[:34])).name == second.name
    assert tag_program(_ruleset(*queries[:35])).name == second.name
    assert tag_program(_ruleset(*queries[:36])).name != second.name


def _add_sets(index: PredicateIndex, count: int) -> None:
    """Add the predicate sets of rows with ``count`` different values."""
    values = pa.array(range(1, count + 1), pa.int32())
    sets = index.sets(lambda _: values, count)
    assert len(set(sets.tolist())) == count


def test_full_indexes_are_replaced_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "SOON", 3)
    rules = _ruleset(_query("q", "a.v > 5"), _query("r", "a.v > 6"))
    monkeypatch.setattr(program, "_NEWEST", [program._Generation(1_000)])
    first = tag_program(rules)
    assert tag_program(rules) is first
    for index in first.indexes.values():
        index.overflowed = True
    assert tag_program(rules) is first
    other = tag_program(rules)
    assert other.name != first.name
    assert not any(index.overflowed for index in other.indexes.values())
    assert tag_program(rules) is other
    assert probe_program(rules, other) is probe_program(rules, other)
    assert probe_program(rules, other) is not probe_program(rules, first)
