"""Tests of ``python -m benchmarks.papers pmjoin place``: its output and its refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.papers.commands import answer, run

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples" / "problems"
PROBLEMS = Path(__file__).parents[4] / "benchmarks" / "papers" / "pmjoin" / "problems"
EXAMPLE_1 = PROBLEMS / "pmjoin-example-1.yaml"
THREE_HOSTS = (EXAMPLE_1, PROBLEMS / "pmjoin-two-keys.yaml")
LONG = "a_relation_with_a_name_that_is_longer_than_most"

#: One key of 20 values: uniform at first, then with one that is frequent in R only.
STAR = """
streams: {R: {rate: 100, distinct: 20}, S: {rate: 60, distinct: 20}, T: {rate: 40, distinct: 20}}
queries: {q: {relations: [R, S, T], predicates: [R.k = S.k, S.k = T.k], window: WINDOW}}
span: 10m
"""
CHAIN = """
streams: {R: {rate: 10}, S: {rate: 20}, T: {rate: 40}}
queries: {q: {relations: [R, S, T], predicates: [R.a = S.a, S.b = T.b]}}
selectivity: {R.a = S.a: 0.01, S.b = T.b: 0.005}
"""
#: A value of `a` is frequent in R only; T and U are on the host where the results are joined by
#: `b`.
TWO_KEYS = """
streams:
  R: {rate: 100, distinct: {a: 50}, host: r, values: {a: {hot: 80}}}
  S: {rate: 60, distinct: {a: 50, b: 20}, host: s, values: {a: {hot: 1}}}
  T: {rate: 4000, distinct: {b: 20}, host: t}
  U: {rate: 50, distinct: {b: 20}, host: t}
