"""Crowds of bad queries that share stores, through service, planner, driver and worker: filters
that no index takes, filters that fail, queries that come and go, families with too many constants.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.queries.joins import StreamName
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.tags import program
from anabranch_runtime.tags.program import tag_program
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from tests.service.conftest import PAIR
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.service import Service
from tests.support.worlds.small_pipeline import MINUTE, START, small_pipeline

LETTERS = "abcde"
#: Values of an order and of a customer, on which filters of tests depend.
Order: TypeAlias = dict[str, Any]
Customer: TypeAlias = dict[str, Any]


class Crowd:
    """A pipeline with orders and customers, and its input rows."""

    def __init__(self, shop: Service, folder: Path, every: int = 2) -> None:
        self.shop, self.folder = shop, folder
        self.driver: Driver = small_pipeline(shop, folder, every=every)
        self.orders, self.customers = list[Order](), list[Customer]()
        self._rng = Random(5)

    def add(self, filters: dict[str, str], status: int = 200) -> Any:
        """Register a query per filter, at most 500 in a request."""
        queries = [{"id": name, "sql": f"{PAIR} WHERE {text}"} for name, text in filters.items()]
        for begin in range(0, len(queries), 500):
            self.shop.post("/v1/queries:batch", {"queries": queries[begin : begin + 500]}, status)

    def run(self, orders: int = 60) -> None:
        """Run a batch of so many orders, and half as many customers."""
        rng, batch = self._rng, self.driver.state.next_batch
        first = len(self.orders)
        customers = [
            {
                "customer_id": rng.randrange(40),
                "city": "".join(rng.choices(LETTERS, k=9)),
                "b": batch,
            }
            for _ in range(orders // 2)
        ]
        new = [
            {"order_id": first + n, "customer_id": rng.randrange(40), "total": rng.random(),
             "ts": START + batch * MINUTE, "b": batch}
            for n in range(orders)
        ]  # fmt: skip
        self.orders += new
        self.customers += customers
        types = {"ts": pa.timestamp("us", tz="UTC")}
        blocks = [
            Block(
                StreamName(name),
                pa.record_batch(
                    {c: pa.array([r[c] for r in rows], types.get(c)) for c in rows[0] if c != "b"}
                ),
            )
            for name, rows in (("orders", new), ("customers", customers))
        ]

        def job(context: BatchContext) -> list[TaskReport]:
            rules = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
            self.rules = rules
            return [run_task(context, rules, blocks, task=0, tasks=1, exchange=lambda m: [m])]

        self.driver.run(job)
        self.driver.tick()

    def got(self, name: str) -> Counter[tuple[int, str]]:
        """Return the results of a query."""
        files = sorted((self.folder / "results" / name).glob("*.parquet"))
        tables = [pq.read_table(f) for f in files]
        rows = [
            row for t in tables for row in zip(*(c.to_pylist() for c in t.columns), strict=True)
        ]
        return Counter(rows)

    def wanted(self, name: str, holds: Callable[[Order, Customer], bool]) -> Counter[Any]:
        """Return the expected results of a query over the rows that it sees."""
        one = self.driver.state.queries[name]
        end = self.driver.state.next_batch if one.expired_batch is None else one.expired_batch
        since = {a: min(seen.batch, one.activated_batch) for a, seen in one.visible_from.items()}
        return Counter(
            (o["order_id"], c["city"])
            for o in self.orders
            if o["b"] >= since["o"]
            for c in self.customers
            if c["b"] >= since["c"]
            and o["customer_id"] == c["customer_id"]
            and one.activated_batch <= max(o["b"], c["b"]) < end
            and holds(o, c)
        )


@pytest.mark.parametrize("count", mostly_slow([120, 5_000]))
def test_filters_that_no_index_takes(
    count: int, shop: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patterns with a leading wildcard, and comparisons of two columns: tested once per row."""
    # Indexes without the predicates and sets of other tests in this process.
    monkeypatch.setattr(program, "_NEWEST", [program._Generation(1 << 20)])
    rng, crowd = Random(3), Crowd(shop, tmp_path)
    texts = {n: "".join(rng.choices(LETTERS, k=2 + n % 2)) for n in range(count)}
    crowd.add(
        {
            f"q{n}": f"c.city LIKE '%{text}%' AND (o.order_id < o.customer_id OR o.order_id > {n})"
            for n, text in texts.items()
        }
    )
    for _ in range(5):
        crowd.run()
    assert len(crowd.rules.stores) <= 4
    indexes = tag_program(crowd.rules).indexes
    assert sum(map(len, indexes.values())) >= len(set(texts.values()))
    assert not any(index.overflowed for index in indexes.values())
    # At most one set per row and one without the conditions that are tested alone.
    rows = len(crowd.orders) + len(crowd.customers)
    assert sum(len(index.met) for index in indexes.values()) <= 2 * rows
    for n, text in list(texts.items())[:: max(1, count // 60)]:

        def holds(o: Order, c: Customer, n: int = n, text: str = text) -> bool:
            return text in c["city"] and (o["order_id"] < o["customer_id"] or o["order_id"] > n)

        assert crowd.got(f"q{n}") == crowd.wanted(f"q{n}", holds), n


def test_a_filter_that_fails_ends_its_own_query_only(shop: Service, tmp_path: Path) -> None:
    crowd = Crowd(shop, tmp_path)
    crowd.add({f"q{n}": f"o.order_id > {n} AND o.total < 0.9" for n in range(40)})
    failing = {
        "divides": "o.order_id > 3 AND 10 / (o.order_id - 200) > 0",
        "casts": "o.order_id > 3 AND CAST(c.city AS INT) > 3",
        "adds": "o.order_id > 3 AND o.order_id + 9223372036854775557 > 0",
    }
    crowd.add(failing)
    for _ in range(5):
        crowd.run()
    for n in range(40):
        holds = lambda o, c, n=n: o["order_id"] > n and o["total"] < 0.9  # noqa: E731
        assert crowd.got(f"q{n}") == crowd.wanted(f"q{n}", holds), n
        assert shop.get(f"/v1/queries/q{n}")["status"] == "active"
    # Orders 200 and 251 are in batches 3 and 4; the queries begin with batch 2.
    for name, batch, part in (("divides", 3, "order_id"), ("casts", 2, "city"), ("adds", 4, "+")):
        answer = shop.get(f"/v1/queries/{name}")
        assert (answer["status"], answer["failure"]["batch"]) == ("failed", batch), name
        assert part in answer["failure"]["expression"]
        assert answer["failure"]["remedy"]
    got = crowd.got("adds")
    assert got
    assert got == crowd.wanted("adds", lambda o, _: o["order_id"] > 3)


@pytest.mark.parametrize("batches", mostly_slow([14, 24, 600]))
def test_filters_that_come_and_go(
    batches: int, shop: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten are added and ten deleted with each batch. Indexes are replaced before they fill with old
    ones.
    """
    monkeypatch.setattr(program, "_FEW", 64)
    crowd = Crowd(shop, tmp_path, every=1)
    crowd.add({f"stays{n}": f"o.order_id > {n} AND c.city > '{LETTERS[n % 5]}'" for n in range(20)})
    crowd.run(20)
    sizes = []
    for batch in range(1, batches):
        crowd.add({f"q{batch}x{n}": f"o.order_id <> {10 * batch + n}" for n in range(10)})
        for n in range(10):
            if batch > 2:
                shop.call("DELETE", f"/v1/queries/q{batch - 2}x{n}", 202)
        crowd.run(20 if batches < 100 else 4)
        sizes.append(sum(map(len, tag_program(crowd.rules).indexes.values())))
    assert max(sizes) <= 4 * 64 + 200
    for n in range(20):
        holds = lambda o, c, n=n: o["order_id"] > n and c["city"] > LETTERS[n % 5]  # noqa: E731
        assert crowd.got(f"stays{n}") == crowd.wanted(f"stays{n}", holds), n
    there = [name for name in crowd.driver.state.queries if name.startswith("q")]
    for name in there:
        batch, n = map(int, name[1:].split("x"))
        holds = lambda o, _, id=10 * batch + n: o["order_id"] != id  # noqa: E731
        assert crowd.got(name) == crowd.wanted(name, holds), name
    ended = [n for n in there if crowd.driver.state.queries[n].expired_batch is not None]
    assert len(ended) >= 10


@pytest.mark.parametrize(("count", "status"), [(400_000, 422), (1_000_000, 413)])
def test_a_family_with_a_million_constants_is_refused(
    count: int, status: int, shop: Service
) -> None:
    """Refused for the number of queries, or for the size of the text; the service continues."""
    parameters = {str(n): {"n": n} for n in range(count)}
    sql = f"{PAIR} WHERE o.order_id = :n"
    body = json.dumps({"id": "family", "sql": sql, "parameters": parameters})
    began = time.monotonic()
    answer = shop.http.post(
        "/v1/queries:family", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == status, answer.text[:300]
    problem = answer.json()
    assert len(answer.content) < 4096
    assert "table" in problem["remedy"] or status == 413
    assert time.monotonic() - began < 60
    assert shop.get("/v1/queries")["items"] == []


def test_a_list_with_a_million_constants_is_refused(shop: Service) -> None:
    listed = ", ".join(map(str, range(1_000_000)))
    refused = shop.post("/v1/queries", {"sql": f"{PAIR} WHERE o.order_id IN ({listed})"}, 422)
    assert "join" in refused["remedy"]
