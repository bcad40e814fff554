from __future__ import annotations

from typing import Any

import pytest

from anabranch_contract.plans.plan import Optimizer
from anabranch_contract.protocol.progress import Mode
from anabranch_service.errors import SettingsError
from anabranch_service.settings import ServiceSettings


def test_command_line_goes_before_environment_before_defaults() -> None:
    environ = {
        "ANABRANCH_REDIS_URL": "redis://elsewhere:1/2",
        "ANABRANCH_PORT": "0",
        "ANABRANCH_MODE": "step",
        "ANABRANCH_SOLVE_SECONDS": "2.5",
        "PORT": "99",
    }
    settings = ServiceSettings.read(environ, {"port": 7, "optimizer": "shared", "mode": None})
    assert settings.redis_url == "redis://elsewhere:1/2"
    assert settings.port == 7
    assert settings.mode is Mode.STEP
    assert settings.optimizer is Optimizer.SHARED
    assert settings.solve_seconds == 2.5
    assert settings.parallelism == ServiceSettings().parallelism


@pytest.mark.parametrize(
    ("environ", "given", "field"),
    [
        ({"ANABRANCH_PORT": "http"}, {}, "port"),
        ({"ANABRANCH_PORT": "70000"}, {}, "port"),
        ({"ANABRANCH_MODE": "fast"}, {}, "mode"),
        ({}, {"optimizer": "magic"}, "optimizer"),
        ({}, {"parallelism": 0}, "parallelism"),
        ({}, {"epoch_batches": 0}, "epoch_batches"),
        ({}, {"poll_seconds": 0}, "poll_seconds"),
        ({}, {"solve_seconds": -1}, "solve_seconds"),
        ({}, {"series_periods": 1}, "series_periods"),
        ({}, {"series_periods": -3}, "series_periods"),
        ({"ANABRANCH_SERIES_PERIODS": "121"}, {}, "series_periods"),
        ({"ANABRANCH_SERIES_PERIODS": "nan"}, {}, "series_periods"),
        ({"ANABRANCH_REVISION_GAIN": "nan"}, {}, "revision_gain"),
        ({"ANABRANCH_REVISION_GAIN": "much"}, {}, "revision_gain"),
        ({}, {"revision_gain": -0.1}, "revision_gain"),
        ({}, {"revision_gain": 1.5}, "revision_gain"),
        ({}, {"revision_gain": float("inf")}, "revision_gain"),
        ({}, {"namespace": ""}, "namespace"),
        ({}, {"log_level": "loud"}, "log_level"),
    ],
)
def test_settings_that_cannot_be_used(
    environ: dict[str, str], given: dict[str, Any], field: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        ServiceSettings.read(environ, given)
    assert caught.value.field == field
    assert caught.value.remedy
