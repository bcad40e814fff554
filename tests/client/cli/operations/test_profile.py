"""Tests of ``anabranch profile`` against a real service, whose runtime reports while the command
waits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from anabranch_client.cli.operations import profile
from anabranch_client.rest.api import Client
from anabranch_contract.protocol.profile import CpuGroup, CpuReport, CpuUse
from tests.client.cli.test_runs import run
from tests.client.conftest import JOIN
from tests.support.worlds.service import Service

BEGAN = 1_790_000_000.0


@pytest.fixture
def waited(service: Service, monkeypatch: pytest.MonkeyPatch) -> Callable[[CpuReport], None]:
    """Make the runtime report while the command waits."""
    reports: list[CpuReport] = []

    def sleep(seconds: float) -> None:
        for one in reports:
            service.redis.set(service.keys.profile, one.dumps())

    monkeypatch.setattr(profile, "sleep", sleep)
    return reports.append


def report(seconds: float, factor: float, name: str = "r") -> CpuReport:
    """Return the runtime's CPU counters ``seconds`` after the start of a run."""
    steps = [(f"orders>step{n}", 0.01 * (n + 1)) for n in range(45)]
    probes = [CpuUse(CpuGroup.PROBE, edge, ("p", "q"), factor * s) for edge, s in steps]
    others = [
        CpuUse(CpuGroup.SINK, "q", ("q",), factor * 20.0),
        CpuUse(CpuGroup.INSERT, "orders[customer_id:bigint]/2", ("p", "q"), factor * 5.0),
        CpuUse(CpuGroup.INSERT, "", (), factor * 2.5),
        CpuUse(CpuGroup.UNATTRIBUTED, "driver", (), factor * 1.0),
    ]
    return CpuReport(name, BEGAN + seconds, (*probes, *others))


def test_groups_queries_and_uses_are_shown_the_greatest_first(
    service: Service, url: str, shop: Client, waited: Callable[[CpuReport], None]
) -> None:
    shop.create_query(JOIN, name="q")
    service.redis.set(service.keys.profile, report(0.0, 1.0).dumps())
    waited(report(30.0, 2.0))
    shown = run("profile", url=url)
    assert shown.exit_code == 0, shown.output
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert "period 30.0 s" in lines
    heads = [n for n, line in enumerate(lines) if line.startswith(("group CPU", "query CPU"))]
    groups = [line.split() for line in lines[heads[0] + 1 : heads[1]] if line]
    assert ["sink", "20.000"] in [cells[:2] for cells in groups]
    assert sorted(groups, key=lambda cells: -float(cells[1])) == groups
    # Half of 10.35 s of probe steps and of 5 s of inserts, and the results.
    for text in ("q 27.675 ", "p 7.675 ", "insert orders by customer_id 2 5.000 ",
                 "insert writing packs – 2.500 ", "probe orders → step44 2 0.450 "):  # fmt: skip
        assert any(line.startswith(text) for line in lines), shown.stdout
    rest = next(line.split() for line in lines if re.match(r"\d+ others ", line))
    shown_steps = [line.split() for line in lines if line.startswith("probe orders → step")]
    small = 10.35 - sum(float(cells[5]) for cells in shown_steps)
    assert float(rest[2]) >= small - 0.001 > 0
    assert "█" in shown.stdout


def test_all_time_since_the_start(service: Service, url: str, shop: Client) -> None:
    """Without input, queries use no CPU time any more."""
    shop.create_query(JOIN, name="q")
    service.redis.set(service.keys.profile, report(0.0, 1.0).dumps())
    shown = run("profile", "--total", url=url)
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert "period since the processes' start" in lines
    queries = [line for line in lines if line.startswith(("q ", "p "))]
    assert [line.split()[:2] for line in queries] == [["q", "27.675"], ["p", "7.675"]]
    found = json.loads(run("profile", "--total", "--json", url=url).stdout)
    assert found["seconds"] == 0
    assert sum(found["queries"].values()) == pytest.approx(found["cpu"])


def test_json_has_every_use_unrounded(
    service: Service, url: str, waited: Callable[[CpuReport], None]
) -> None:
    service.redis.set(service.keys.profile, report(0.0, 1.0).dumps())
    waited(report(12.5, 3.0))
    found = json.loads(run("profile", "--seconds", "12", "--json", url=url).stdout)
    assert found["seconds"] == 12.5
    assert len([use for use in found["uses"] if use["group"] == "probe"]) == 45
    assert sum(found["queries"].values()) == pytest.approx(found["cpu"])
    assert sum(use["seconds"] for use in found["uses"]) == pytest.approx(found["cpu"])
    assert found["groups"]["unattributed"] == pytest.approx(2.0)


def test_a_runtime_that_reports_nothing_is_an_error(
    service: Service, url: str, waited: Callable[[CpuReport], None]
) -> None:
    waited(report(0.0, 1.0))
    service.redis.set(service.keys.profile, report(0.0, 1.0).dumps())
    ended = run("profile", url=url)
    assert ended.exit_code == 1
    assert "the runtime has reported no CPU time within 30 s" in ended.stderr


def test_counters_of_two_runs_are_not_subtracted(
    service: Service, url: str, waited: Callable[[CpuReport], None]
) -> None:
    service.redis.set(service.keys.profile, report(0.0, 1.0).dumps())
    waited(report(5.0, 0.1, "another"))
    ended = run("profile", url=url)
    assert ended.exit_code == 1
    assert "have restarted" in ended.stderr
