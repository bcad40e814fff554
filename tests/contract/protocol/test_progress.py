"""Tests of the runtime's progress as encoded in Redis, on both sides."""

from __future__ import annotations

from anabranch_contract.protocol.ages import bin_of
from anabranch_contract.protocol.progress import Latencies, Progress, Telemetry


def test_times_and_ages_survive_the_way_through_redis() -> None:
    ages = {"orders": {bin_of(0.3): 2, bin_of(700.0): 1}, "customers": {bin_of(0.0): 1}}
    telemetry = Telemetry(batches=2, latencies=Latencies().adding(0.3), ages=ages)
    found = Progress.loads(Progress("running", telemetry=telemetry).dumps())
    assert found.telemetry == telemetry


def test_a_time_at_a_bound_belongs_to_the_lower_bin() -> None:
    assert Latencies().adding(0.1).counts[:2] == (1, 0)
    assert Latencies().adding(4000.0).counts[-1] == 1
