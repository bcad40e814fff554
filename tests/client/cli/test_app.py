"""Tests of the command line: output, errors, and exit codes."""

from __future__ import annotations

import json
import platform
import re
import threading
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from anabranch_client.cli.app import app
from anabranch_client.rest.api import Client
from anabranch_contract import codec
from anabranch_contract.plans.rations import (
    Floor,
    Overload,
    Ranking,
    RationedGoal,
    RationSchedule,
    SchedulePoint,
)
from anabranch_contract.protocol.activations import Activation, Failure
from anabranch_contract.protocol.ages import bin_of
from anabranch_contract.protocol.intake import (
    InputProgress,
    SourceState,
    StreamIntake,
    Unread,
    UnreadPiece,
)
from anabranch_contract.protocol.interims import Interim, StepMeasures, StoreSize
from anabranch_contract.protocol.measurements import (
    EdgeStatistics,
    Snapshot,
    StoreStatistics,
    StreamSample,
    StreamStatistics,
)
from anabranch_contract.protocol.profile import CpuGroup, CpuReport, CpuUse
from anabranch_contract.protocol.progress import Mode, Progress, Rationing
from anabranch_contract.protocol.reads import Reads
from anabranch_contract.protocol.state_report import (
    EdgeReport,
    IndexReport,
    SegmentReport,
    StoreParts,
)
from anabranch_contract.queries.joins import Label, QueryId
from anabranch_contract.queries.mirs import MirId
from anabranch_service.registry.publishing.history import HistoryPoint
from tests.client.conftest import JOIN
from tests.service.routes.test_state import report, store
from tests.support.surroundings.terminal import in_terminal, piped
from tests.support.worlds.service import Service, serving

if TYPE_CHECKING:
    from typer.testing import Result


def run(*arguments: str, url: str = "http://127.0.0.1:1", stdin: str | None = None) -> Result:
    return CliRunner().invoke(
        app, list(arguments), env={"ANABRANCH_URL": url, "COLUMNS": "160"}, input=stdin
    )


def answer(*arguments: str, url: str, stdin: str | None = None) -> Any:
    result = run(*arguments, "--json", url=url, stdin=stdin)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


