"""Tests of ``python -m benchmarks.papers dppick order``: its output and its refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch_planner.documents.yaml import load_yaml
from benchmarks.papers.clash.environment import natural_problem, tree_problem, write_yaml
from benchmarks.papers.dppick.search import Ablation, Algorithm
from tests.benchmarks.papers.commands import answer, run

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples" / "problems"
LONG = "a_relation_with_a_name_that_is_longer_than_most"


def ordered(*arguments: str, stdin: str = "") -> dict[str, Any]:
    return answer("dppick", "order", *arguments, stdin=stdin)


def clique(streams: int) -> str:
    names = [f"R{i}" for i in range(streams)]
    predicates = [f"R0.k = {name}.k" for name in names[1:]]
    return json.dumps(
        {
            "streams": {name: {"rate": 10 + i, "distinct": 5} for i, name in enumerate(names)},
            "queries": {"q": {"relations": names, "predicates": predicates}},
        }
    )


#: R ⋈ S has 10 * 20 * 0.1 = 20 results, S ⋈ T 20 * 40 * 0.05 = 40, all three 40.
CHAIN = """
streams: {R: {rate: 10}, S: {rate: 20}, T: {rate: 40}}
queries: {q: {relations: [R, S, T], predicates: [R.a = S.a, S.b = T.b]}}
selectivity: {R.a = S.a: 0.1, S.b = T.b: 0.05}
"""


def test_probes_and_matches_by_hand() -> None:
    # The starting stream's tuple arrived last in half of a pair's results and a third of the
    # triples: 10, 20, 40 / 3. R: probes 10 + 10, matches 10 + 40/3; S by R: 20 + 10, 10 + 40/3; T:
    # 40 + 20, 20 + 40/3.
    document = ordered("-", stdin=CHAIN)
    assert document["cost"] == pytest.approx((20 + 10) + (30 + 10) + (60 + 20) + 40)
    assert document["orders"] == {"q": {"R": ["S", "T"], "S": ["R", "T"], "T": ["S", "R"]}}
    # Cost of probes only: 10 + 10, 20 + 10, 40 + 20.
    queries = ordered("-", "--alpha-m", "0", stdin=CHAIN)
    assert queries["cost"] == pytest.approx(110)
    # The sorted backend adds log2 of the numbers of keys: 20 and 40, 10 and 40, 20 and 10.
    keys = ordered("-", "--alpha-m", "0", "--backend", "sorted", stdin=CHAIN)
    log10, log20, log40 = 2.302585093, 2.995732274, 3.688879454
    wanted = 10 * log20 + 10 * log40 + 20 * log10 + 10 * log40 + 40 * log20 + 20 * log10
    assert keys["cost"] == pytest.approx(wanted)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_algorithm_answers_every_example(path: Path) -> None:
    problem = load_yaml(path.read_text(encoding="utf-8"))
    costs = {}
    for algorithm in Algorithm:
        document = ordered(str(path), "--algorithm", algorithm.value)
        assert document["algorithm"] == algorithm.value
        assert document["common_cost"] == "tuple"
        assert document["queries"].keys() == document["orders"].keys() == problem["queries"].keys()
        assert sum(document["queries"].values()) == pytest.approx(document["cost"])
        for orders in document["orders"].values():
            for start, targets in orders.items():
                assert sorted([start, *targets]) == sorted(orders)
        costs[algorithm] = document["cost"]
    assert costs[Algorithm.DPPICK] == pytest.approx(costs[Algorithm.EXACT])
    assert all(costs[Algorithm.EXACT] <= cost + 1e-6 for cost in costs.values())


@pytest.mark.parametrize("environment", ["natural", "tree"])
@pytest.mark.parametrize("cost", ["tuple", "paper"])
def test_random_problems(environment: str, cost: str) -> None:
    make = {"natural": natural_problem, "tree": tree_problem}[environment]
    text = write_yaml(make(4, relations=12, count=9, size=5))
    found = {
        algorithm: ordered("-", "--algorithm", algorithm.value, "--cost", cost, stdin=text)
        for algorithm in Algorithm
    }
    exact = found[Algorithm.EXACT]
    assert len(exact["orders"]) == 9
    assert exact["common_cost"] == cost
    assert found[Algorithm.DPPICK]["cost"] == pytest.approx(exact["cost"])
    for query, least in exact["queries"].items():
        assert all(least <= other["queries"][query] * (1 + 1e-9) for other in found.values())
    for ablation in Ablation:
        ablated = ordered("-", "--ablation", ablation.value, "--cost", cost, stdin=text)
        assert ablated["ablation"] == ablation.value
        assert ablated["cost"] >= exact["cost"] * (1 - 1e-9)


def test_time_bounds_make_costs_depend_on_the_start() -> None:
    free = ordered("-", stdin=CHAIN)
    bounded = ordered("-", stdin=CHAIN + "window: 1h\nspan: 10h\n")
    assert bounded["cost"] < free["cost"]
    dppick = ordered("-", "--algorithm", "dppick", stdin=CHAIN + "window: 1h\nspan: 10h\n")
    assert dppick["cost"] == pytest.approx(bounded["cost"])


def test_text_has_the_same_and_breaks_no_name() -> None:
    problem = CHAIN.replace("R", LONG)
    document = ordered("-", stdin=problem)
    result = run("dppick", "order", "-", stdin=problem)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "algorithm  exact"
    assert f"query q  cost {document['cost']:.10g}" in lines
    assert f"  {'T':<{len(LONG)}}  S → {LONG}" in lines
    for line in document["assumed"]:
        assert f"  {line}" in lines


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (("-", "--alpha-q", "-1"), CHAIN, "alpha_q: -1.0 is not a price (0 or more, finite)"),
        (("-", "--alpha-m", "nan"), CHAIN, "alpha_m: nan is not a price"),
        (("none.yaml",), "", "none.yaml: no such file or directory (check the path)"),
        (("-",), "streams: [", "error: "),
        (("-",), "streams: {R: {rate: 1}}", "queries: the field queries is missing"),
        (("-", "--algorithm", "dppick"), clique(9), "queries.q: these 9 streams have more than"),
        (("-",), clique(17), "queries.q: its 17 relations have more than"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], stdin: str, said: str) -> None:
    result = run("dppick", "order", *arguments, stdin=stdin)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr


def test_unknown_algorithms_are_refused() -> None:
    result = run("dppick", "order", "-", "--algorithm", "quick", stdin=CHAIN)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "quick" in result.stderr
