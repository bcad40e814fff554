"""Tests of the dashboard's sign-in if tokens are required, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from anabranch_contract.protocol.activations import Activation, Visibility
from anabranch_contract.rest.access import Role
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR, STREAMS
from tests.service.pages.test_dashboard import HURRY
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.browsers import PATIENCE
from tests.support.worlds.access import Guarded, guarded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def locked(settings: ServiceSettings, tmp_path: Path) -> Iterator[Guarded]:
    with guarded(settings, tmp_path) as found:
        for stream in STREAMS:
            found.service.post("/v1/streams", stream)
        found.service.post("/v1/queries", {"id": "pair", "sql": PAIR})
        yield found


def sign_in(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def test_nothing_is_shown_before_somebody_signs_in(browser: Browser, locked: Guarded) -> None:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.add_init_script(HURRY)
    page.goto(f"{locked.url}/dashboard/queries")
    expect(page.locator("#pulse")).to_have_text("signed out")
    expect(page.locator("#banner")).to_contain_text("requires a token")
    expect(page.locator("#queries")).not_to_contain_text("pair")
    page.wait_for_timeout(500)
    # It does not continue to poll: one refusal per opened page.
    refusals = locked.service.get("/v1/audit?kind=refusal")["items"]
    assert [r["target"] for r in refusals] == ["/v1/whoami"]

    sign_in(page, "anb_wrong")
    expect(page.get_by_role("alert").filter(has_text="not accepted")).to_be_visible()
    sign_in(page, locked.tokens[Role.VIEWER])
    expect(page.locator("#queries")).to_contain_text("pair")
    expect(page.locator("#who")).to_contain_text("viewer")
    page.goto(f"{locked.url}/dashboard/state")
    expect(page.locator("#who")).to_contain_text("viewer")
    assert page.evaluate("localStorage.length") == 0
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    page.close()


@pytest.mark.parametrize(
    "role", mostly_slow([Role.WORKER, Role.EDITOR, Role.VIEWER, Role.ADMIN], 2)
)
def test_only_what_the_role_may_do_is_offered(
    browser: Browser, locked: Guarded, role: Role
) -> None:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{locked.url}/dashboard/explain")
    sign_in(page, locked.tokens[role])
    expect(page.locator("#who")).to_contain_text(role)
    form = page.locator("#form")
    if role in (Role.EDITOR, Role.ADMIN):
        expect(form).to_be_visible()
        page.locator("#statement").fill(PAIR)
        page.get_by_role("button", name="Explain").click()
        expect(page.locator("#answer")).to_be_visible()
    else:
        expect(form).to_be_hidden()
        expect(page.get_by_text("needs the role editor or admin")).to_be_visible()
    page.goto(f"{locked.url}/dashboard/streams")
    expect(page.locator("#who")).to_contain_text(role)
    expect(page.locator("#register-card")).to_be_visible(visible=role in (Role.EDITOR, Role.ADMIN))
    page.goto(f"{locked.url}/dashboard/queries")
    if role is Role.WORKER:
        expect(page.locator("#pulse")).to_have_text("not allowed")
        expect(page.locator("#banner")).to_contain_text("the role worker may not do this")
    else:
        expect(page.locator("#queries")).to_contain_text("pair")
    page.close()


@pytest.mark.e2e
def test_results_are_followed_with_a_token_until_it_is_revoked(
    browser: Browser, locked: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch_service.streaming.tail.RENEW", 0.2)
    service = locked.service
    service.plan(-1)
    seen = {"o": Visibility(0, None), "c": Visibility(0, None)}
    service.activate("pair", Activation(0, seen))
    reader = locked.create("viewer")
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{locked.url}/dashboard/queries")
    sign_in(page, reader["token"])
    page.get_by_label("Query whose results are shown").select_option("pair")
    expect(page.locator("#tail-note")).to_have_text("waiting for results")
    service.call("DELETE", f"/v1/tokens/{reader['id']}", 200)
    expect(page.locator("#tail-note")).to_contain_text("no longer accepted")
    expect(page.locator("#pulse")).to_have_text("signed out")
    page.close()
