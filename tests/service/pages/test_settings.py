"""Tests of the page of settings in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

import anabranch_service
from anabranch_contract.rest.planning.settings import SettingsIn
from tests.service.pages.drawn import drawn
from tests.service.pages.long_names import nothing_is_cut
from tests.service.pages.test_dashboard import opened
from tests.support.surroundings.browsers import LOOKS
from tests.support.worlds.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser

VIEW = (Path(anabranch_service.__file__).parent / "dashboard/settings/view.js").read_text()


@LOOKS
def test_settings_are_changed(browser: Browser, service: Service, width: int, scheme: Any) -> None:
    with opened(browser, service, "dashboard/settings") as (page, complaints):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.get_by_label("parallelism")).to_have_value("2")
        expect(page.locator("#fixed")).to_contain_text("10 batches")
        nothing_is_cut(page)
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#saved")).to_have_text("No changes.")
        page.get_by_label("optimizer").select_option("shared")
        page.get_by_label("revision gain").fill("")
        page.get_by_label("memory").fill("1000000")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#saved")).to_contain_text("Saved")
        found = service.get("/v1/settings")
        assert (found["optimizer"], found["memory"]) == ("shared", 1e6)
        assert found["revision_gain"] is None
        assert not complaints
        page.get_by_label("parallelism").fill("0")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#refusal")).to_contain_text("parallelism")
        expect(page.get_by_label("parallelism")).to_be_focused()
        page.get_by_role("button", name="Undo").click()
        expect(page.get_by_label("parallelism")).to_have_value("2")


@pytest.mark.e2e
def test_every_setting_of_the_api_has_a_field(browser: Browser, service: Service) -> None:
    with opened(browser, service, "dashboard/settings") as (page, _):
        expect(page.get_by_label("parallelism")).to_have_value("2")
        fields = drawn(page.locator("[data-field]"), "e => e.dataset.field")
    assert {*fields, "mode", "epoch_batches"} == set(service.get("/v1/settings"))


def test_every_choice_of_a_setting_is_offered() -> None:
    fields = re.compile(r'name: "(\w+)".*choices: \[(.*?)\]')
    offered = {name: json.loads(f"[{choices}]") for name, choices in fields.findall(VIEW)}
    schema = SettingsIn.model_json_schema()
    values = {name: definition.get("enum") for name, definition in schema["$defs"].items()}
    for name, choices in offered.items():
        (known,) = (
            values[part["$ref"].rpartition("/")[2]]
            for part in schema["properties"][name]["anyOf"]
            if "$ref" in part
        )
        assert sorted(choices) == sorted(known)
    assert "jaqpot" in offered["allocation"]
