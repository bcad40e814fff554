"""Tests of ``python -m benchmarks.papers jaqpot allocate``: its output and its refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.papers.jaqpot.allocate.policies import Policy
from tests.benchmarks.papers.commands import run

EXAMPLES = Path(__file__).parents[5] / "docs" / "examples" / "problems"

#: R ⋈ S has 10 * 20 * 0.1 = 20 results, S ⋈ T 20 * 40 * 0.05 = 40, all three 40, a third from each
#: start. Paths: R probes with 10 and then 10 tuples, S with 20 and 10 (by R), T with 40 and 20.
CHAIN = """
streams: {R: {rate: 10}, S: {rate: 20}, T: {rate: 40}}
queries: {q: {relations: [R, S, T], predicates: [R.a = S.a, S.b = T.b]}}
selectivity: {R.a = S.a: 0.1, S.b = T.b: 0.05}
mir: false
"""


def allocated(*arguments: str, stdin: str = "") -> dict[str, Any]:
    result = run("jaqpot", "allocate", *arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1
    document = json.loads(result.stdout)
    assert isinstance(document, dict)
    return document


def test_a_chain_by_hand() -> None:
    found = allocated("-", "--capacity", "0.4545454545", "--policy", "exact", stdin=CHAIN)
    # All of R and S, and nothing of T, whose tuples have as many results at three times the cost.
    assert found["full"] == pytest.approx(110)
    assert found["used"] == pytest.approx(50)
    assert found["rations"]["q"] == pytest.approx({"R": 1.0, "S": 1.0, "T": 0.0}, abs=1e-6)
    assert found["output"] == pytest.approx(80 / 3)
    assert found["output_full"] == pytest.approx(40)
    assert found["completeness"] == pytest.approx({"q": 2 / 3})
    alike = allocated("-", "--capacity", "0.5", "--policy", "equal", stdin=CHAIN)
    assert alike["output"] == pytest.approx(20)
    assert alike["used"] == pytest.approx(55)


@pytest.mark.parametrize("capacity", [0.2, 0.6, 1.0])
@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_example_can_be_allocated(file: Path, capacity: float) -> None:
    found = {
        policy: allocated(str(file), "--capacity", str(capacity), "--policy", policy.value)
        for policy in Policy
    }
    for policy, document in found.items():
        assert document["policy"] == policy.value
        assert document["used"] <= capacity * document["full"] * (1 + 1e-6) + 1e-9
        assert document["output"] <= found[Policy.EXACT]["output"] * (1 + 1e-6) + 1e-9
        least = min(document["completeness"].values())
        assert least <= min(found[Policy.FAIR]["completeness"].values()) + 1e-4
    if capacity == 1.0:
        assert found[Policy.EXACT]["output"] == found[Policy.EXACT]["output_full"]


@pytest.mark.parametrize("capacity", ["0", "-0.5", "1.01", "nan"])
def test_a_capacity_is_a_share(capacity: str) -> None:
    result = run("jaqpot", "allocate", "-", "--capacity", capacity, stdin=CHAIN)
    assert result.exit_code == 2
    assert "--capacity" in result.stderr
    assert "at most 1" in result.stderr


def test_an_unknown_policy_is_refused() -> None:
    result = run("jaqpot", "allocate", "-", "--capacity", "0.5", "--policy", "best", stdin=CHAIN)
    assert result.exit_code == 2
    assert "--policy" in result.stderr
    assert "fair" in result.stderr


def test_people_read_a_block_per_query() -> None:
    result = run("jaqpot", "allocate", "-", "--capacity", "0.4545454545", stdin=CHAIN)
    assert result.exit_code == 0, result.stderr
    assert "66.7%" in result.stdout
    assert "query q" in result.stdout
    assert "R 100.0%, S 100.0%, T 0.0%" in result.stdout
