"""Tests of printed tables, plan trees, and sentences about shared steps."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from anabranch_client.errors import ApiError, ClientError
from anabranch_client.render import tables as render
from anabranch_client.render.statistics import statistics_detail
from anabranch_client.render.streams import streams_table
from anabranch_client.replay.demo import DemoResult, demo_summary
from anabranch_client.replay.oracle import Comparison
from anabranch_contract.rest.planning.epochs import EpochOut
from anabranch_contract.rest.planning.revisions import RevisionList
from anabranch_contract.rest.planning.statistics import StatisticsOut
from anabranch_contract.rest.queries import QueryOut
from anabranch_contract.rest.streams import StreamOut


def text(content: RenderableType, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(content)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def step(number: int, store: str, *users: str) -> dict[str, Any]:
    return {"id": number, "store": store, "broadcast": number == 2, "cost": 10.0 * number,
            "shared_by": list(users)}  # fmt: skip


EXPLAIN: dict[str, Any] = {
    "queries": [
        {
            "id": "q1",
            "orders": [
                {"start": "R", "owner": "",
                 "steps": [1, 2]},
            ],
        },
        {
            "id": "q2",
            "orders": [
                {"start": "R", "owner": "",
                 "steps": [1, 2, 3]},
            ],
        },
    ],
    "maintenance": [
        {"mir": "m1", "label": "S⋈T", "owner": "",
         "orders": [{"start": "S", "owner": "", "steps": [4]}]},
    ],
    "steps": [step(1, "S[b]", "q1", "q2"), step(2, "T[c]", "q1", "q2"), step(3, "U", "q2"),
              step(4, "T", "S⋈T", "q1")],
    "stores": [
        {"mir": "m1", "owner": "", "label": "S⋈T[b]", "used_by": ["q1", "q2"]},
        {"mir": "S", "owner": "", "label": "S[b]", "used_by": ["q1"]},
    ],
}  # fmt: skip


def test_equal_steps_are_one_node_of_a_tree() -> None:
    shown = text(render.plan_trees(EXPLAIN)[0])
    assert shown.count("S[b]") == 1
    assert "T[c] to all partitions  cost 20" in shown
    assert "⇒ q1" in shown
    assert "⇒ q2" in shown
    assert len(render.plan_trees(EXPLAIN)) == 2


def test_trees_say_which_tuples_take_them() -> None:
    def order(substream: int, *steps: int) -> dict[str, Any]:
        return {"start": "R", "substream": substream, "owner": "", "steps": list(steps)}

    def substream(number: int, same_as: int, share: float, *values: str) -> dict[str, Any]:
        return {"number": number, "others": not values, "share": share, "cost": 10.0,
                "otherwise": 40.0 if values else 10.0, "same_as": same_as,
                "values": [{"value": value, "share": 0.1} for value in values]}  # fmt: skip

    steps = [step(1, "S"), step(2, "T"), step(3, "S"), step(4, "T")]
    orders = [order(0, 1), order(1, 2), order(2, 3), order(3, 4)]
    divided = {
        "start": "R",
        "attribute": "k",
        "substreams": [
            substream(0, 0, 0.5),
            substream(1, 1, 0.2, "7", "8"),
            substream(2, 0, 0.1, "9"),
            substream(3, 1, 0.2, "a", "b"),
        ],
    }
    queries = [{"id": "q", "orders": orders}]
    explain = {"queries": queries, "steps": steps, "substreams": [divided]}
    shown = [text(tree).splitlines()[0] for tree in render.plan_trees(explain)]
    assert shown == [
        "R (all others; 60.00% of its tuples)",
        "R (k = 7, 8, a or 1 more; saves 75.00%; 40.00% of its tuples)",
    ]
    nulls = {**substream(0, 0, 0.5), "nulls": 0.25}
    with_nulls = {**divided, "substreams": [nulls, substream(1, 1, 0.5, "7")]}
    shown = [text(tree) for tree in render.plan_trees(explain | {"substreams": [with_nulls]})]
    assert shown[0].startswith("R (all others, NULL 25.00%; 50.00% of its tuples)")
    alike = {**divided, "substreams": [substream(0, 0, 0.5), substream(1, 0, 0.5, "7")]}
    shown = [
        text(tree).splitlines()[0] for tree in render.plan_trees(explain | {"substreams": [alike]})
    ]
    assert shown[0] == "R"


def test_what_is_shared_is_said_once_and_in_full() -> None:
    assert render.shared_lines(EXPLAIN) == [
        "S⋈T is kept for q1, q2",
        "⟨R, S[b], T[c]⟩ is probed once for q1, q2",
    ]
    assert render.shared_lines({}) == []


def test_streams_and_why_they_are_not_read_fit_into_80_columns() -> None:
    def stream(name: str, error: str | None = None) -> StreamOut:
        return StreamOut.read(
            {
                "name": name, "event_time": "ordered_at", "lateness": "10 minutes",
                "input_tuples": 123_456_789, "late_tuples": 0, "invalid_tuples": 12,
                "ahead_tuples": 3, "source_error": error,
                "source_status": {"state": "failed" if error else "reading", "error": error},
            }
        )  # fmt: skip

    long = "a_stream_with_quite_a_long_name_of_its_own_that_goes_on"
    reason = "no [bold]broker[/bold] answers:\n" + "broker-of-a-long-name.example:9092 " * 4
    shown = text(streams_table([stream("orders"), stream(long, reason)]), width=80)
    lines = [line.rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= 80
    (orders,) = (line.split() for line in lines if line.startswith(" orders"))
    assert orders == ["orders", "reading", "ordered_at", "123,456,789", "0", "12", "3", "–"]
    assert "…" not in shown
    said = " ".join(" ".join(lines[lines.index("") :]).split())
    assert said.endswith(f"{long} is not read: {' '.join(reason.split())}")
    # A reason does not widen the table.
    plain = text(streams_table([stream("orders"), stream(long)]), width=80)
    assert "is not read" not in plain
    assert shown.splitlines()[:4] == plain.splitlines()[:4]


def test_text_from_users_is_never_markup() -> None:
    query = QueryOut.read({"id": "q", "status": "active", "sql": "SELECT a[0] FROM [bold]x[/bold]"})
    assert "[bold]x[/bold]" in text(render.queries_table([query]))
    assert "[bold]x[/bold]" in text(render.query_detail(query))


def test_a_query_after_its_rows_says_that_their_results_are_not_emitted() -> None:
    given = {"id": "q", "status": "active", "sql": "SELECT 1 AS x FROM r", "activated_batch": 19}
    for batches, said in (((14, 17), True), ((14, 19), False), ((14,), False)):
        seen = {f"a{b}": {"batch": b, "event_time": None} for b in batches}
        shown = text(render.query_detail(QueryOut.read({**given, "visible_from": seen})))
        assert ("rows of before batch 19 join with later ones only" in shown) == said


def test_the_branches_of_a_union_are_shown() -> None:
    given = {"id": "q", "status": "active", "sql": "SELECT 1 AS x FROM r"}
    assert "union of" not in text(render.query_detail(QueryOut.read(given)))
    lists = ("aliases", "classes", "bounds", "unbounded", "residuals", "output")
    branches = [["u.orders", "c"], ["u.sales", "c#2"]]
    meaning = {**{name: [] for name in lists}, "branches": branches}
    shown = text(render.query_detail(QueryOut.read({**given, "normalised": meaning})))
    assert "u.orders, c; u.sales, c#2" in shown


def test_an_epoch_with_a_fallback_says_so() -> None:
    epoch = EpochOut.read(
        {"epoch": 3, "optimizer": "clash", "cost": 12.0, "gap": 0.5, "fallback": "out of time"}
    )
    shown = text(render.epoch_detail(epoch))
    assert "out of time" in shown
    assert "50.00%" in shown
    assert "individually –" in shown
    assert "expected" not in shown


def test_a_revision_says_what_it_was_asked_for_by() -> None:
    first = {
        "epoch": 3, "revision": 1, "revises": 0, "published_at": "2026-09-21T14:13:20Z",
        "reason": "cheaper", "next_batch": 12, "cost": 1.0, "running_cost": 2.0, "predicted": 0.5,
        "drifted": ["[items]: 10 times the arrivals", "b"],
    }  # fmt: skip
    shown = text(
        render.revisions_table(RevisionList.read({"items": [first, {**first, "drifted": []}]})), 200
    )
    assert "cheaper after [items]: 10 times the arrivals" in shown
    assert shown.count("after") == 1


def test_a_gain_over_older_rules_than_predicted_names_them() -> None:
    gain = {"before": 4.0, "after": 3.0, "gain": 0.25, "periods": 2, "baseline": "3"}
    made = {
        "epoch": 3, "revision": 2, "revises": 1, "published_at": "2026-09-21T14:13:20Z",
        "reason": "cheaper", "next_batch": 12, "cost": 1.0, "running_cost": 2.0, "predicted": 0.5,
        "baseline": "3",
    }  # fmt: skip
    several = [
        {**made, "measured": gain},
        {**made, "measured": {**gain, "predicted": 0.6}, "baseline": "3.1"},
        {**made, "undoes": {**gain, "gain": -0.125}},
    ]
    shown = text(render.revisions_table(RevisionList.read({"items": several})), 200)
    assert shown.count("25.00%") == 2
    assert shown.count("25.00% of 3, predicted 60.00%") == 1
    assert "undoes -12.50%" in shown


def test_an_epoch_says_what_was_forecast_for_it() -> None:
    arrivals = {"orders": 1234.0, "parts": 2.5}
    ahead = {"period": 0.1, "arrivals": arrivals, "periods": 20}
    epoch = EpochOut.read({"epoch": 3, "optimizer": "clash", "cost": 12.0, "ahead": ahead})
    shown = text(render.epoch_detail(epoch))
    assert "1,234 of orders, 2.5 of parts (from 20 periods)" in shown


def test_statistics_of_several_hosts_have_what_was_sent_and_predicted() -> None:
    edge = {
        "probes": 5, "found": 2, "hits": 2, "matches": 2, "pairs": 9, "seconds": 1e-8,
        "sent": 4, "sent_bytes": 2048, "predicted_sent": 3.9, "predicted_sent_bytes": 2000.4,
    }  # fmt: skip
    document = {
        "epoch": 3, "batches": 4, "streams": {}, "stores": {}, "distinct": {},
        "edges": {"a>b": edge, "b>a": {**edge, "predicted_sent_bytes": None}},
    }  # fmt: skip
    several = text(statistics_detail(StatisticsOut.read({**document, "hosts": 3})))
    lines = [line.split() for line in several.splitlines() if ">" in line]
    assert lines == [
        ["a>b", "5", "2", "2", "2", "2.0", "KiB", "2.0", "KiB"],
        ["b>a", "5", "2", "2", "2", "2.0", "KiB", "–"],
    ]
    assert "KiB" not in text(statistics_detail(StatisticsOut.read(document)))


def test_statistics_have_the_most_frequent_values_of_each_key() -> None:
    document = {"epoch": 3, "batches": 4, "streams": {}, "stores": {}, "distinct": {}, "edges": {}}
    assert "frequent" not in text(statistics_detail(StatisticsOut.read(document)))
    shares = [("a [b]", 0.25, 0.5), ("x", 0.125, 0.1), ("y", 0.1, 0.1), ("z", 0.01, 0.1)]
    values = [{"value": v, "arriving": a, "stored": s} for v, a, s in shares]
    frequent = {"orders": {"item": {"values": values, "error": 0.001}, "user": {
        "values": [], "error": 0.002, "null_arriving": 0.5, "null_stored": 0.25}}}  # fmt: skip
    shown = text(statistics_detail(StatisticsOut.read({**document, "values": frequent})))
    lines = [line.split() for line in shown.splitlines() if "orders" in line]
    assert lines == [
        ["orders", "item", "a", "[b]", "25.00%", "50.00%", "0.10%"],
        ["orders", "item", "x", "12.50%", "10.00%", "0.10%"],
        ["orders", "item", "y", "10.00%", "10.00%", "0.10%"],
        ["orders", "user", "NULL", "50.00%", "25.00%", "0.00%"],
    ]


def test_an_epoch_says_what_it_will_send_between_hosts() -> None:
    edges = {
        "a>b": {"tuples": 10.0, "bytes": 2048.0},
        "b>a": {"tuples": 20.0, "bytes": 4096.4},
        "a>b>c": {"tuples": 0.0, "bytes": 0.0},
    }
    explain = {"exchange": {"hosts": 3, "edges": edges}}
    epoch = EpochOut.read({"epoch": 3, "optimizer": "clash", "cost": 12.0, "explain": explain})
    shown = text(render.epoch_detail(epoch))
    assert "6.0 KiB a batch between 3 hosts: b>a 4.0 KiB, a>b 2.0 KiB" in shown


def test_an_epoch_shows_look_ahead_filters() -> None:
    asked = [
        {"start": f"s{n}", "probe": "A", "asked": "B", "keys": [], "left": 0.1} for n in range(6)
    ]
    document = {"epoch": 3, "optimizer": "clash", "cost": 12.0, "explain": {"look_ahead": asked}}
    shown = " ".join(text(render.epoch_detail(EpochOut.read(document))).split())
    assert "s0 before A in B (10.00% pass), s1 before A" in shown
    assert "more" in shown


def test_an_epoch_says_which_values_it_deals_to_several_hosts() -> None:
    values = [
        {"store": "R[a:bigint]/16", "attribute": "R.a", "value": text, "hosts": 3}
        for text in ("17", "", "x", "y", "z", "zz")
    ]
    explain = {"hot_keys": {"hosts": 3, "before": 2.447, "after": 1.05, "values": values}}
    epoch = EpochOut.read({"epoch": 3, "optimizer": "clash", "cost": 12.0, "explain": explain})
    shown = " ".join(text(render.epoch_detail(epoch)).split())
    assert "R.a = 17 to 3, R.a = ? to 3" in shown
    assert "more" in shown
    assert "load 1.05 times the mean host's, 2.45 without" in shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 2**40, "5.0 TiB")]
)
def test_sizes(value: int, shown: str) -> None:
    assert render.size(value) == shown


def summary(found: Comparison) -> str:
    query = {"activated_batch": 8, "expired_batch": None, "visible_from": {"a": {"batch": 0}}}
    report = {
        "queries": {"q1": query},
        "input_tuples": 85305,
        "seconds": 20.0,
        "input_tuples_per_s": 4265.25,
        "batches": 20,
        "epochs": [1, 2, 3, 4],
        "state_bytes": 2**20,
        "peak_rss_bytes": 2**30,
    }
    epoch = {"epoch": 3, "queries": ["q1"], "cost": 60.0, "individual_cost": 80.0}
    result = DemoResult(report, {"q1": found}, epoch, ["S⋈T is kept for q1"], "http://x")
    assert result.document()["exact"] is found.match
    return text(demo_summary(result, Path("/somewhere")))


def test_the_end_of_a_good_demo() -> None:
    shown = summary(Comparison(10, 10, 0, 0))
    for words in ("exact", "jointly 60, individually 80 (25% less)", "shared: S⋈T", "4,265",
                  "1.0 MiB", "http://x", "/somewhere"):  # fmt: skip
        assert words in shown


def test_the_end_of_a_bad_demo() -> None:
    shown = summary(Comparison(10, 12, 3, 1))
    assert "3 missing, 1 too many" in shown
    assert "exact" not in shown


def test_errors_are_one_line_whatever_they_quote() -> None:
    error = ClientError("two\nlines", field="sql", remedy="be\n brief")
    assert str(error) == "sql: two lines (be brief)"
    problem = {"detail": "sql: unknown column", "errors": [{"field": "sql"}], "remedy": "look"}
    assert str(ApiError(422, problem)) == "sql: unknown column (look)"
    assert str(ApiError(500, {})) == "HTTP status 500"


def test_a_statement_gives_way_to_names_and_times() -> None:
    name, sql = "a-query-with-a-long-name", "SELECT nothing FROM nowhere AS n"
    document = {"status": "active", "sql": sql, "results": 0}
    found = [QueryOut.read({**document, "id": one}) for one in ("daily", name)]
    shown = {width: text(render.queries_table(found), width) for width in (80, 100, 160)}
    assert all(name in one for one in shown.values())
    assert "SELECT" not in shown[80]
    assert "SELECT nothing" in shown[100]
    assert sql in shown[160]
