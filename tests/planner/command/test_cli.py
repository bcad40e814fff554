"""Tests of ``python -m anabranch_planner``: output, errors, and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from anabranch_planner.command.cli import app
from benchmarks.papers.clash.environment import natural_problem, write_yaml

if TYPE_CHECKING:
    from typer.testing import Result

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "problems"
GOLDEN = Path(__file__).parents[1] / "golden" / "problems"
TIMES = ("build_ms", "solve_ms", "total_ms")
#: Sizes of the optimisation problem, which tests do not compare.
SIZES = ("candidates", "variables", "constraints", "method", "individual_method", "shared_method")
SMALL = write_yaml(natural_problem(3, relations=8, count=12, size=3))


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"}, input=stdin)


def planned(*arguments: str, stdin: str | None = None) -> dict[str, Any]:
    result = run("plan", *arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    document = json.loads(result.stdout)
    assert isinstance(document, dict)
    return document


def python(*arguments: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


# --- the worked examples -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["clash-example-1", "clash-example-1-mir"])
@pytest.mark.parametrize("formulation", ["tight", "paper"])
def test_worked_examples(name: str, formulation: str) -> None:
    document = planned(str(EXAMPLES / f"{name}.yaml"), "--formulation", formulation)
    for part in (*TIMES, *SIZES):
        document.pop(part)
    golden = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert document == {
        key: pytest.approx(value) if isinstance(value, float) else value
        for key, value in golden.items()
    }


def test_the_example_of_figure_3() -> None:
    document = planned(str(EXAMPLES / "clash-figure-3.yaml"))
    assert (document["cost"], document["gap"]) == (pytest.approx(1200), 0)
    assert document["queries"]["q1"]["R"] == ["S⋈T[b]"]
    assert [m["store"] for m in document["mirs"]] == ["S⋈T"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_example_is_planned_for_people_and_machines(path: Path) -> None:
    document = planned(str(path))
    assert document["bound"] <= document["cost"] <= document["shared_cost"] + 1e-6
    assert document["shared_cost"] <= document["individual_cost"] + 1e-6
    result = run("plan", str(path))
    assert result.exit_code == 0, result.output
    assert f"{document['cost']:.10g}" in result.stdout
    assert "stores\n" in result.stdout
    for query, orders in document["queries"].items():
        assert f"query {query}\n" in result.stdout
        assert len(orders) > 1
    for line in document["assumed"]:
        assert line in result.stdout


def test_the_page_shows_the_output() -> None:
    """Each block of output in docs/planner.md must be in the output, in parts between "..."."""
    page = (EXAMPLES.parents[1] / "planner.md").read_text(encoding="utf-8")
    found = re.findall(r"^```\n\$ python -m anabranch_planner (.*)\n((?s:.*?))^```", page, re.M)
    assert found
    for command, shown in found:
        words = [word.replace("docs/examples/problems", str(EXAMPLES)) for word in command.split()]
        output = run(*words).stdout
        for part in shown.split("...\n"):
            assert part in output


def test_only_commands_are_offered() -> None:
    listed = run("--help").stdout.partition("Commands")[2]
    assert re.findall(r"^│ (\S+)", listed, re.M) == ["plan"]


def test_flags_win_over_the_file() -> None:
    example = str(EXAMPLES / "clash-example-1.yaml")
    assert planned(example)["objective"] == "paper"
    charged = planned(example, "--objective", "tuples")
    # A copy of each of the four streams receives 100 tuples.
    assert (charged["objective"], charged["cost"]) == ("tuples", pytest.approx(1200))


def test_optimizers() -> None:
    found = {
        name: planned("-", "--optimizer", name, stdin=SMALL)
        for name in ("clash", "shared", "individual", "dppick")
    }
    costs = {name: document["cost"] for name, document in found.items()}
    for document in found.values():
        assert document["individual_cost"] == pytest.approx(costs["individual"])
        assert document["shared_cost"] == pytest.approx(costs["shared"])
    assert costs["clash"] <= costs["shared"] + 1e-6 <= costs["individual"] + 1e-6
    assert costs["individual"] <= costs["dppick"] + 1e-6
    owners = {copy["owner"] for copy in found["individual"]["copies"]}
    assert owners == set(found["individual"]["queries"])


def test_aliases_of_one_stream_are_told_apart() -> None:
    problem = """
    streams: {R: {rate: 10}}
    queries: {q: {relations: [R as x, R as y, R as z], predicates: [x.a = y.a, y.b = z.b]}}
    partitioning: false
    """
    document = planned("-", stdin=problem)
    assert set(document["queries"]["q"]) == {"x", "y", "z"}
    assert document["queries"]["q"]["x"] == ["R", "R"]
    assert "distinct R(a) = its cardinality" in document["assumed"]


# --- trouble -----------------------------------------------------------------------------------


def test_values_with_substreams_are_reported() -> None:
    name = str(EXAMPLES / "skewed-keys.yaml")
    whole = json.loads(run("plan", name, "--json").stdout)
    divided = json.loads(run("plan", name, "--substreams", "4", "--json").stdout)
    assert (whole["substreams"], divided["cost"] < 0.85 * whole["cost"]) == ([], True)
    found = {one["start"]: one for one in divided["substreams"]}
    assert found["orders"]["values"] == ["ink"]
    assert found["orders"]["orders"] == {"complaints": ["visits", "refunds"]}
    assert divided["queries"]["complaints"]["orders"] == ["refunds", "visits"]
    assert "orders by item (2 substreams)" in run("plan", name, "--substreams", "4").stdout
    for refused in ("0", "17", "many"):
        assert run("plan", name, "--substreams", refused).exit_code == 2


def test_look_ahead_filters_are_reported() -> None:
    name = str(EXAMPLES / "rare-partners.yaml")
    assert json.loads(run("plan", name, "--json").stdout)["ahead"] == []
    (one,) = json.loads(run("plan", name, "--look-ahead", "--json").stdout)["ahead"]
    assert (one["edge"], one["asks"]) == ("clicks>customers", "campaigns")
    assert (one["key"], one["share"]) == (["clicks.campaign"], pytest.approx(0.1))
    assert one["saved_seconds"] > one["price_seconds"] > 0
    text = "campaigns by clicks.campaign before clicks>customers (10% pass)"
    assert text in run("plan", name, "--look-ahead").stdout


def test_a_deadline_of_nothing_still_gives_a_plan() -> None:
    document = planned("-", "--deadline", "0", stdin=SMALL)
    proven = planned("-", stdin=SMALL)
    assert document["bound"] <= proven["cost"] + 1e-6
    assert proven["cost"] <= document["cost"] + 1e-6
    assert 0 <= document["gap"] <= 1
    assert document["gap"] > 0 or document["cost"] == pytest.approx(proven["cost"])
    assert document["method"]
    assert all(len(orders) == 3 for orders in document["queries"].values())


def test_a_clique_of_twelve_is_planned_and_says_how() -> None:
    names = [f"r{i}" for i in range(12)]
    problem = {
        "streams": {name: {"rate": 100} for name in names},
        "queries": {
            "big": {
                "relations": names,
                "predicates": [f"{a}.{a}{b} = {b}.{a}{b}" for a, b in combinations(names, 2)],
            }
        },
    }
    document = planned("-", "--deadline", "2", stdin=json.dumps(problem))
    assert all(sum(s.count("⋈") + 1 for s in o) == 11 for o in document["queries"]["big"].values())
    assert document["gap"] == 0 or document["method"] != "highs"


#: Two copies of S are worth their inserts; each tuple is 100 bytes wide.
SHARED_STORE = """
streams: {R: {rate: 50}, S: {rate: 100, width: 50}, T: {rate: 800}}
queries:
  q1: {relations: [R, S], predicates: [R.a = S.a]}
  q2: {relations: [S, T], predicates: [S.b = T.b]}
