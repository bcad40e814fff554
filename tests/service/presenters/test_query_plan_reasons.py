"""Tests of the reasons why a query has no results."""

from __future__ import annotations

import pytest

from anabranch_contract.protocol.progress import Progress
from anabranch_contract.rest.normalised import AliasInfo, NormalisedInfo
from anabranch_contract.rest.planning.query_plan import PathStepOut, ProbePathOut
from anabranch_service.presenters.query_plan import no_results_because
from anabranch_service.registry.describe import describe
from tests.service.planning.test_rations import JOINED, TWO, rules_of
from tests.service.presenters.test_query_plan import plan_of


def step(label: str, rate: float, detail: str = "all tuples") -> PathStepOut:
    return PathStepOut(
        label=label,
        detail=detail,
        aliases=[label[0]],
        kept=False,
        tuples_per_second=rate,
        cpu=0.0,
        shared=[],
    )


def path(alias: str, rate: float, *steps: PathStepOut, detail: str = "all tuples") -> ProbePathOut:
    return ProbePathOut(
        alias=alias,
        label=alias,
        detail=detail,
        tuples_per_second=rate,
        steps=list(steps),
        keeps=None,
    )


def meaning_of(*residuals: str) -> NormalisedInfo:
    given = {"a": "admissions", "o": "orders"}
    aliases = [
        AliasInfo(alias=a, stream=s, relation=s, label=s, filter=[]) for a, s in given.items()
    ]
    [query] = rules_of(TWO)[1]
    update = {"aliases": aliases, "residuals": [*residuals]}
    return describe(query, JOINED).model_copy(update=update)


def progress_of(**streams: dict[str, int]) -> Progress:
    return Progress("running", streams=streams)


READ = {"admissions": {"input": 9}, "orders": {"input": 40, "late": 39}}
TO_ORDERS = path("a", 3.0, step("orders", 2.0), step("results", 0.0, "where value > 9"))


@pytest.mark.parametrize(
    ("streams", "paths", "reasons"),
    [
        ({"orders": {"input": 4}}, [TO_ORDERS], ["no row of admissions has been read"]),
        (
            {"admissions": {"input": 3, "late": 2, "ahead": 1}},
            [TO_ORDERS],
            [
                "all 3 rows of admissions were rejected, as late, invalid or ahead",
                "no row of orders has been read",
            ],
        ),
        (
            READ,
            [TO_ORDERS, path("o", 0.0, step("admissions", 0.0))],
            ["rows of admissions (a) that match orders match no row of results where value > 9"],
        ),
        (
            READ,
            [path("o", 0.0, step("admissions", 0.0), detail="where fee > 1")],
            ["no row of orders (o) where fee > 1 has been read lately"],
        ),
        (
            READ,
            [path("o", 4.0, step("admissions", 3.0))],
            ["rows of orders (o) match, but fail (a.ward = 'cardiology')"],
        ),
    ],
)
def test_reasons(
    streams: dict[str, dict[str, int]], paths: list[ProbePathOut], reasons: list[str]
) -> None:
    meaning = meaning_of("(a.ward = 'cardiology')")
    assert no_results_because(meaning, paths, progress_of(**streams), measured=True) == reasons


def test_nothing_is_said_before_a_measurement() -> None:
    assert no_results_because(meaning_of(), [TO_ORDERS], progress_of(**READ), measured=False) == []
    before = no_results_because(meaning_of(), [TO_ORDERS], None, measured=False)
    assert before == ["no row of admissions has been read", "no row of orders has been read"]


def test_a_step_that_was_not_measured_is_no_reason() -> None:
    """Its rate is an assumption."""
    paths = [path("o", 4.0, step("admissions", 4.0)), path("a", 3.0, step("orders", 0.0))]
    found = no_results_because(meaning_of(), paths, progress_of(**READ), measured=True)
    assert found == ["rows of admissions (a) match no row of orders"]


def test_a_query_with_results_has_no_reasons() -> None:
    streams = {"r": {"input": 1}, "s": {}}
    plan = plan_of(TWO, progress=Progress("running", streams=streams, results={"q0": 3}))
    assert plan.results_per_second > 0
    assert plan.no_results_because == []
    none = plan_of(TWO, progress=Progress("running", streams=streams, results={"q0": 0}))
    assert none.no_results_because == ["no row of s has been read"]
