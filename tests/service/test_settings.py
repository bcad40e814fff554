from __future__ import annotations

from typing import Any

import pytest

from anabranch_contract.plans.plan import Optimizer
from anabranch_contract.protocol.progress import Mode
from anabranch_service.__main__ import parser
from anabranch_service.errors import SettingsError
from anabranch_service.settings import OPTIONS, ServiceSettings


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
    assert settings.planning.optimizer is Optimizer.SHARED
    assert settings.planning.solve_seconds == 2.5
    assert settings.planning.parallelism == ServiceSettings().planning.parallelism


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


def test_every_option_has_a_flag_and_is_changed_in_its_group() -> None:
    flags = {action.dest for action in parser()._actions}
    assert OPTIONS.keys() <= flags
    groups = {option.group for option in OPTIONS.values()}
    assert groups == {"", "planning", "lineage", "retention", "web", "sizes", "tables"}
    before = ServiceSettings()
    for name, option in OPTIONS.items():
        part = getattr(before, option.group) if option.group else before
        assert getattr(part, name) == option.default
    changed = before.changed(port=81, max_streams=3, kept_epochs=100, body_limit=2048)
    assert (changed.port, changed.sizes.max_streams) == (81, 3)
    assert (changed.retention.kept_epochs, changed.web.body_limit) == (100, 2048)
    assert (changed.sizes.max_queries, changed.planning) == (10_000, before.planning)
    with pytest.raises(SettingsError, match="at least 1"):
        before.changed(port=81, max_streams=0)
