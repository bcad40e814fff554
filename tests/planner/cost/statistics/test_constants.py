"""Tests of the costs of steps and stored copies in seconds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from anabranch_contract.errors import StatisticsError
from anabranch_contract.plans.plan import Objective
from anabranch_contract.queries.joins import Label
from anabranch_contract.queries.mirs import MirId, sub_join
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.constants import OPERATIONS, CostConstants
from anabranch_planner.cost.timing import LoosestBounds
from tests.support.cases.queries import given_statistics, join_query

COSTS = CostConstants(
    call=100, probe=2, look=3, match=5, write=7, row=11, merge=13, rewrite=17, calls=4,
    looks={MirId("T"): 2.5},
)  # fmt: skip
LONG = replace(COSTS, batches=216.0)
QUERY = join_query(["R.a=S.a", "S.b=T.b"])
STATISTICS = given_statistics(default=100.0, selectivity_default=0.05, constants=COSTS)


def labels(text: str) -> frozenset[Label]:
    return frozenset(Label(x) for x in text)


def model(
    objective: Objective = Objective.SECONDS,
    costs: CostConstants = COSTS,
    bounds: LoosestBounds | None = None,
) -> CostModel:
    known = replace(STATISTICS, constants=costs, history=216 * 60.0)
    return CostModel(known, objective=objective, parallelism=3, bounds=bounds)


def test_a_step_pays_calls_tuples_looks_and_matches() -> None:
    both, all_three = sub_join(QUERY, labels("RS")), sub_join(QUERY, labels("RST"))
    known = model()
    # 500 pairs of R and S, half of them with R first; 2,500 triples, a third of them.
    price = known.step(both, all_three, MirId("T"), Label("R"), broadcast=False)
    assert price == pytest.approx(100 * 4 + 250 * (2 + 3 * 2.5) + 5 * 2500 / 3)
    everywhere = known.step(both, all_three, MirId("T"), Label("R"), broadcast=True)
    assert everywhere - price == pytest.approx(250 * 3 * 2.5 * 2)


def test_a_store_that_was_not_measured_is_looked_into_once() -> None:
    assert model().price(10, 0, MirId("S")) == 100 * 4 + 10 * (2 + 3)


def test_a_copy_pays_writes_and_rows() -> None:
    assert model().insert(sub_join(QUERY, labels("RS"))) == pytest.approx(7 * 4 + 500 * 11)
    assert model().stored(10) == 110


def test_a_copy_of_an_intermediate_result_pays_for_its_level() -> None:
    dear = model(costs=replace(COSTS, derive=19))
    both, base = sub_join(QUERY, labels("RS")), sub_join(QUERY, labels("R"))
    assert dear.insert(both) == pytest.approx(model().insert(both) + 19 * 4)
    assert dear.insert(base) == model().insert(base)


def test_other_objectives_count_tuples_whatever_is_measured() -> None:
    for objective in (Objective.TUPLES, Objective.PAPER):
        known = model(objective)
        assert known.constants is None
        assert known.price(10, 1e6, MirId("T"), broadcast=True) == 30


def test_a_copy_pays_merges_and_rewritten_rows() -> None:
    """After 216 batches there are two or three levels: 2.5 rewrites a row, a merge every five
    writes.
    """
    both = sub_join(QUERY, labels("RS"))
    merges = (1 - 6**-2.5) / 5
    known = model(costs=LONG)
    assert known.insert(both) == pytest.approx((7 + 13 * merges) * 4 + 500 * (11 + 17 * 2.5))
    assert known.stored(10, both) == pytest.approx(10 * (11 + 17 * 2.5))
    assert known.stored(10) == 110
    counted = model(Objective.TUPLES, LONG)
    assert counted.insert(both) == pytest.approx(500 * 3.5)
    assert counted.stored(10, both) == pytest.approx(35)
    assert model(Objective.PAPER, LONG).insert(both) == 0


@pytest.mark.parametrize(
    ("window", "rewrites"), [(19 * 60, 0.0), (20 * 60, 1.0), (120 * 60, 2.0), (720 * 60, 2.5)]
)
def test_rows_that_expire_soon_are_rewritten_less_often(window: int, rewrites: float) -> None:
    """Batches last 60 microseconds; T may follow R and S within the window."""
    bounds = tuple(tuple(0 if i == j else window for j in range(3)) for i in range(3))
    query = replace(QUERY, bounds=bounds)
    known = model(costs=LONG, bounds=LoosestBounds([query]))
    for mir in (sub_join(query, labels("RS")), sub_join(query, labels("R"))):
        assert known.rewrites(mir) == pytest.approx(rewrites)


@pytest.mark.parametrize("name", [*OPERATIONS, "calls", "batches"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_a_bad_constant_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(StatisticsError, match=name) as caught:
        CostConstants(**{name: value})  # type: ignore[arg-type]
    assert caught.value.field == name


def test_bad_looks_are_refused_by_their_store() -> None:
    with pytest.raises(StatisticsError, match="looks of S"):
        CostConstants(looks={MirId("S"): -1.0})
