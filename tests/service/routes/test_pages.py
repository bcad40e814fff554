"""Tests of addresses of the console's pages, with and without a final slash."""

from __future__ import annotations

import pytest

from anabranch_service.routes.pages import PAGES
from tests.support.worlds.service import Service

#: Address -> address to which it redirects.
ELSEWHERE = {
    "/dashboard": "/",
    "/dashboard/": "/",
    "/docs/": "/docs",
    **{f"{path}/": path for path in PAGES if path != "/"},
}


@pytest.mark.parametrize("path", ELSEWHERE)
def test_a_slash_at_the_end_leads_to_the_page(untouched: Service, path: str) -> None:
    asked, page = (one.replace("{name}", "bought") for one in (path, ELSEWHERE[path]))
    found = untouched.http.get(asked)
    assert (found.status_code, found.headers["Location"]) == (308, page)
    assert untouched.http.head(asked).status_code == 308
    followed = untouched.http.get(f"{asked}?from=1&to=2", follow_redirects=True)
    assert followed.status_code == 200
    assert followed.headers["Content-Type"].startswith("text/html")
    assert followed.url.raw_path.decode() == f"{page}?from=1&to=2"


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/dashboard/query/a%20%23b%3f/", "/dashboard/query/a%20%23b%3F"),
        ("/dashboard/queries///", "/dashboard/queries"),
        ("/dashboard///elsewhere.example/", "/dashboard///elsewhere.example"),
        ("/dashboard/Set-Cookie:a/", "/dashboard/Set-Cookie%3Aa"),
    ],
)
def test_a_redirect_stays_on_the_console(untouched: Service, path: str, location: str) -> None:
    found = untouched.http.get(path, headers={"Host": "localhost"})
    assert (found.status_code, found.headers["Location"]) == (308, location)


def test_a_page_that_is_not_there_is_not_there_with_a_slash(untouched: Service) -> None:
    nothing = "/dashboard/nothing"
    for path in (nothing, f"{nothing}/", f"{nothing}%0d%0aSet-Cookie:a/", "//dashboard/queries/"):
        assert untouched.http.get(path, follow_redirects=True).status_code == 404
