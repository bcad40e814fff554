"""Tests of progress reports: rows of views through restarts, sites, warnings of sites without
executor.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import structlog
from redis import Redis

from anabranch_contract.protocol.progress import Progress
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.driver.reporting.progress import ProgressReporter
from anabranch_runtime.sources.batch_input import Sources
from tests.support.cases.states import RS
from tests.support.worlds.driven import KEYS, driver, job, publish

GROUPED = "SELECT S.b, count(*) AS n FROM R JOIN S ON R.a = S.a GROUP BY S.b"


def sources(**sites: str) -> Sources:
    """Return streams at sites."""
    records = tuple(StreamRecord(name=name, columns=(), site=s) for name, s in sites.items())
    return Sources(Mock(), 1, records)


def test_a_stream_whose_site_has_no_executor_is_warned_of_once() -> None:
    progress = ProgressReporter(Mock(), Mock())
    progress.sources = sources(r="oslo", s="")

    def warned(*sites: str) -> list[str]:
        with structlog.testing.capture_logs() as logs:
            progress.note_sites(sites)
        return [entry["stream"] for entry in logs]

    # If tasks share a directory there are no sites.
    assert warned("", "") == []
    assert warned("rome", "paris", "rome") == ["r"]
    assert progress.sites == ("paris", "rome")
    assert warned("paris", "rome") == []
    # A site that is added later, or whose executors are lost.
    progress.sources = sources(r="oslo", t="rome", u="atlantis")
    assert warned("paris", "rome") == ["r", "u"]
    assert warned("paris", "oslo") == ["t", "u"]


def test_a_view_has_the_rows_of_its_sink_after_a_restart(redis: str, tmp_path: Path) -> None:
    publish(redis, 0, {"joined": RS, "counted": GROUPED, "new": GROUPED})
    first = driver(redis, tmp_path)
    for batch in range(2):
        first.run(job(batch))
    first.tick()

    # The report at the start is made before the tables have been read.
    driver(redis, tmp_path)
    text = Redis.from_url(redis).get(KEYS.runtime)
    assert isinstance(text, bytes)
    found = Progress.loads(text)
    assert found.state == "starting"
    assert found.results == {"joined": 4, "counted": 4, "new": 4}
    assert found.shown == {"counted": 2, "new": 2}