queries: {q: {relations: [R, S, T, U], predicates: [R.a = S.a, S.b = T.b, T.b = U.b], window: 1s}}
span: 10s
"""


def placed(*arguments: str, stdin: str = "") -> dict[str, Any]:
    return answer("pmjoin", "place", *arguments, stdin=stdin)


def test_the_papers_example() -> None:
    costs = {
        (algorithm, partitions): placed(
            str(EXAMPLE_1), "--hosts", "3", "--algorithm", algorithm, "--partitions", partitions
        )["cost"]
        for algorithm in ("simple", "streamjoinopt", "exact")
        for partitions in ("1", "3")
    }
    # In tuples: a result over two streams is one. The paper counts it as two bytes.
    assert costs["simple", "1"] == pytest.approx(100.1)
    for algorithm in ("streamjoinopt", "exact"):
        assert costs[algorithm, "1"] == pytest.approx(50.03 + 2.0008)
        assert costs[algorithm, "3"] == pytest.approx(0.033 + 0.011 + 0.0208)


def test_groups_name_their_values() -> None:
    found = placed(str(EXAMPLE_1), "--hosts", "3", "--partitions", "2")
    groups = found["queries"]["routers"]["groups"]
    assert sorted(value for group in groups for value in group["named"]) == ["a", "b", "c"]
    assert [group["values"] for group in groups] == [len(group["named"]) for group in groups]
    assert found["queries"]["routers"]["sites"] == {"s1": "n1", "s2": "n2", "s3": "n3"}
    text = run("pmjoin", "place", str(EXAMPLE_1), "--hosts", "3", "--partitions", "2").stdout
    assert "partitions  2 by plan" in text
    assert f"cost        {found['cost']:.10g} tuples between hosts" in text


@pytest.mark.parametrize("window", ["null", "1m", "{R: 30s, S: 2m, T: 1m}"])
def test_uniform_values_are_as_the_cost_model_has_them(window: str) -> None:
    problem = STAR.replace("WINDOW", window)
    whole = placed("-", "--hosts", "3", stdin=problem)["cost"]
    hashed = placed(
        "-", "--hosts", "3", "--partitions", "4", "--partitioner", "hash", stdin=problem
    )
    assert hashed["cost"] == pytest.approx(whole)
    assert sum(g["values"] for g in hashed["queries"]["q"]["groups"]) == 20
    # All values have the same plan.
    chosen = placed("-", "--hosts", "3", "--partitions", "4", stdin=problem)
    assert len(chosen["queries"]["q"]["groups"]) == 1


@pytest.mark.parametrize("partitioner", ["plan", "hash", "range", "rate"])
def test_what_is_frequent_at_one_stream_only_is_placed_by_itself(partitioner: str) -> None:
    problem = STAR.replace("WINDOW", "1m").replace(
        "R: {rate: 100,", "R: {rate: 100, values: {k: {hot: 90}},"
    )
    whole = placed("-", "--hosts", "3", stdin=problem)["cost"]
    arguments = ("--hosts", "3", "--partitions", "8", "--partitioner", partitioner)
    found = placed("-", *arguments, stdin=problem)
    assert found["cost"] <= whole * (1 + 1e-9)
    chosen = placed("-", *arguments[:4], stdin=problem)["cost"]
    assert chosen <= found["cost"] * (1 + 1e-9)


@pytest.mark.parametrize("partitioner", ["plan", "hash", "range", "rate"])
def test_of_several_keys_those_joins_are_partitioned_that_are_by_one(partitioner: str) -> None:
    whole = placed("-", "--hosts", "3", stdin=TWO_KEYS)
    assert whole["queries"]["q"]["partitioned"] == []
    assert whole["queries"]["q"]["groups"][0]["plan"] == "((S ⋈ R)@r ⋈ T ⋈ U)@t"
    arguments = ("--hosts", "3", "--partitions", "4", "--partitioner", partitioner)
    found = placed("-", *arguments, stdin=TWO_KEYS)
    assert found["cost"] <= whole["cost"]
    if partitioner != "plan":
        return
    query = found["queries"]["q"]
    assert query["groups"] == [
        {"values": 0, "named": [], "plan": "((S ⋈ R)@* ⋈ T ⋈ U)@t", "cost": query["cost"]}
    ]
    (join,) = query["partitioned"]
    assert (join["inputs"], join["by"]) == (["S", "R"], ["R.a", "S.a"])
    assert [(g["plan"], g["values"], g["named"]) for g in join["groups"]] == [
        ("(S ⋈ R)@r", 1, ["hot"]),
        ("(R ⋈ S)@s", 49, []),
    ]
    # S's hot value to R's host, R's other 20 to S's, and the results to the host of T and U.
    assert [group["cost"] for group in join["groups"]] == pytest.approx([1, 20])
    brought = whole["cost"] - 60
    assert query["cost"] == pytest.approx(21 + brought)
    text = run("pmjoin", "place", "-", *arguments, stdin=TWO_KEYS).stdout
    assert "  partitioned by R.a = S.a\n    (S ⋈ R)@r  cost 1  1 values (hot)\n" in text


def test_every_algorithm_partitions_what_it_places() -> None:
    costs = {}
    for algorithm in ("exact", "streamjoinopt"):
        arguments = ("--hosts", "3", "--algorithm", algorithm)
        costs[algorithm] = [
            placed("-", *arguments, "--partitions", partitions, stdin=TWO_KEYS)["cost"]
            for partitions in ("1", "4")
        ]
    assert costs["exact"][1] < costs["exact"][0] <= costs["streamjoinopt"][0]


def test_what_is_left_beside_named_values_is_not_lost_where_no_number_is_known() -> None:
    """If the number of values is unknown, one further value stands for all unnamed ones."""
    problem = """