def test_streams_from_columns_and_from_a_file(url: str, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "o.parquet"
    pq.write_table(pa.table({"id": [1], "total": pa.array([1], pa.decimal128(12, 2))}), path)
    made = answer("stream", "add", "a", "--column", "k:bigint", "--column", "t:timestamp",
                  "--event-time", "t", "--lateness", "5 minutes", "--description", "[b]Shop",
                  "--site", "oslo", url=url)  # fmt: skip
    shown = run("stream", "show", "a", url=url).stdout
    assert "[b]Shop" in shown
    assert "oslo" in shown
    changed = answer("stream", "set", "a", "--description", "Shop", "--site", "", url=url)
    assert changed == {**made, "description": "Shop", "site": ""}
    assert [c["type"] for c in made["columns"]] == ["bigint", "timestamp"]
    recorded = answer("stream", "add", "b", "--path", str(path), "--rows-per-batch", "3", url=url)
    assert [c["type"] for c in recorded["columns"]] == ["bigint", "decimal(12,2)"]
    assert recorded["source"]["rows_per_batch"] == 3
    assert [s["name"] for s in answer("stream", "list", url=url)] == ["a", "b"]
    assert answer("stream", "show", "a", url=url) == client.stream("a").document()
    state = client.stream("a").source_status.state
    one_line(run("stream", "rm", "a", url=url), 2, "--yes", shown=f"a is {state}, with 0 tuples")
    assert [s.name for s in client.streams()] == ["a", "b"]
    assert answer("stream", "rm", "a", url=url) == {"deleted": "a"}
    assert run("stream", "rm", "b", "--yes", url=url).stdout == "stream b is gone\n"
    assert list(client.streams()) == []


def test_a_source_is_tested_and_nothing_registered(
    url: str, client: Client, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": [1, 300]}), tmp_path / "1.parquet")
    source = ("--path", str(tmp_path), "--format", "files", "--test")
    found = answer("stream", "add", "a", "--column", "id:int", *source, url=url)
    assert (found["outcome"], found["invalid"], found["found"]) == ("read", 0, 1)
    result = run("stream", "add", "a", "--column", "id:tinyint", *source, url=url)
    assert result.exit_code == 1
    assert "which 1 do not fit" in result.stdout
    gone = ("--path", str(tmp_path / "no"), "--format", "files", "--test")
    result = run("stream", "add", "a", "--column", "id:int", *gone, url=url)
    assert result.exit_code == 1
    assert "source.path" in result.stdout
    assert client.streams() == []
    sources = {"format": "files", "path": str(tmp_path)}
    assert len(client.test_stream("a", [("id", "int")], source=sources, rows=1).rows) == 1


def test_silence_and_late_tuples_of_a_stream(url: str, client: Client) -> None:
    made = answer("stream", "add", "a", "--column", "t:timestamp", "--event-time", "t",
                  "--idle-timeout", "PT5M", "--keep-late", url=url)  # fmt: skip
    assert (made["idle_timeout"], made["keep_late"]) == ("5 minutes", True)
    changed = answer("stream", "set", "a", "--idle-timeout", "none", "--drop-late", url=url)
    assert (changed["idle_timeout"], changed["keep_late"]) == (None, False)
    one_line(run("stream", "set", "a", url=url), 2, "nothing to change")
    one_line(run("stream", "set", "a", "--idle-timeout", "soon", url=url), 1, "soon")
    text = run("stream", "show", "a", url=url).stdout
    assert "never" in text
    assert client.update_stream("a", keep_late=True).keep_late


def test_how_far_event_times_of_a_stream_may_be_ahead(url: str, client: Client) -> None:
    bounds = ("--ahead-of-clock", "PT1H", "--ahead-of-stream", "unbounded")
    declared = ("--column", "t:timestamp", "--event-time", "t")
    made = answer("stream", "add", "a", *declared, *bounds, url=url)
    assert (made["ahead_of_clock"], made["ahead_of_stream"]) == ("1 hour", "unbounded")
    changed = answer("stream", "set", "a", "--ahead-of-stream", "7 days", url=url)
    assert (changed["ahead_of_clock"], changed["ahead_of_stream"]) == ("1 hour", "1 week")
    text = run("stream", "show", "a", url=url).stdout
    assert "ahead of the clock" in text
    assert client.update_stream("a", ahead_of_clock="2 hours").ahead_of_clock == "2 hours"


def test_the_ttl_of_a_stream(url: str, client: Client) -> None:
    made = answer("stream", "add", "a", "--column", "t:timestamp", "--event-time", "t",
                  "--ttl", "P2D", url=url)  # fmt: skip
    assert made["retention"] == {"ttl": "2 days", "latest": None}
    assert "2 days" in run("stream", "show", "a", url=url).stdout
    changed = answer("stream", "set", "a", "--ttl", "3 hours", url=url)
    assert changed["retention"] == {"ttl": "3 hours", "latest": None}
    assert answer("stream", "set", "a", "--keep-late", url=url)["retention"] is not None
    assert answer("stream", "set", "a", "--ttl", "none", url=url)["retention"] is None
    one_line(run("stream", "set", "a", "--ttl", "soon", url=url), 1, "soon")
    one_line(run("stream", "add", "b", "--column", "k:int", "--ttl", "P1D", url=url), 1, "event")
    stream = client.update_stream("a", retention={"ttl": "1 day"})
    assert stream.retention is not None
    assert stream.retention.ttl == "1 day"


def test_the_key_of_which_a_stream_keeps_the_latest(url: str, client: Client) -> None:
    columns = ("--column", "k:int", "--column", "t:timestamp", "--event-time", "t")
    made = answer("stream", "add", "a", *columns, "--latest", "k", url=url)
    assert made["retention"] == {"ttl": None, "latest": ["k"]}
    shown = run("stream", "show", "a", url=url).stdout
    assert "latest of each" in shown
    both = answer("stream", "set", "a", "--ttl", "1 day", "--latest", "k", "--latest", "t", url=url)
    assert both["retention"] == {"ttl": "1 day", "latest": ["k", "t"]}
    left = answer("stream", "set", "a", "--latest", "none", url=url)
    assert left["retention"] == {"ttl": "1 day", "latest": None}
    one_line(run("stream", "set", "a", "--latest", "nowhere", url=url), 1, "nowhere")
    stream = client.create_stream(
        "b", [("k", "int"), ("t", "timestamp")], event_time="t", latest=["k"]
    )
    assert stream.retention is not None
    assert stream.retention.latest == ["k"]


def test_what_happens_to_bad_files_and_what_could_not_be_read(url: str, service: Service) -> None:
    source = ("--format", "files", "--path", "/in", "--on-bad-file", "skip")
    made = answer("stream", "add", "f", "--column", "k:int", *source, url=url)
    assert made["source"]["options"] == {"on_bad_file": "skip"}
    changed = answer("stream", "set", "f", "--on-bad-file", "stop", url=url)
    assert changed["source"]["options"] == {"on_bad_file": "stop"}
    changed = answer("stream", "set", "f", "--on-changed-file", "read", url=url)
    assert changed["source"]["options"] == {"on_bad_file": "stop", "on_changed_file": "read"}
    source = ("--format", "csv", "--path", "/in", "--on-changed-file", "stop")
    made = answer("stream", "add", "h", "--column", "k:int", *source, url=url)
    assert made["source"]["options"] == {"on_changed_file": "stop"}
    refused = run("stream", "add", "g", "--column", "k:int", "--on-bad-file", "skip", url=url)
    one_line(refused, 2, "--format files")
    piece = UnreadPiece("/in/a", "rows", 5, None, None, None, "missing-file", "it is gone", 7)
    intake = {"f": StreamIntake(error="held for a reason", unread=Unread().and_also([piece]))}
    service.progress(Progress("running", input=InputProgress(intake)))
    shown = run("stream", "show", "f", url=url).stdout
    for part in ("held for a reason", "/in/a", "rows 5", "it is gone"):
        assert part in shown
    assert "held" in run("stream", "list", url=url).stdout


def test_a_stream_whose_source_cannot_be_read_is_there_and_exit_code_1(service: Service) -> None:
    with serving(replace(service.settings, mode=Mode.LIVE, namespace="live", port=0)) as live:
        live.beat()

        def try_it() -> None:
            while not live.redis.hexists(live.keys.streams, "f"):
                time.sleep(0.01)
            live.source("f", SourceState.FAILED, "no such folder")

        runtime = threading.Thread(target=try_it)
        runtime.start()
        url = f"http://127.0.0.1:{live.settings.port}"
        source = ("--format", "files", "--path", "/in")
        result = run("stream", "add", "f", "--column", "k:int", *source, "--json", url=url)
        runtime.join()
    assert result.exit_code == 1
    assert json.loads(result.stdout)["name"] == "f"
    assert "f is registered, but its source can't be read: no such folder" in result.stderr


def test_a_statement_is_explained(url: str, shop: Client) -> None:
    shop.create_query(JOIN, name="there")
    found = answer("query", "explain", JOIN, url=url)
    assert found["added_cost"] == pytest.approx(0)
    text = run("query", "explain", JOIN, url=url).stdout
    for part in ("binary joins", "Join inner", "probe orders", "→", "shares with there"):
        assert part in text
    assert "digraph" in run("query", "explain", JOIN, "--dot", url=url).stdout
    grouped = f"SELECT {{}} AS n FROM ({JOIN}) AS j"
    text = run("query", "explain", grouped.format("stddev(DISTINCT 1)"), url=url).stdout
    assert "does not run continuously" in text
    assert "Join inner" in text
    text = run("query", "explain", grouped.format("count(*)"), url=url).stdout
    assert "does not run continuously" not in text
    assert "view" in text
    assert "one group; count(*)" in text
    assert "alone" in text
    refused = run("query", "explain", "SELECT x FROM nowhere", "--json", url=url)
    one_line(refused, 1, "line 1, column 15")
    sql = 'SELECT "k" FROM R WHERE k = 1 ! 2'
    quoted = run("query", "explain", sql, "--dialect", "postgres", "--json", url=url)
    one_line(quoted, 1, "postgres")


def test_earlier_activations_of_a_query_are_shown(url: str, shop: Client, service: Service) -> None:
    shop.create_query(JOIN, name="twice")
    ended = Activation(2, {}, expired_batch=6, results=7, retention=((0, None), (60_000_000, 0)))
    service.activate("twice", Activation(6, {}, results=9, earlier=(ended,)))
    text = run("query", "show", "twice", url=url).stdout
    # An activation expires at the first batch after it: batches 2 to 5.
    assert "2 to 5" in text
    assert "from 6 on" in text
    (before,) = shop.query("twice").earlier
    assert (before.activated_batch, before.expired_batch, before.results) == (2, 6, 7)
    assert [(b.micros, b.duration) for b in before.bounds] == [(60_000_000, "1 minute")]


def test_a_failed_query_says_why(url: str, shop: Client, service: Service) -> None:
    shop.create_query(JOIN, name="bad")
    why = Failure("divide-by-zero", "a divisor is zero", "(1 / o.total)", 5, "guard it")
    service.activate("bad", Activation(0, {}, expired_batch=5, results=7, failure=why))
    text = run("query", "show", "bad", url=url).stdout
    for told in ("failed", "in batch 5: a divisor is zero", "(1 / o.total)", "guard it"):
        assert told in text
    failure = shop.query("bad").failure
    assert failure is not None
    assert (failure.batch, failure.code) == (5, "divide-by-zero")


def test_queries_by_argument_file_and_standard_input(
    url: str, shop: Client, tmp_path: Path
) -> None:
    (tmp_path / "q.sql").write_text(JOIN)
    answer("query", "add", JOIN, "--name", "a", url=url)
    answer("query", "add", "--file", str(tmp_path / "q.sql"), "--name", "b", url=url)
    answer("query", "add", "-", "--name", "c", url=url, stdin=JOIN)
    assert [q["id"] for q in answer("query", "list", url=url)] == ["a", "b", "c"]
    changed = answer("query", "set", "a", "--priority", "4", "--ttl", "1 hour", url=url)
    assert (changed["priority"], changed["expires_at"] is None) == (4, False)
    assert answer("query", "set", "a", "--expires-at", "never", url=url)["expires_at"] is None
    one_line(run("query", "rm", "b", url=url), 2, "--yes", shown="b is pending, with 0 results")
    answer("query", "rm", "b", url=url)
    assert answer("query", "show", "b", url=url)["status"] == "expired"
    assert len(list(shop.queries())) == 3


def test_queries_are_listed_by_what_is_looked_for(url: str, shop: Client) -> None:
    bodies = [
        {"id": f"q{n:03}", "sql": JOIN, "owner": ("web", "data")[n % 2], "tags": [f"t{n % 3}"]}
        for n in range(120)
    ]
    shop.create_queries(bodies)
    shop.delete_query("q005")

    def ids(*options: str) -> list[str]:
        return [q["id"] for q in answer("query", "list", *options, url=url)]

    assert ids("--all") == ids() == [f"q{n:03}" for n in range(120)]
    assert ids("--find", "Q01", "--owner", "web") == ["q010", "q012", "q014", "q016", "q018"]
    assert ids("--tag", "t2", "--status", "expired", "--status", "active") == ["q005"]
    assert len(ids("--stream", "orders", "--stream", "customers", "--tag", "t1")) == 40
    assert ids("--stream", "nowhere") == []
    assert ids("--limit", "100", "--owner", "web") == ids("--all", "--owner", "web")
    cut = run("query", "list", "--limit", "3", url=url)
    assert cut.stderr == "-- the first 3 are shown: --limit, or --all, shows more\n"
    assert ("q002" in cut.stdout, "q003" in cut.stdout) == (True, False)
    assert "first 100 are shown" in run("query", "list", url=url).stderr
    assert run("query", "list", "--limit", "120", url=url).stderr == ""
    one_line(run("query", "list", "--status", "odd", url=url), 1, "status")


def test_what_a_query_needs(url: str, shop: Client, service: Service) -> None:
    columns = (("customer_id", "bigint"), ("ts", "timestamp"))
    shop.create_stream("trips", columns, event_time="ts")
    sql = "SELECT t.ts, c.city FROM trips t JOIN customers c ON t.customer_id = c.customer_id"
    needs = ["--latency-goal", "2 seconds", "--freshness", "t=12 minutes", "--completeness", "0.9"]
    slo = {"latency": "2 seconds", "freshness": {"t": "12 minutes"}, "completeness": 0.9}
    assert answer("query", "add", sql, "--name", "trips-by-city", *needs, url=url)["slo"] == slo
    shown = run("query", "show", "trips-by-city", url=url).stdout
    assert all(text in shown for text in ("2 seconds", "t: 12 minutes", "90.00% or more"))
    plain = answer("query", "add", sql, "--name", "b", url=url)["slo"]
    assert plain == {"latency": None, "freshness": {}, "completeness": None}
    assert answer("query", "set", "b", *needs, url=url)["slo"] == slo
    none = ["--completeness", "none", "--freshness", "none"]
    cleared = answer("query", "set", "b", *none, url=url)["slo"]
    assert cleared == {**slo, "completeness": None, "freshness": {}}
    for refused in (["--completeness", "nan"], ["--freshness", "t"], ["--completeness", "most"]):
        result = run("query", "set", "b", *refused, url=url)
        assert (result.exit_code, refused[0] in result.stderr) == (2, True), result.stderr

    name = QueryId("trips-by-city")
    goal = RationedGoal(name, Label("trips"), Ranking((("ts", "timestamp"),), by_batch=True))
    points = (SchedulePoint(0.0, (0.0,)), SchedulePoint(1.0, (1.0,)))
    floors = (Floor(name, 0.9, 0.9),)
    schedule = RationSchedule(0, 0, (goal,), points, floors=floors)
    service.redis.set(service.keys.rations, schedule.dumps())
    for budget, broken in ((1.0, False), (0.5, True)):
        rationing = Rationing(Overload.RATION, budget)
        progress = Progress("running", epoch=0, ruleset_epoch=0, rationing=rationing)
        service.redis.set(service.keys.runtime, progress.dumps())
        detail = run("query", "show", name, url=url).stdout
        assert "90.00% of rationed probes" in detail
        assert ("broken" in detail) is broken
        assert ("floor broken" in run("query", "list", url=url).stdout) is broken


def test_epochs_and_plans(url: str, shop: Client, service: Service) -> None:
    shop.create_query(JOIN, name="a")
    service.plan(-1)
    assert [e["epoch"] for e in answer("epochs", "list", url=url)] == [0]
    assert answer("epochs", "show", "0", url=url)["queries"] == ["a"]
    assert answer("epochs", "current", url=url)["epoch"]["epoch"] == 0
    plan = answer("plan", "dry-run", JOIN, "--name", "b", "--drop", "a", "--optimizer",
                  "individual", "--assume", "orders=500", url=url)  # fmt: skip
    assert (plan["queries"], plan["optimizer"]) == (["b"], "individual")


def test_the_plans_of_two_epochs_are_compared(url: str, shop: Client, service: Service) -> None:
    shop.create_query(JOIN, name="a")
    service.plan(-1)
    shop.create_query(JOIN + " WHERE o.order_id > 5", name="late")
    shop.delete_query("a")
    service.plan(0)
    found = answer("epochs", "diff", "0", "1", url=url)
    assert (found["queries_added"], found["queries_removed"]) == (["late"], ["a"])
    assert found["diff"]["epoch"] == 0
    assert answer("epochs", "diff", url=url) == answer("epochs", "diff", "1", url=url) == found
    text = run("epochs", "diff", "0", "1", url=url).stdout
    for part in ("queries added", "late", "against epoch 0", "orders where order_id > 5"):
        assert part in text
    assert "the same steps and stores" in run("epochs", "diff", "1", "1", url=url).stdout
    one_line(run("epochs", "diff", "0", "7", url=url), 1, "7")


def test_the_plan_and_the_cost_of_a_query(url: str, shop: Client, service: Service) -> None:
    shop.create_query(JOIN, name="a")
    one_line(run("query", "plan", "a", url=url), 1, "a")
    service.plan(-1)
    service.plan(0)
    service.progress(Progress("running", epoch=1))
    text = run("query", "plan", "a", url=url).stdout
    for part in ("not measured yet", "o (orders)", "customers (all tuples)", "tuples/s"):
        assert part in text
    plan = answer("query", "plan", "a", url=url)
    assert {path["alias"] for path in plan["paths"]} == {"o", "c"}
    assert plan == shop.query_plan("a").document()
    assert "CPU seconds" not in run("query", "show", "a", url=url).stdout
    uses = (
        CpuUse(CpuGroup.SINK, "a", ("a",), 2.5),
        CpuUse(CpuGroup.PROBE, "orders>1", ("a", "b"), 8.0),
    )
    service.redis.set(service.keys.profile, CpuReport("r", 1_790_000_000.0, uses).dumps())
    assert re.search(r"CPU seconds +6.5\n", run("query", "show", "a", url=url).stdout)
    (line,) = (one for one in run("query", "list", url=url).stdout.splitlines() if " 6.5 " in one)
    assert line.split()[0] == "a"
    # Uses count queries, so the number stays when another run takes over.
    shop.put_query("a", {"sql": f"{JOIN} WHERE o.total > 1"})
    service.plan(1)
    assert shop.query("a").run == "a~2"
    assert re.search(r"CPU seconds +6.5\n", run("query", "show", "a", url=url).stdout)
    assert " 6.5 " in run("query", "list", url=url).stdout


def test_the_table_of_a_view_and_its_price(url: str, shop: Client, service: Service) -> None:
    joined = JOIN.partition("FROM")[2]
    for name, call in (("a", "count(*)"), ("b", "min(o.total)")):
        shop.create_query(f"SELECT c.city, {call} AS n FROM {joined} GROUP BY c.city", name=name)
    service.plan(-1)
    service.progress(Progress("running"))
    text = run("query", "plan", "a", url=url).stdout
    for part in ("size not measured yet", "GROUP BY customers.city", "estimated share", "alone"):
        assert part in text
    share = answer("query", "plan", "a", url=url)["table"]["share"]
    assert 0 < share["seconds"] < share["alone_seconds"]
    for command in (("epochs", "show", "0"), ("plan", "dry-run")):
        text = run(*command, url=url).stdout
        assert "maintained tables" in text
        assert "unshared" in text
    sql = f"SELECT c.city, max(o.total) AS n FROM {joined} GROUP BY c.city"
    assert "table apart: not shared with a, b" in run("query", "explain", sql, url=url).stdout
    for name, call in (("c", "avg(o.total)"), ("d", "max(o.total)")):
        shop.create_query(f"SELECT c.city, {call} AS n FROM {joined} GROUP BY c.city", name=name)
    tables = answer("plan", "dry-run", url=url)["tables"]["tables"]
    why = "max(orders.total) can't be subtracted, and they began in another epoch"
    assert {"".join(s["query"] for s in one["queries"]): one["apart"] for one in tables} == {
        "abc": "",
        "d": f"not shared with a, b, c: {why}",
    }


def test_load_and_lag(url: str, shop: Client, service: Service) -> None:
    shop.create_query(JOIN, name="a")
    service.plan(-1)
    one_line(run("load", url=url), 1, "the runtime has not reported yet")
    intake = {"orders": StreamIntake(waiting=1200, seconds=90.0)}
    rationing = Rationing(Overload.RATION, needed=1.25, overloaded=True)
    service.progress(Progress("running", input=InputProgress(intake), rationing=rationing))
    service.beat()
    text = run("load", url=url).stdout
    for part in ("running", "125.00% of the available", "ration, withholding results"):
        assert part in text
    assert answer("load", url=url)["rationing"]["needed"] == 1.25
    (line,) = (one for one in run("lag", url=url).stdout.splitlines() if "orders" in one)
    assert line.split()[:4] == ["orders", "1,200", "90", "s"]
    assert [one["name"] for one in answer("lag", url=url)] == ["customers", "orders"]


def test_plans_have_names_and_no_ids(url: str, shop: Client, service: Service) -> None:
    shop.create_query(JOIN + " WHERE o.order_id > 5", name="late")
    service.plan(-1)
    text = run("epochs", "current", url=url).stdout
    assert "orders where order_id > 5" in text
    assert re.search(r"\[[0-9a-f]{8}\]|\+left", text) is None
    assert run("epochs", "show", "0", url=url).stdout.count("orders where order_id > 5") > 0
    assert "orders[" in run("epochs", "current", "--json", url=url).stdout


def test_stored_state_of_a_running_pipeline(url: str, service: Service, shop: Client) -> None:
    one_line(run("state", "list", "--live", url=url), 1, "has not reported")
    told = report(store("orders/1", 12_345), epoch=3)
    service.redis.set(service.keys.state, told.dumps())
    assert answer("state", "list", "--live", url=url)["stores"][0]["rows"] == 12_345
    text = run("state", "list", "--live", url=url).stdout
    assert "12,345" in text
    assert "3 by ruleset 0" in text
    one_line(run("state", "show", "nothing/1", "--live", url=url), 1, "no store 'nothing/1'")
    asked = (IndexReport("customer_id:bigint", 9, 800, 100, Reads(100, 25, 30, looked=150)),)
    edges = (EdgeReport("customers>orders", ("pair",), fill=False),)
    segments = (SegmentReport(0, 1, 4_321, 900, (3, 5), None),)
    parts = StoreParts("orders/1", 10, segments, 0, edges, 0)
    told = report(replace(store("orders/1", 12_345), indexes=asked), epoch=1)
    service.redis.set(service.keys.state, told.dumps())
    service.redis.hset(service.keys.state_parts, "orders/1", parts.dumps())
    reads = {"customer_id:bigint": Reads(8, 1, 1, looked=20)}
    ended = Snapshot(0, 4, 4, stores={"orders/1": StoreStatistics(9, 9, 1, reads=reads)})
    service.redis.set(service.keys.statistics(0), codec.dumps(ended))
    assert "12.50%" in run("state", "list", "--live", url=url).stdout
    found = answer("state", "show", "orders/1", "--live", url=url)
    assert (found["parts"][0]["rows"], found["life"]["hit_rate"]) == (4_321, 0.25)
    text = run("state", "show", "orders/1", "--live", url=url).stdout
    for shown in ("4,321", "3–5", "customers>orders", "25.00%", "1.5", "12.50%"):
        assert shown in text
    assert shop.stored("orders/1", epochs=0).history == ()
    assert [e.reads.found for e in shop.stored("orders/1").history] == [1]


def test_statistics_and_samples_as_tables(url: str, service: Service, shop: Client) -> None:
    one_line(run("epochs", "statistics", "0", url=url), 1, "no statistics of epoch 0")
    one_line(run("stream", "sample", "orders", url=url), 1, "sampled")
    measured = Snapshot(
        0,
        2,
        2,
        edges={"orders>customers": EdgeStatistics(4000, 8, 0.002, 20, 8)},
        stores={"orders/1": StoreStatistics(10, 2048, 1, {"customer_id": 4.0})},
        measured={"orders": StreamStatistics(10, 1, 0, 5.0, 20.0, (9, *[0] * 19, 1))},
    )
    service.redis.set(service.keys.statistics(0), codec.dumps(measured))
    sample = StreamSample(9_000, 3, {"total": ("decimal(12,2)", ["7.50", None, "7.50"])})
    service.redis.hset(service.keys.samples, "orders", sample.dumps())
    text = run("epochs", "statistics", "0", url=url).stdout
    for words in ("orders", "1.05 s", "2.0 KiB", "customer_id: 4", "orders>customers", "500"):
        assert words in text
    assert answer("epochs", "statistics", "0", url=url)["streams"]["orders"]["late"] == 1
    text = run("stream", "sample", "orders", url=url).stdout
    for words in ("3 of 9,000 tuples", "total", "33.33%", "7.50", "66.67%"):
        assert words in text
    assert answer("stream", "sample", "orders", url=url)["size"] == 3


def test_the_course_of_a_query_as_a_table(url: str, service: Service, shop: Client) -> None:
    shop.create_query(JOIN, name="a")
    assert "interruptions" in run("query", "history", "a", url=url).stdout
    begin = 4_000_000_000 // 3600 * 3600
    for minute in (1, 2, 61, 62, 121, 241):
        point = HistoryPoint(
            at=begin + 60 * minute,
            batch_seconds=0.3,
            rows={},
            results={"a": 2.0},
            ages={"orders": {bin_of(0.5): 9, bin_of(4.0): 1}},
            working=minute != 62,
        )
        service.redis.rpush(service.keys.history, point.model_dump_json())
    lines = run("query", "history", "a", url=url).stdout.splitlines()
    rows = [line.split() for line in lines if line.lstrip().startswith("2096-")]
    assert [" ".join(row[:7]) for row in rows[:1]] == ["2096-10-02 08:00Z 120 512 ms 4.1 s"]
    assert " ".join(rows[1][7:]) == "1 min: no runtime works; 58 min without a record"
    assert " ".join(rows[2][7:]) == "59 min without a record"
    assert " ".join(rows[3][2:]) == "– – – no record"
    assert len(rows) == 5
    (_, found, *_) = answer("query", "history", "a", "--minutes", "1", url=url)["items"]
    assert (found["rate"], found["freshness_p99"], found["minutes"]) == (2.0, 4.1, 1)
    assert sum(one.minutes for one in shop.query_history("a", minutes=240).items) == 6
    assert run("query", "history", "none", url=url).exit_code == 1


def test_series_as_a_table(url: str, service: Service, shop: Client) -> None:
    assert "periods" in run("epochs", "series", url=url).stdout
    for number, found in enumerate((100, 300)):
        step = StepMeasures(
            MirId("customers,orders"), (Label("orders"),), (Label("customers"),),
            EdgeStatistics(400, 600, 0.002, 9000, 600, found),
        )  # fmt: skip
        interim = Interim(
            2.0 * number,
            2.0,
            0,
            0,
            number,
            1,
            {"orders": 400},
            (step,),
            {"orders/1": StoreSize(800)},
        )
        service.redis.rpush(service.keys.interims, interim.dumps())
    text = run("epochs", "series", url=url).stdout
    for words in ("orders → customers", "200", "75.00%", "▃█", "orders/1", "800"):
        assert words in text
    (found_step,) = answer("epochs", "series", "--last", "1", url=url)["steps"]
    assert found_step["matches_per_hit"] == [2.0]
    assert shop.series(last=1).relations == {"orders": [200.0]}
    assert shop.series(forecast=True).steps[0].forecast is not None
    text = run("epochs", "series", "--forecast", url=url).stdout
    assert text.count("75.00%") == 2


def test_tables_are_for_people(url: str, shop: Client, service: Service) -> None:
    shop.create_query(JOIN, name="where")
    service.plan(-1)
    for command, words in [
        (("stream", "list"), "orders"),
        (("stream", "show", "orders"), "decimal(12,2)"),
        (("query", "list"), "where"),
        (("query", "show", "where"), "city"),
        (("epochs", "list"), "clash"),
        (("epochs", "show", "0"), "⇒ where"),
        (("epochs", "current"), "not started"),
        (("plan", "dry-run"), "where"),
    ]:
        result = run(*command, url=url)
        assert result.exit_code == 0, result.output
        assert words in result.stdout


def one_line(result: Result, code: int, words: str, *, shown: str = "") -> None:
    assert result.exit_code == code, result.output
    assert result.stdout.startswith(shown) if shown else result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


def test_a_refused_query_is_one_line_and_exit_code_1(url: str, shop: Client) -> None:
    one_line(run("query", "add", "SELECT x FROM nowhere", "--json", url=url), 1, "nowhere")
    one_line(run("query", "show", "none", "--json", url=url), 1, "none")
    assert list(shop.queries()) == []


def test_no_service_is_one_line_and_exit_code_1() -> None:
    one_line(run("stream", "list"), 1, "anabranch up")


@pytest.mark.parametrize(
    "arguments",
    [
        "stream add a --column k:nothing",
        "stream show none",
        "stream set none --keep-late",
        "stream sample none",
        "stream push none",
        "stream push orders",
        "stream rm none",
        "query add nonsense",
        "query explain nonsense",
        "query show none",
        "query set none --priority 3",
        "query rm none",
        "query tail none",
        "query rows none",
        "epochs show 99",
        "epochs statistics 99",
        "epochs diff 98 99",
        "query plan none",
        "epochs revisions 99",
        "settings set --optimizer magic",
        "plan dry-run nonsense",
        "plan dry-run --drop none",
        "plan dry-run --assume nothing=3",
        "state list --live",
        "state show none --live",
        "token create x --role viewer --ttl soon",
        "token revoke none",
    ],
)
def test_whatever_the_service_refuses_is_exit_code_1(
    arguments: str, url: str, shop: Client
) -> None:
    result = run(*arguments.split(), url=url, stdin='{"k": 1}\n')
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert result.stderr.startswith("error: ")


def test_the_version() -> None:
    done = piped("--version")
    assert (done.code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"anabranch {version('anabranch')}"
    assert lines[1] == f"Python {platform.python_version()}"
    assert lines[2] == f"pyspark {version('pyspark')}"


LONG = "a_query_of_somebody_who_likes_names_that_say_all_of_it_and_more_than_that"


def test_names_are_whole_wherever_they_are_written(url: str, shop: Client) -> None:
    stream = f"stream_{LONG}"
    shop.create_stream(stream, [("k", "bigint")])
    sql = f"{JOIN} WHERE c.city <> '{60 * 'x '}'"
    shop.create_query(sql, name=LONG, ttl="2 hours")
    for command, name in ((("query", "list"), LONG), (("stream", "list"), stream)):
        one = piped(*command, ANABRANCH_URL=url)
        assert one.code == 0
        (line,) = (line for line in one.stdout.splitlines() if name in line)
        assert line == line.rstrip()
        for columns in (30, 80, 200):
            shown = in_terminal(columns, *command, ANABRANCH_URL=url)
            assert shown.code == 0
            lines = [line.split() for line in shown.stdout.splitlines()]
            assert name in "".join(words[0] for words in lines if words), shown.stdout
    listed = piped("query", "list", ANABRANCH_URL=url).stdout
    assert " ".join(sql.split()) in listed
    assert "…" not in listed
    assert "─" not in listed
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ \(in (2 h|1\d\d min)\)", listed)
    detail = piped("query", "show", LONG, ANABRANCH_URL=url).stdout
    assert re.search(r"registered +\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ \(", detail)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("query", "add"), "--file"),
        (("query", "add", "SELECT 1", "--file", "x.sql"), "exactly one"),
        (("query", "add", "--file", "no-such.sql"), "cannot read no-such.sql"),
        (("query", "add", "--structured", "no-such.json"), "cannot read no-such.json"),
        (("query", "add", "SELECT 1", "--window", "1 hour", "--window", "a=1 hour"), "--window"),
        (("query", "set", "a"), "nothing to change"),
        (("stream", "add", "a"), "--column"),
        (("stream", "add", "a", "--column", "id"), "name:type"),
        (("stream", "add", "a", "--path", "no-such.parquet"), "missing"),
        (("plan", "dry-run", "--assume", "orders=many"), "relation=number"),
    ],
)
def test_arguments_that_cannot_be_used_are_exit_code_2(
    arguments: tuple[str, ...], words: str
) -> None:
    one_line(run(*arguments), 2, words)