parallelism: 4
"""


SELECTIVE = """
streams: {R: {rate: 100}, S: {rate: 100}, T: {rate: 100}, U: {rate: 100}, V: {rate: 100}}
queries:
  q1: {relations: [R, S, T], predicates: [R.a = S.a, S.b = T.b]}
  q2: {relations: [T, U, V], predicates: [T.c = U.c, U.d = V.d]}
selectivity: {R.a = S.a: 0.002, S.b = T.b: 0.05, T.c = U.c: 0.05, U.d = V.d: 0.002}
"""


def test_intermediate_results_are_limited_by_the_file_and_by_a_flag() -> None:
    free, never = planned("-", stdin=SELECTIVE), planned("-", stdin=f"{SELECTIVE}mir: false\n")
    assert free["cost"] < never["cost"]
    for flags, limits in (
        (["--intermediate-results", "0"], ""),
        ([], "limits: {intermediate_results: 0}\n"),
        (["--intermediate-results", "0"], "limits: {intermediate_results: 2}\n"),
    ):
        assert planned("-", *flags, stdin=SELECTIVE + limits)["cost"] == never["cost"]
    one = planned("-", "--intermediate-results", "1", stdin=SELECTIVE)
    assert free["cost"] < one["cost"] < never["cost"]


def test_limits_of_the_file_and_of_flags() -> None:
    free = planned("-", stdin=SHARED_STORE)
    assert [c["store"].partition("[")[0] for c in free["copies"]].count("S") == 2
    one = planned("-", stdin=f"{SHARED_STORE}limits: {{copies: 1}}\n")
    assert len({c["store"].partition("[")[0] for c in one["copies"]}) == len(one["copies"]) == 3
    assert one["cost"] > free["cost"]
    assert one["gap"] == 0
    assert planned("-", "--copies", "1", stdin=SHARED_STORE)["cost"] == one["cost"]
    assert planned("-", "--copies", "2", stdin=f"{SHARED_STORE}limits: {{copies: 1}}\n") == {
        **free, **{k: pytest.approx(free[k], abs=1e9) for k in free if k.endswith("_ms")}
    }  # fmt: skip
    # One copy of each stream: (50 + 800) tuples of 100 bytes and 100 of 50.
    tight = planned("-", "--memory", "90000", stdin=SHARED_STORE)
    assert tight["cost"] == one["cost"]
    assert planned("-", "--memory", "95000", stdin=SHARED_STORE)["cost"] == free["cost"]
    result = run("plan", "-", "--memory", "89999", stdin=SHARED_STORE)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: memory: one copy of every relation takes 90000 bytes")
    assert "raise the budget" in result.stderr


def test_no_queries_are_no_trouble() -> None:
    document = planned("-", stdin="streams: {}\nqueries: {}")
    assert (document["cost"], document["queries"], document["copies"]) == (0, {}, [])


@pytest.mark.parametrize(
    ("arguments", "stdin", "told"),
    [
        (["plan", "no-such.yaml"], None, "error: no-such.yaml: no such file or directory"),
        (["plan", "."], None, "error: .: is a directory"),
        (
            ["plan", "-"],
            "streams: {R: {rate: -1}}\nqueries: {}",
            "streams.R.rate: -1 is less than 0",
        ),
        (["plan", "-"], "a: [", "this is not YAML"),
        (["plan", "-", "--deadline", "-1"], SMALL, "--deadline: -1.0 is not a deadline"),
        (["plan", "-", "--deadline", "nan"], SMALL, "--deadline: nan is not a deadline"),
        (["plan", "-", "--memory", "-1"], SMALL, "memory: a memory budget of -1.0 bytes"),
        (["plan", "-", "--copies", "0"], SMALL, "copies: at most 0 copies of a store"),
        (
            ["plan", "-", "--intermediate-results", "-1"],
            SMALL,
            "intermediate_results: at most -1 intermediate results",
        ),
        (
            ["plan", "-", "--copies", "1", "--formulation", "paper"],
            SMALL,
            "formulation: the paper's formulation has no limits",
        ),
        (["plan", "-", "--solver", "gurobi"], SMALL, "--solver"),
        (["plan", "-", "--threads", "0"], SMALL, "--threads"),
        (["plan", "-", "--optimiser", "clash"], SMALL, "--optimiser"),
        (["plan"], None, "PROBLEM.yaml"),
        (["plot"], None, "plot"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], stdin: str | None, told: str
) -> None:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert told in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    result = run("plan", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "this is not UTF-8 text" in result.stderr


# --- as a process ------------------------------------------------------------------------------


def test_as_a_process(tmp_path: Path) -> None:
    example = str(EXAMPLES / "clash-example-1.yaml")
    result = python("-m", "anabranch_planner", "plan", example, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert (document["cost"], document["individual_cost"]) == (800, 950)
    assert 0 < document["total_ms"] < 10_000
    assert document["build_ms"] + document["solve_ms"] <= document["total_ms"]
    refused = python("-m", "anabranch_planner", "plan", str(tmp_path / "none.yaml"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.count("\n") == 1


def test_plans_and_rulesets_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        write_yaml(natural_problem(11, relations=8, count=15, size=3)) + "parallelism: 4\n"
    )
    script = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from anabranch_planner.plans.compile import compile_ruleset\n"
        "from anabranch_planner.passes import optimise\n"
        "from anabranch_planner.plans.optimise import Options\n"
        "from anabranch_planner.command.problem_file import parse_problem\n"
        "from anabranch_planner.documents.yaml import load_yaml\n"
        "from anabranch_contract.plans.ruleset import to_json\n"
        "p = parse_problem(load_yaml(Path(sys.argv[1]).read_text()))\n"
        "plan = optimise(p.queries, p.statistics, Options(parallelism=p.parallelism))\n"
        "made = compile_ruleset(\n"
        "    plan, p.queries, p.streams, epoch=0, parallelism=p.parallelism, sinks={}\n"
        ")\n"
        "print(json.dumps(to_json(made)))\n"
    )
    plans, rulesets = set(), set()
    for seed in ("0", "1", "2"):
        result = python("-m", "anabranch_planner", "plan", str(path), "--json", seed=seed)
        assert (result.returncode, result.stderr) == (0, "")
        document = json.loads(result.stdout)
        for part in TIMES:
            document.pop(part)
        plans.add(json.dumps(document))
        compiled = python("-c", script, str(path), seed=seed)
        assert compiled.returncode == 0, compiled.stderr
        rulesets.add(compiled.stdout)
    assert (len(plans), len(rulesets)) == (1, 1)
    assert len(rulesets.pop()) > 1000
