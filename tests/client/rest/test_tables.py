"""Tests of queries' rows as Arrow, pandas and Polars tables, and of answers displayed
in notebooks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_client.errors import ApiError
from anabranch_client.rest.api import AsyncClient, Client
from anabranch_client.rest.notebook import Listing
from anabranch_client.rest.tables import END, read_arrow
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Progress
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.service import Service, serving

STREAMS: dict[str, list[tuple[str, str]]] = {
    "customers": [("customer_id", "bigint"), ("city", "string")],
    "orders": [("order_id", "bigint"), ("customer_id", "bigint"), ("ts", "timestamp")],
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Client]]:
    """A query with results of batches 0 and 1."""
    home = tmp_path_factory.mktemp("results")
    with redis_url() as url, serving(ServiceSettings().changed(redis_url=url)) as service:
        base = str(service.http.base_url)
        with Client(base) as client:
            for name, columns in STREAMS.items():
                client.create_stream(name, columns)
            client.create_query(PAIR, name="pair")
            (home / "pair").mkdir()
            for batch, city in enumerate(["Oslo", "R<m"]):
                rows = pa.table({"order_id": pa.array([batch], pa.int64()), "city": [city]})
                pq.write_table(rows, home / "pair" / f"{batch:010d}-00000.parquet")
            service.activate("pair", Activation(0, {}, results=2))
            service.progress(Progress("running", committed=2, results_home=str(home)))
            yield service, client


def test_rows_as_tables(world: tuple[Service, Client], monkeypatch: Any) -> None:
    _, client = world
    pair = client.query("pair")
    rows = pair.arrow()
    assert rows.schema.names == ["order_id", "city"]
    assert sorted(rows.to_pylist(), key=str) == [
        {"order_id": 0, "city": "Oslo"},
        {"order_id": 1, "city": "R<m"},
    ]
    assert rows.schema.metadata == {b"anabranch_batch": b"1", b"anabranch_run": b"pair"}
    assert pair.arrow(batch=0).num_rows == pair.arrow(limit=1).num_rows == 1
    frame = pair.df()
    assert sorted(frame["city"]) == ["Oslo", "R<m"]
    later = client.table("pair", after=0)
    assert later["order_id"].to_pylist() == [1]
    assert client.table_columns("pair").batch == 1
    answer = client.sql("SELECT count(*) AS n FROM pair", batch=0)
    assert answer.to_pylist() == [{"n": 1}]
    with pytest.raises(ApiError, match="newest batch with all results is 1"):
        pair.arrow(batch=2)
    with pytest.raises(ApiError, match="only SELECT"):
        client.sql("DROP TABLE pair")


def test_rows_as_a_polars_frame(world: tuple[Service, Client]) -> None:
    pytest.importorskip("polars")
    assert sorted(world[1].query("pair").polars()["order_id"].to_list()) == [0, 1]


def test_rows_of_an_asynchronous_client(world: tuple[Service, Client]) -> None:
    async def read() -> tuple[int, int]:
        async with AsyncClient(world[1].base_url) as client:
            pair = await client.query("pair")
            return (await pair.arrow()).num_rows, len(await pair.df(batch=0))

    assert asyncio.run(read()) == (2, 1)


def test_rows_that_are_not_whole() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("a", pa.int64())])) as writer:
        writer.write_batch(pa.record_batch({"a": pa.array([1], pa.int64())}))
    content = sink.getvalue().to_pybytes()
    assert read_arrow(content).num_rows == 1
    with pytest.raises(ValueError, match="before the stream's end"):
        read_arrow(content.removesuffix(END))


def test_answers_in_notebooks(world: tuple[Service, Client], tmp_path: Path) -> None:
    _, client = world
    query = client.query("pair")._repr_html_()
    assert "<th>status</th><td>active</td>" in query
    assert "order_id bigint, city string" in query
    assert f"<pre>{PAIR}</pre>" in query
    streams: Any = client.streams()
    assert "<td>customers</td>" in streams._repr_html_()
    queries: Any = client.queries()
    assert "<td>pair</td>" in queries._repr_html_()
    # Displaying rows does not consume them.
    assert [one.id for one in queries] == ["pair"]
    plan: Any = client.explain(PAIR)
    assert "<b>Multi-way joins</b>" in plan._repr_html_()
    many = Listing([*range(120), "<b>"])._repr_html_()
    assert many.count("<tr>") == 101
    assert "… and 21 more" in many
    assert "&lt;b&gt;" in Listing(["<b>"])._repr_html_()
