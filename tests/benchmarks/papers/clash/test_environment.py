"""Tests that random environments of the CLASH paper have the promised properties."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations
from math import comb

import pytest

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.mirs import is_connected, sub_join
from anabranch_planner.cost.model import CostModel
from benchmarks.papers.clash.environment import natural_problem, tree_problem, write_yaml
from benchmarks.planner.random_queries import natural, tree


def connected(sets: list[set[str]], chosen: tuple[int, ...]) -> bool:
    reached, rest = {chosen[0]}, set(chosen[1:])
    while True:
        more = {i for i in rest if any(sets[i] & sets[j] for j in reached)}
        if not more:
            return not rest
        reached |= more
        rest -= more


@pytest.mark.parametrize("seed", range(5))
def test_natural_joins_are_on_all_common_attributes(seed: int) -> None:
    problem = natural_problem(seed, relations=12, count=30, size=4, attributes=8)
    assert {len(c) for c in problem.columns.values()} == {3}
    queries, _ = natural(seed, relations=12, count=30, size=4, attributes=8)
    assert len({q.labels for q in queries}) == len(queries) == 30
    assert [q.id for q in queries][:2] == ["q0000", "q0001"]
    for query in queries:
        assert len(set(query.labels)) == 4
        assert is_connected(query, frozenset(query.labels))
        having = {
            attribute: sorted(x for x in query.labels if attribute in problem.columns[x])
            for attribute in {a for x in query.labels for a in problem.columns[x]}
        }
        shared = {a: labels for a, labels in having.items() if len(labels) > 1}
        classes = {c.members[0].attribute: c for c in query.classes}
        assert {a: [str(m.label) for m in c.members] for a, c in classes.items()} == shared
        assert all(m.attribute == a for a, c in classes.items() for m in c.members)


def test_a_join_of_two_has_selectivity_one_in_a_hundred_however_many_attributes() -> None:
    queries, statistics = natural(3, relations=10, count=40, size=2, attributes=5)
    model = CostModel(statistics)
    assert {len(q.classes) for q in queries} == {1, 2, 3}
    assert {model.cardinality(sub_join(q, frozenset(q.labels))) for q in queries} == {100.0}
    assert model.assumed == ()


@pytest.mark.parametrize("seed", range(10))
def test_all_queries_that_exist_are_found_if_more_are_asked_for(seed: int) -> None:
    problem = natural_problem(seed, relations=7, count=60, size=3)
    sets = [set(c) for c in problem.columns.values()]
    exist = sum(connected(sets, chosen) for chosen in combinations(range(7), 3))
    assert len(problem.queries) == problem.exist == exist < 60
    assert problem.shortfall == f"only {exist} distinct queries exist, 60 were asked for"
    assert f"# {problem.shortfall}\n" in write_yaml(problem)
    fewer = natural_problem(seed, relations=7, count=exist, size=3)
    assert (len(fewer.queries), fewer.shortfall) == (exist, "")


def test_no_query_where_no_relations_can_be_joined() -> None:
    problem = natural_problem(1, relations=2, count=5, size=2, attributes=1000)
    assert (problem.queries, problem.exist) == ((), 0)
    assert natural(1, relations=2, count=5, size=2, attributes=1000)[0] == ()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_trees_are_all_of_cayleys(size: int) -> None:
    problem = tree_problem(2, relations=5, count=10_000, size=size)
    assert len(problem.queries) == comb(5, size) * size ** (size - 2)
    assert len({q.predicates for q in problem.queries}) == len(problem.queries)
    joins: dict[tuple[str, ...], set[object]] = {}
    for query in problem.queries:
        assert len(query.predicates) == size - 1
        for predicate in query.predicates:
            pair = (predicate.left.label, predicate.right.label)
            joins.setdefault(pair, set()).add(predicate)
    assert {len(found) for found in joins.values()} == {1}


def test_trees_over_relations() -> None:
    queries, statistics = tree(4, relations=6, count=20, size=4, attributes=2)
    model = CostModel(statistics)
    for query in queries:
        assert is_connected(query, frozenset(query.labels))
        assert {m.attribute for c in query.classes for m in c.members} <= {"a0", "a1"}
        assert model.cardinality(sub_join(query, frozenset(query.labels))) == pytest.approx(100)


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("relations", {"relations": 2, "count": 1, "size": 3}),
        ("size", {"relations": 2, "count": 1, "size": 1}),
        ("queries", {"relations": 2, "count": -1, "size": 2}),
        ("attributes", {"relations": 5, "count": 1, "size": 2, "attributes": 2}),
        ("attributes", {"relations": 5, "count": 1, "size": 2, "per_relation": 0}),
    ],
)
def test_environments_that_cannot_be(field: str, arguments: dict[str, int]) -> None:
    with pytest.raises(PlannerError) as caught:
        natural_problem(1, **arguments)
    assert caught.value.field == field
    assert caught.value.remedy


def test_equal_arguments_give_equal_bytes_in_every_process() -> None:
    script = (
        "from benchmarks.papers.clash.environment import *\n"
        "from benchmarks.planner.random_queries import natural\n"
        "for make in natural_problem, tree_problem:\n"
        "    print(write_yaml(make(5, relations=9, count=70, size=3)))\n"
        "print(natural(5, relations=9, count=70, size=3))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1
    first = write_yaml(natural_problem(5, relations=9, count=70, size=3))
    assert outputs.pop().decode().startswith(first)
    assert write_yaml(natural_problem(6, relations=9, count=70, size=3)) != first
