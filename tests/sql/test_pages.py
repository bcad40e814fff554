"""Compare the statements of the cookbook and of the migration page, in one pipeline,
with DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch_contract.protocol.progress import Mode
from anabranch_service.settings import ServiceSettings
from tests.sql.pages import ExampleStreams, in_duckdb, statements
from tests.support.surroundings.policy import OPEN
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.service import Service, serving

#: Page → line before its statements, and their minimum number.
PAGES = {"cookbook": ("", 20), "migration": ("anabranch:", 12)}


@pytest.fixture
def service() -> Iterator[Service]:
    """A service in live mode."""
    with redis_url() as url:
        settings = ServiceSettings().changed(
            redis_url=url, namespace="pages", mode=Mode.LIVE, poll_seconds=0.005, access=OPEN
        )
        with serving(settings) as running:
            yield running


@pytest.mark.e2e
def test_statements_have_the_answers_of_duckdb(service: Service, tmp_path: Path) -> None:
    world = ExampleStreams(service, tmp_path)
    oracle: dict[str, str] = {}
    for page, (before, least) in PAGES.items():
        found, differing = statements(f"{page}.md", before), in_duckdb(page)
        assert len(found) >= least
        assert differing.keys() <= found.keys()
        for anchor, sql in found.items():
            world.query(f"{page}-{anchor}", sql)
        oracle |= {f"{page}-{anchor}": sql for anchor, sql in differing.items()}
    world.feed()
    rows = world.compare(oracle)
    assert [name for name, count in rows.items() if count == 0] == []