streams: {R: {rate: 10, values: {a: {v: 4}}}, S: {rate: 20, values: {a: {v: 20}}}}
queries: {q: {relations: [R, S], predicates: [R.a = S.a]}}
"""
    found = placed(
        "-", "--hosts", "2", "--partitions", "2", "--partitioner", "range", stdin=problem
    )
    groups = found["queries"]["q"]["groups"]
    assert sum(group["values"] for group in groups) == 2
    assert found["cost"] == pytest.approx(4)


def test_streams_without_a_host_are_dealt_in_order() -> None:
    problem = CHAIN.replace("T: {rate: 40}", "T: {rate: 40, host: far}")
    found = placed("-", "--hosts", "3", stdin=problem)
    assert found["hosts"] == ["far", "n0", "n1"]
    assert found["queries"]["q"]["sites"] == {"R": "far", "S": "n0", "T": "far"}
    one = placed("-", "--hosts", "1", stdin=CHAIN)
    assert (one["cost"], one["queries"]["q"]["groups"][0]["plan"]) == (0.0, "(R ⋈ S ⋈ T)@n0")


@pytest.mark.parametrize(
    "path", [*sorted(EXAMPLES.glob("*.yaml")), *THREE_HOSTS], ids=lambda p: p.stem
)
def test_any_file_that_can_be_planned_can_be_placed(path: Path) -> None:
    hosts = "3" if path in THREE_HOSTS else "2"
    costs = [
        placed(str(path), "--hosts", hosts, "--algorithm", name)["cost"]
        for name in ("exact", "streamjoinopt", "simple")
    ]
    assert costs[0] <= min(costs) * (1 + 1e-9)


def test_text_breaks_no_name() -> None:
    text = run("pmjoin", "place", "-", "--hosts", "2", stdin=CHAIN.replace("R", LONG)).stdout
    assert LONG in text


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (("--hosts", "0"), CHAIN, "hosts: 0 hosts are none (use 1 or more)"),
        (("--hosts", "4"), CHAIN, "hosts: of 4 hosts 1 would have no stream (use 3 or fewer)"),
        (("--hosts", "2", "--partitions", "0"), CHAIN, "partitions: 0 partitions are none"),
        (
            ("--hosts", "2", "--partitions", "2", "--algorithm", "simple"),
            CHAIN,
            "queries.q: no key joins all of R, S, T, and each join of the plan (S ⋈ R ⋈ T)@n0 is by"
            " several keys, or is what other inputs are sent to: none can be partitioned",
        ),
        (
            ("--hosts", "2", "--partitions", "2"),
            CHAIN.replace("T: {rate: 40}", "T: {rate: 40, distinct: 20000}"),
            "queries.q: its key has 20000 values, and 10000 are the limit",
        ),
        (
            ("--hosts", "2", "--partitions", "2"),
            STAR.replace("WINDOW", "1m").replace("distinct: 20", "distinct: 20000"),
            "queries.q: its key has 20000 values, and 10000 are the limit",
        ),
        (
            ("--hosts", "1"),
            CHAIN.replace("{rate: 10}", "{rate: 10, host: a}").replace(
                "{rate: 20}", "{rate: 20, host: b}"
            ),
            "hosts: 1 hosts are fewer than the 2 that streams name (use 2 or more)",
        ),
        (("--hosts", "1"), CHAIN.replace("rate: 10", "rate: 10, host: [a]"), "streams.R.host: "),
        (
            ("--hosts", "1"),
            CHAIN.replace("rate: 10", "rate: 10, values: {x: {a: 1}}"),
            "streams.R.values.x: the stream has no column 'x'",
        ),
        (
            ("--hosts", "1"),
            CHAIN.replace("rate: 10", "rate: 10, values: {a: {v: 11}}"),
            "streams.R.values.a: values of 11 tuples are more than the stream's 10",
        ),
        (
            ("--hosts", "1"),
            CHAIN.replace("rate: 10", "rate: 10, values: {a: {v: -1}}"),
            "streams.R.values.a.v: ",
        ),
    ],
)
def test_bad_input(arguments: tuple[str, ...], stdin: str, said: str) -> None:
    result = run("pmjoin", "place", "-", *arguments, stdin=stdin)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
