"""Tests of CPU profiles: differences and divisions of CPU seconds, none lost or counted twice."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.protocol.profile import CpuGroup, CpuReport, CpuUse
from anabranch_contract.rest.profile import CpuProfile, ProfileOut

DAY = "2026-11-27"
KEYS = st.tuples(
    st.sampled_from(CpuGroup),
    st.sampled_from(["", "a", "b", "c"]),
    st.sampled_from([(), ("p",), ("p", "q"), ("p", "q", "r")]),
)
COUNTED = st.dictionaries(KEYS, st.floats(0.001, 1000))


def uses(counted: dict[tuple[CpuGroup, str, tuple[str, ...]], float]) -> list[CpuUse]:
    return [CpuUse(*key, seconds) for key, seconds in counted.items()]


def profile(before: list[CpuUse], after: list[CpuUse], seconds: int = 5) -> CpuProfile:
    """Return the profile of five seconds, with service and Redis measured ``seconds`` apart."""
    earlier, later = (
        ProfileOut(
            run="r",
            at=f"{DAY}T00:00:0{at}Z",
            service="s",
            service_at=f"{DAY}T01:00:{of:02}Z",
            uses=found,
        )
        for at, of, found in ((0, 0, before), (5, seconds, after))
    )
    return CpuProfile.between(earlier, later)


def total(found: list[CpuUse]) -> float:
    return sum(use.seconds for use in found)


@given(COUNTED, COUNTED, st.randoms(use_true_random=False))
def test_differences_preserve_seconds_though_uses_lose_their_names(
    before: dict[tuple[CpuGroup, str, tuple[str, ...]], float],
    more: dict[tuple[CpuGroup, str, tuple[str, ...]], float],
    draw: random.Random,
) -> None:
    after = dict(before)
    for key, seconds in more.items():
        after[key] = after.get(key, 0.0) + seconds
    for key in [k for k in after if k[1:] != ("", ()) and draw.random() < 0.3]:
        common = key[0], "", ()
        after[common] = after.get(common, 0.0) + after.pop(key)
    found, expected = profile(uses(before), uses(after)), profile([], uses(more))
    assert found.cpu == pytest.approx(sum(more.values()), abs=1e-6)
    for group, seconds in found.groups.items():
        assert seconds == pytest.approx(expected.groups.get(group, 0.0), abs=1e-6)


@given(COUNTED)
def test_divisions_preserve_seconds(
    counted: dict[tuple[CpuGroup, str, tuple[str, ...]], float],
) -> None:
    found = profile([], uses(counted))
    for divided in (found.queries, found.groups):
        assert sum(divided.values()) == pytest.approx(total(found.uses))
    assert found.cpu == pytest.approx(sum(counted.values()))


def test_a_shared_use_is_divided_equally_and_one_of_no_query_stays_whole() -> None:
    step = CpuUse(CpuGroup.PROBE, "a>b", ("p", "q"), 3.0)
    own = CpuUse(CpuGroup.SINK, "p", ("p",), 1.0)
    jvm = CpuUse(CpuGroup.SPARK, "JVM", (), 5.0)
    assert profile([], [step, own, jvm]).queries == {"p": 2.5, "q": 1.5, "": 5.0}


def test_counters_read_at_other_times_are_scaled() -> None:
    before, after = (CpuUse(CpuGroup.REDIS, "server", (), seconds) for seconds in (1.0, 3.0))
    (found,) = profile([before], [after], 10).uses
    assert found.seconds == 1.0


def test_reports_survive_redis() -> None:
    report = CpuReport("r", 1.5, (CpuUse(CpuGroup.PROBE, "a>b", ("p", "q"), 3.0),))
    assert CpuReport.loads(report.dumps()) == report
