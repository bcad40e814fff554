"""Exhaustive test of the coverage rule (``semantics.md``, "Epochs and containers").

Every way in which three tuples that join can be spread over the batches of a run, times every way
in which intermediate results come and go between its epochs: each result exactly once. Among them
is the case by which the rule was found: ``s`` in epoch 1, ``t`` in epoch 2, ``r`` in epoch 3, with
``ST`` introduced, dropped, introduced again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from anabranch_contract.plans.plan import Objective, Optimizer, Plan, ProbeOrder, Step, StoreCopy
from anabranch_contract.queries.joins import JoinQuery, Label
from anabranch_contract.queries.mirs import Mir, base_mir, canonical
from anabranch_planner.cost.statistics.statistics import Statistics
from tests.support.oracles.oracle import Oracle, OracleQuery
from tests.support.plain_service import Planner
from tests.support.scenarios.file import read_scenario
from tests.support.scenarios.script import Script
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.folders import passing_folder
from tests.support.worlds.local_replay import LocalReplay

#: Number of epochs of one batch each.
EPOCHS = 4
#: Key -> the batches in which r, s and t arrive with that key.
SPREAD = list(product(range(EPOCHS), repeat=3))
#: A chain and a triangle: ``rs`` and ``st`` are joined in both, ``rt`` in the triangle.
CHAIN = ("r.a = s.a", "s.b = t.b")
TRIANGLE = (*CHAIN, "r.c = t.c")
#: Intermediate results that exist, epoch by epoch.
Pattern = tuple[tuple[str, ...], ...]
ST: list[Pattern] = list(product(((), ("st",)), repeat=EPOCHS))
#: The patterns of ST, those with the most changes first.
CHANGING = sorted(ST, key=lambda p: sum(a != b for a, b in pairwise(p)), reverse=True)
BOTH: list[Pattern] = list(product(((), ("st",), ("rs",), ("rs", "st")), repeat=EPOCHS))


@pytest.fixture
def folder() -> Iterator[Path]:
    with passing_folder() as found:
        yield found


def write(folder: Path, conditions: Sequence[str]) -> Path:
    """Write the scenario: in each batch the tuples that :data:`SPREAD` has for it."""
    folder.mkdir(parents=True)
    streams = {}
    for at, name in enumerate("rst"):
        order = [k for batch in range(EPOCHS) for k in range(len(SPREAD)) if SPREAD[k][at] == batch]
        keys = pa.array(order, pa.int64())
        table = pa.table({"id": keys, "a": keys, "b": keys, "c": keys})
        pq.write_table(table, folder / f"{name}.parquet")
        cuts = [sum(spread[at] <= batch for spread in SPREAD) for batch in range(EPOCHS)]
        streams[name] = {"path": f"{name}.parquet", "rows_per_batch": 16, "cuts": cuts}
    sql = "SELECT r.id AS r_id, s.id AS s_id, t.id AS t_id FROM r, s, t WHERE "
    query = {"sql": sql + " AND ".join(conditions), "register_at": 0}
    document = {"streams": streams, "queries": {"q": query}, "epochs": {"every": 1}}
    path = folder / "SCENARIO.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def planner(pattern: Pattern) -> Planner:
    """Return a planner that probes the intermediate results of an epoch wherever possible."""

    def plan(
        queries: Sequence[JoinQuery],
        statistics: Statistics,
        optimizer: Optimizer,
        parallelism: int,
        epoch: int,
    ) -> Plan:
        (query,) = queries
        relation_of = {m.label: m.relation for m in query.members}
        mirs: list[Mir] = [base_mir(relation_of[Label(x)]) for x in "rst"]
        orders: list[ProbeOrder] = []
        for pair in pattern[epoch]:
            labels = frozenset(map(Label, pair))
            mir = canonical(query.classes, relation_of, labels)
            mirs.append(mir)
            for start in pair:
                (other,) = labels - {Label(start)}
                step = Step(base_mir(relation_of[other]).id, (other,), None, False, 0.0, 0.0)
                orders.append(ProbeOrder(mir.id, True, Label(start), (step,)))
        for start, after in (("r", "st"), ("s", "rt"), ("t", "sr")):
            steps: tuple[Step, ...]
            if "".join(sorted(after)) in pattern[epoch]:
                labels = frozenset(map(Label, after))
                mir = canonical(query.classes, relation_of, labels)
                steps = (Step(mir.id, tuple(sorted(labels)), None, False, 0.0, 0.0),)
            else:
                steps = tuple(
                    Step(base_mir(relation_of[Label(x)]).id, (Label(x),), None, False, 0.0, 0.0)
                    for x in after
                )
            orders.append(ProbeOrder(query.id, False, Label(start), steps))
        return Plan(
            optimizer=Optimizer.CLASH,
            objective=Objective.TUPLES,
            queries=(query.id,),
            orders=tuple(orders),
            mirs=tuple(mirs),
            copies=tuple(StoreCopy(m.id, None) for m in mirs),
            cost=0.0,
            bound=0.0,
            gap=0.0,
            method="given",
        )

    return plan


def assert_exactly_once(
    conditions: Sequence[str], pattern: Pattern, redis: str, folder: Path, *, tasks: int = 2
) -> LocalReplay:
    path = write(folder / "scenario", conditions)
    script = Script(layouts=True, seed=len(folder.name), tasks=((tasks,),), fanout=(2,))
    replay = LocalReplay(path, folder / "out", redis, planner=planner(pattern), script=script)
    activations = replay.run()
    names = (("r.id", "r_id", True), ("s.id", "s_id", True), ("t.id", "t_id", True))
    query = OracleQuery((("r", "r"), ("s", "s"), ("t", "t")), names, tuple(conditions))
    scenario = read_scenario(path)
    oracle = Oracle(scenario)
    try:
        results = replay.out / "results" / "q"
        found = oracle.compare(query, scenario.queries["q"], activations["q"], results)
    finally:
        oracle.close()
    assert not found.problems, f"{pattern}: {found.problems}"
    assert found.got == len(SPREAD)
    return replay


def test_introduced_dropped_introduced_again(redis: str, folder: Path) -> None:
    pattern: Pattern = (("st",), (), ("st",), ())
    replay = assert_exactly_once(CHAIN, pattern, redis, folder)
    assert replay.events["MIR introduced again"] > 0
    assert replay.events["gap beside a container"] > 0


@pytest.mark.parametrize("pattern", mostly_slow(CHANGING, 6), ids=str)
def test_one_intermediate_result_comes_and_goes(pattern: Pattern, redis: str, folder: Path) -> None:
    assert_exactly_once(CHAIN, pattern, redis, folder)


@pytest.mark.slow
@pytest.mark.parametrize("conditions", [CHAIN, TRIANGLE], ids=["chain", "triangle"])
def test_two_intermediate_results_come_and_go(
    conditions: Sequence[str], redis: str, folder: Path
) -> None:
    for number, pattern in enumerate(BOTH):
        tasks = 1 + number % 3
        assert_exactly_once(conditions, pattern, redis, folder / str(number), tasks=tasks)
