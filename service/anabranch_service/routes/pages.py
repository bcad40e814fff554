"""The pages of the console, which get their data from the REST API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs

router = guarded_router(tag="system")

DASHBOARD = Path(__file__).parent.parent / "dashboard"
_TEMPLATE = Template((DASHBOARD / "page.html").read_text(encoding="utf-8"))
_STYLE = '<link rel="stylesheet" href="/dashboard/{}" />'


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """A page of the console.

    Attributes:
        file: HTML file of its element ``main``, in the same folder as its ``page.js``.
        skip: id of the element to which the link for skipping the header leads. ``target``: name of
            that element.
        styles: its style sheets.
    """

    file: str
    title: str
    skip: str
    target: str
    styles: tuple[str, ...] = ("style.css", "pages.css")

    def render(self) -> str:
        """Return the page's HTML."""
        return _TEMPLATE.substitute(
            title=f"{self.title} · anabranch" if self.title else "anabranch",
            styles="\n    ".join(map(_STYLE.format, self.styles)),
            folder=self.file.partition("/")[0],
            skip=self.skip,
            target=self.target,
            main=(DASHBOARD / self.file).read_text(encoding="utf-8").rstrip(),
        )


_WHAT_IF = ConsolePage("what_if/what-if.html", "What if", "statement", "the statement")
#: URL path -> page of the console.
PAGES: Mapping[str, ConsolePage] = {
    "/": ConsolePage("overview/overview.html", "", "health", "the overview"),
    "/dashboard/batches": ConsolePage(
        "batches/batches.html", "Batches", "list", "the list of batches"
    ),
    "/dashboard/epochs": ConsolePage("epochs/epochs.html", "Epochs", "timeline", "the changes"),
    "/dashboard/explain": _WHAT_IF,
    "/dashboard/health": ConsolePage(
        "health/health.html", "Health", "components", "the components"
    ),
    "/dashboard/load": ConsolePage("load/load.html", "Load", "queries-card", "the queries"),
    "/dashboard/measured": ConsolePage(
        "measured/measured.html", "Measurements", "measured", "the measurements"
    ),
    "/dashboard/plan": ConsolePage(
        "plan/plan.html", "Plan", "map", "the plan", ("style.css", "pages.css", "map/map.css")
    ),
    "/dashboard/queries": ConsolePage(
        "query_list/queries.html", "Queries", "queries", "the queries"
    ),
    "/dashboard/query/{name}": ConsolePage("query_page/query.html", "Query", "main", "the query"),
    "/dashboard/settings": ConsolePage(
        "settings/settings.html", "Settings", "form", "the settings"
    ),
    "/dashboard/state": ConsolePage("state/state.html", "Stored state", "stores", "the stores"),
    "/dashboard/streams": ConsolePage("streams/streams.html", "Streams", "main", "the streams"),
    "/dashboard/stream/{name}": ConsolePage(
        "stream_page/stream.html", "Stream", "main", "the stream"
    ),
    "/dashboard/what-if": _WHAT_IF,
}

_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def _page(html: str) -> Callable[[], Awaitable[Response]]:
    @needs(Need.NOTHING)
    async def answer() -> Response:
        return HTMLResponse(html, headers=_HEADERS)

    return answer


@router.get("/docs", include_in_schema=False)
@needs(Need.NOTHING)
async def reference() -> Response:
    """Return the page with the REST reference, shown by Swagger UI without the console's header."""
    return FileResponse(DASHBOARD / "reference" / "reference.html", headers=_HEADERS)


@router.get("/docs/", include_in_schema=False)
@router.get("/dashboard", include_in_schema=False)
@router.get("/dashboard/", include_in_schema=False)
@router.get("/dashboard/{page:path}/", include_in_schema=False)
@needs(Need.NOTHING)
async def without_slash(request: Request) -> Response:
    """Redirect to the path without a slash at its end, and from ``/dashboard`` to the overview."""
    path, query = quote(request.scope["path"].rstrip("/")), request.url.query
    # A path only: a whole URL would repeat the client's Host header.
    target = ("/" if path == "/dashboard" else path) + (f"?{query}" if query else "")
    return RedirectResponse(target, status_code=308, headers=_HEADERS)


for _path, _each in PAGES.items():
    router.add_api_route(_path, _page(_each.render()), include_in_schema=False)
