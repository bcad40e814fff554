"""The pages of the console, which get their data from the REST API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from fastapi.responses import FileResponse

from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs

router = guarded_router(tag="system")

DASHBOARD = Path(__file__).parent.parent / "dashboard"

#: Path -> the file of its page.
PAGES: Mapping[str, str] = {
    "/": "overview/overview.html",
    "/dashboard/batches": "batches/batches.html",
    "/dashboard/epochs": "epochs/epochs.html",
    "/dashboard/explain": "what_if/what-if.html",
    "/dashboard/health": "health/health.html",
    "/dashboard/load": "load/load.html",
    "/dashboard/measured": "measured/measured.html",
    "/dashboard/plan": "plan/plan.html",
    "/dashboard/queries": "query_list/queries.html",
    "/dashboard/query/{name}": "query_page/query.html",
    "/dashboard/settings": "settings/settings.html",
    "/dashboard/state": "state.html",
    "/dashboard/streams": "streams/streams.html",
    "/dashboard/stream/{name}": "stream_page/stream.html",
    "/dashboard/what-if": "what_if/what-if.html",
    "/docs": "reference/reference.html",
}

_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def _page(file: str) -> Callable[[], Awaitable[FileResponse]]:
    @needs(Need.NOTHING)
    async def page() -> FileResponse:
        return FileResponse(DASHBOARD / file, headers=_HEADERS)

    return page


for _path, _file in PAGES.items():
    router.add_api_route(_path, _page(_file), include_in_schema=False)