def test_a_bad_scenario_is_exit_code_2_and_starts_nothing(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text("streams: {a: {path: none.parquet, rows_per_batch: 1}}")
    out = tmp_path / "out"
    result = run("replay", str(scenario), "--out", str(out))
    one_line(result, 2, "streams.a.path")
    assert not out.exists()


def test_a_folder_that_cannot_be_written_is_exit_code_2(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    scenario = tmp_path / "s.yaml"
    scenario.write_text("streams: {a: {path: a.parquet, rows_per_batch: 1}}")
    (tmp_path / "file").write_text("")
    one_line(run("replay", str(scenario), "--out", str(tmp_path / "file" / "out")), 2, "--out")


def test_a_redis_that_does_not_answer_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_REDIS_URL", "redis://127.0.0.1:1/0")
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    scenario = tmp_path / "s.yaml"
    scenario.write_text("streams: {a: {path: a.parquet, rows_per_batch: 1}}")
    one_line(run("replay", str(scenario), "--out", str(tmp_path / "out")), 1, "ANABRANCH_REDIS_URL")


def test_settings_are_shown_and_set(url: str, client: Client) -> None:
    before = answer("settings", "show", url=url)
    assert before == client.settings().document()
    assert (before["optimizer"], before["switching"], before["memory"]) == ("clash", 0.1, None)
    after = answer("settings", "set", "--memory", "2e9", "--copies", "3", "--switching", "0",
                   "--solver", "highs", "--optimizer", "shared", "--backfill", "always",
                   "--backfill-horizon", "2", "--substreams", "8", "--revision-gain", "0.2",
                   "--overload", "ration", "--allocation", "jaqpot", "--latency-goal", "3",
                   "--capacity", "0.5", "--look-ahead", "auto", "--hot-keys", "never",
                   "--intermediate-results", "never", url=url)  # fmt: skip
    changed = {"memory": 2e9, "copies": 3, "switching": 0.0, "solver": "highs"}
    changed |= {"substreams": 8}
    changed |= {"backfill": "always", "backfill_horizon": 2.0, "revision_gain": 0.2}
    changed |= {"overload": "ration", "allocation": "jaqpot", "latency_goal": 3.0, "capacity": 0.5}
    changed |= {"look_ahead": "auto", "hot_keys": "never", "intermediate_results": 0}
    assert after == before | changed | {"optimizer": "shared"}
    lifted = answer("settings", "set", "--memory", "none", "--copies", "none", url=url)
    assert lifted == after | {"memory": None, "copies": None}
    for given, most in (("2", 2), ("any", None)):
        one = answer("settings", "set", "--intermediate-results", given, url=url)
        assert one == lifted | {"intermediate_results": most}
    shown = run("settings", "show", url=url)
    assert shown.exit_code == 0
    assert "shared" in shown.stdout
    assert "any" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([], 2, "nothing to change"),
        (
            ["--memory", "lots"],
            2,
            "'lots' is not a value of --memory (give a number, or none for no limit)",
        ),
        (["--copies", "0"], 1, "copies"),
        (["--intermediate-results", "none"], 2, "give a whole number, or never for 0"),
        (["--intermediate-results", "-1"], 1, "intermediate_results"),
        (["--optimizer", "magic"], 1, "optimizer"),
        (["--switching", "-1"], 1, "switching"),
        (["--backfill", "maybe"], 1, "backfill"),
    ],
)
def test_settings_that_cannot_be_used(url: str, arguments: list[str], code: int, told: str) -> None:
    result = run("settings", "set", *arguments, url=url)
    assert result.exit_code == code
    assert result.stdout == ""
    assert told in result.stderr
