"""Tests of the line about a plan's saving."""

from __future__ import annotations

from anabranch_client.render.tables import saving_text
from anabranch_contract.rest.planning.epochs import SavingOut


def test_the_mean_has_its_range_time_and_cpu_seconds() -> None:
    saving = SavingOut(
        since="2026-11-26T13:50:00Z",
        seconds=599.6,
        epochs=170,
        cpu_seconds=4.219,
        individual_cpu_seconds=8.24,
        share=0.488,
        lowest=-0.02,
        highest=0.604,
    )
    assert saving_text(saving) == (
        "48.8% (-2.0% to 60.4% in 170 epochs), estimated over 600 s: 4.2 CPU s instead of 8.2 "
        "with each query alone"
    )
    same = saving.model_copy(update={"lowest": 0.488, "highest": 0.488, "epochs": 1})
    assert saving_text(same).startswith("48.8%, estimated over 600 s: ")
