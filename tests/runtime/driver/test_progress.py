"""What the progress says of sites, and when streams are warned of that have no executor there."""

from __future__ import annotations

from unittest.mock import Mock

import structlog

from anabranch_runtime.control import StreamRecord
from anabranch_runtime.driver.progress import ProgressReporter
from anabranch_runtime.sources.batch_input import Sources


def sources(**sites: str) -> Sources:
    """Streams at sites."""
    records = tuple(StreamRecord(name=name, columns=(), site=s) for name, s in sites.items())
    return Sources(Mock(), 1, records)


def test_a_stream_whose_site_has_no_executor_is_warned_of_once() -> None:
    progress = ProgressReporter(Mock(), Mock(), Mock(), Mock(), None)
    progress.sources = sources(r="oslo", s="")

    def warned(*sites: str) -> list[str]:
        with structlog.testing.capture_logs() as logs:
            progress.note_sites(sites)
        return [entry["stream"] for entry in logs]

    # Where tasks share a directory there are no sites.
    assert warned("", "") == []
    assert warned("rome", "paris", "rome") == ["r"]
    assert progress.sites == ("paris", "rome")
    assert warned("paris", "rome") == []
    # One that comes later, or whose executors go.
    progress.sources = sources(r="oslo", t="rome", u="atlantis")
    assert warned("paris", "rome") == ["r", "u"]
    assert warned("paris", "oslo") == ["t", "u"]
