"""Tests of the optimiser with impossible statistics, extreme sizes, broken solvers: a valid plan or
a refusal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from anabranch_contract.connectors.addresses import masked
from anabranch_contract.connectors.check import check_sink_access
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.secrets import masked_text
from anabranch_contract.errors import PlannerError, QueryError, StatisticsError
from anabranch_contract.plans.plan import Plan, Solver
from anabranch_contract.queries.mirs import sub_join
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.sources.spark_source import read_schema
from tests.support.cases.queries import chain, given_statistics, join_query
from tests.support.scenarios.seeds import mostly_slow

QUERIES = (
    chain("R.a=S.a", "S.b=T.b", id="q1"),
    chain("S.b=T.b", "T.c=U.c", id="q2"),
)
STATISTICS = given_statistics(
    cardinalities={"R": 50.0, "S": 100.0, "T": 80.0, "U": 300.0},
    selectivities={"R.a=S.a": 0.02, "S.b=T.b": 0.015, "T.c=U.c": 0.01},
)
PROBLEM = {
    "streams": {"R": {"rate": 50}, "S": {"rate": 100}, "T": {"rate": 80}, "U": {"rate": 300}},
    "queries": {
        "q1": {"relations": ["R", "S", "T"], "predicates": ["R.a = S.a", "S.b = T.b"]},
        "q2": {"relations": ["S", "T", "U"], "predicates": ["S.b = T.b", "T.c = U.c"]},
    },
    "parallelism": 4,
}

BROKEN = {
    "missing": ("raise ModuleNotFoundError('No module named ortools')", "install the package"),
    "crashing": ("import os; os.abort()", "SIGABRT"),
    "silent": ("import os; os._exit(0)", "code 0"),
}


def checked(plan: Plan, statistics: Statistics = STATISTICS) -> Plan:
    validate_plan(plan, QUERIES)
    assert cost_of(plan, QUERIES, statistics, parallelism=4) == pytest.approx(plan.cost)
    assert 0 <= plan.bound <= plan.cost
    return plan


# --- statistics --------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), 1e300])
def test_statistics_that_are_no_amounts_are_refused_by_name(bad: float) -> None:
    for statistics, name in (
        (given_statistics(cardinalities={"R": bad}), "cardinality of R"),
        (given_statistics(default=100.0, distincts={("R", "a"): bad}), "distinct R(a)"),
        (given_statistics(default=100.0, selectivities={"R.a=S.a": bad}), "R.a = S.a"),
    ):
        with pytest.raises(StatisticsError) as caught:
            optimise(QUERIES, statistics, Options())
        assert caught.value.code == "bad-statistic"
        assert name in caught.value.message
        assert caught.value.remedy


def test_contradictions_are_put_right_and_listed() -> None:
    statistics = given_statistics(
        default=100.0,
        distincts={("R", "a"): 5000.0, ("S", "b"): 0.0},
        selectivities={"T.c=U.c": 3.0},
    )
    model = CostModel(statistics, parallelism=4)
    plan = optimise(QUERIES, statistics, Options(parallelism=4))
    for query in QUERIES:
        model.cardinality(sub_join(query, frozenset(query.labels)))
    assert checked(plan, statistics).gap == 0
    told = "; ".join(model.contradictions)
    for name in ("R(a)", "S(b)", "T.c = U.c"):
        assert name in told


@pytest.mark.parametrize("size", [0.0, 1e-9, 1e18])
def test_any_amount_can_be_planned_with(size: float) -> None:
    statistics = given_statistics(default=size, selectivity_default=1.0)
    plan = checked(optimise(QUERIES, statistics, Options(parallelism=4)), statistics)
    assert plan.gap <= 1e-6


def test_nothing_known_at_all_is_assumed() -> None:
    plan = checked(
        optimise(QUERIES, given_statistics(), Options(parallelism=4)), given_statistics()
    )
    assert plan.gap == 0


def test_forty_relations_of_absurd_size_have_a_cost_that_is_a_number() -> None:
    query = chain(*(f"R{i:02}.a{i}=R{i + 1:02}.a{i}" for i in range(39)), id="long")
    statistics = given_statistics(default=1e18, selectivity_default=1.0)
    plan = optimise([query], statistics, Options())
    validate_plan(plan, [query])
    assert 0 < plan.bound <= plan.cost < float("inf")


def test_a_cross_product_is_refused_by_name() -> None:
    apart = join_query(["R.a=S.a", "T.c=U.c"], id="apart")
    with pytest.raises(QueryError, match="'apart' is a cross product"):
        optimise([*QUERIES, apart], STATISTICS, Options())


# --- solvers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_solver_leaves_a_plan_that_says_so(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = optimise(QUERIES, STATISTICS, Options(parallelism=4)).cost
    monkeypatch.setenv("PYTHONPATH", broken(tmp_path, how))
    plan = checked(optimise(QUERIES, STATISTICS, Options(parallelism=4, solver=Solver.CP_SAT)))
    assert plan.bound <= best <= plan.cost * (1 + 1e-9)
    assert "cp-sat" in plan.method
    assert BROKEN[how][1] in plan.method


@pytest.mark.parametrize("how", mostly_slow(BROKEN))
def test_the_command_gives_that_plan_too(how: str, tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(PROBLEM))
    command = [sys.executable, "-m", "anabranch_planner", "plan", str(path), "--json"]
    ended = subprocess.run(
        [*command, "--solver", "cp-sat"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": broken(tmp_path, how)},
    )
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert BROKEN[how][1] in document["method"]
    assert 0 < document["bound"] <= document["cost"]
    assert document["gap"] == pytest.approx(1 - document["bound"] / document["cost"])
    assert {q: len(orders) for q, orders in document["queries"].items()} == {"q1": 3, "q2": 3}


def broken(folder: Path, how: str) -> str:
    """A Python path on which the package of CP-SAT is broken; solvers run in child processes."""
    (folder / "ortools").mkdir()
    (folder / "ortools" / "__init__.py").write_text(BROKEN[how][0] + "\n")
    return str(folder)


@pytest.mark.parametrize(
    ("name", "text", "fits"),
    [
        ("schema", "a" + 19_000 * " ", False),
        ("schema", " a  :  decimal ( 4 , 1 ) , `b c`   bigint", True),
        ("types", "a" + 1_500 * " " + "!", False),
        ("types", "a x" + 1_500 * " " + "!", False),
        ("types", ' a VARCHAR (64) , "B c"  double  precision,c DECIMAL( 4 , 1 ) ', True),
        ("types", "a VARCHAR(64), b", False),
        ("types", "a int) AS SELECT 1 --", False),
    ],
)
def test_text_with_many_spaces_is_read_in_one_go(name: str, text: str, fits: bool) -> None:
    started = time.process_time()
    with nullcontext() if fits else pytest.raises(PlannerError):
        if name == "schema":
            read_schema(text)
        else:
            options = {"url": "jdbc:postgresql://localhost/d", "createTableColumnTypes": text}
            policy = AccessPolicy(formats=frozenset({"jdbc"}))
            check_sink_access("jdbc", None, options, policy, str)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("mask", [masked, masked_text])
@pytest.mark.parametrize(
    "part", ["a", "a-", "a.b+", "redis:", "//", "://", "a://:", "//a:", "x@", "pwd=", 'pwd="']
)
def test_masking_takes_as_long_as_the_text_is(mask: Callable[[str], str], part: str) -> None:
    """Masking once took minutes, since each letter restarted the search for an
    address's beginning.
    """
    began = time.process_time()
    mask(part * 100_000)
    assert time.process_time() - began < 2


def test_a_secret_behind_a_long_scheme_is_masked() -> None:
    assert masked("a" * 50 + "://me:secret@host") == "a" * 50 + "://me:***@host"


def test_own_ports_need_an_entry_where_they_could_be_probed() -> None:
    policy = AccessPolicy(hosts=("localhost:7000", "other")).with_server("redis://127.0.0.1:6400")
    asked = [("127.0.0.1", 6400), ("::1", 7000), ("LOCALHOST", 6400), ("other", 1), ("::1", 22)]
    assert [policy.permits_host(*a, listed=True) for a in asked] == [True] * 4 + [False]
    assert policy.permits_host("::1", 22)
    assert AccessPolicy(hosts=("*",)).permits_host("localhost", 22, listed=True)
