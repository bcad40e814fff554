"""Tests of interim measurements: parts of a period's measurements."""

from __future__ import annotations

from anabranch_contract.protocol.interims import (
    Arrivals,
    DriftedRate,
    DriftedStep,
    Drifts,
    Interim,
)
from anabranch_contract.queries.joins import Label
from anabranch_contract.queries.mirs import MirId


def test_what_rates_are_made_of_is_the_same_from_a_text_and_from_a_period() -> None:
    step = DriftedStep(MirId("R,S"), (Label("R"),), (Label("S"),), "matches", 1.0, 9.0)
    drifted = Drifts((DriftedRate("R", 10.0),), (step,))
    found = Interim(30.0, 3.0, 2, 2, 17, 4, {"R": 40, "S": 7}, drifted=drifted)

    assert Arrivals.loads(found.dumps()) == found.arrived
    assert found.arrived.drifted.rates == drifted.rates
    assert (found.arrived.next_batch, found.arrived.batches) == (17, 4)
    assert found.arrived.arrivals == {"R": 40, "S": 7}
